//! Reservations: made, made again, found, given back.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use groundplane_core::{Family, Prefix};
use groundplane_proto::provider::v1::{Reservation, ReservationState};
use tonic::Code;

use super::super::bench::Bench;
use super::super::calls::Refusal;
use super::{Check, Stop, must, must_refuse};

/// Too short for anything to be done and answered, long enough for it to be begun.
const SHORT: Duration = Duration::from_millis(1);

fn is_pending(row: &Reservation) -> bool {
    match ReservationState::try_from(row.state) {
        Ok(ReservationState::Pending) => true,
        Ok(ReservationState::Unspecified) => row.pending,
        _ => false,
    }
}

fn find<'a>(rows: &'a [Reservation], id: &str) -> Option<&'a Reservation> {
    rows.iter().find(|row| row.id == id)
}

/// Exactly one reservation carries the tags of this rule.
async fn must_be_one(bench: &Bench, rule: &str) -> Check {
    let made = bench.of_rule(rule).await?;
    let ids: Vec<_> = made.iter().map(|row| row.id.as_str()).collect();
    must(made.len() == 1, || {
        format!(
            "there should be one reservation, and there are {}: {ids:?}",
            ids.len()
        )
    })
}

pub(super) async fn new(bench: &Bench) -> Check {
    for family in &bench.said.address_families {
        let before = bench.reservations().await?;
        let made = bench.create(&bench.wanted("P20", family, &[])).await?;
        must(!made.id.is_empty(), || "the new reservation has no id".to_owned())?;
        must(find(&before, &made.id).is_none(), || {
            format!("the new reservation has the id `{}` of an old one", made.id)
        })?;
        if is_pending(&made) {
            must(made.prefix.is_empty(), || {
                format!("`{}` is pending, and has the prefix {}", made.id, made.prefix)
            })?;
        } else {
            must(is_one(&made.prefix, family), || {
                format!(
                    "`{}` has the prefix `{}`, not one {family} address",
                    made.id, made.prefix
                )
            })?;
        }
        must(made.state != i32::from(ReservationState::Denied), || {
            format!("`{}` is new, and DENIED", made.id)
        })?;
        must(made.assignments.is_empty(), || {
            format!("`{}` is new, and held by somebody", made.id)
        })?;
        must(!made.not_for_services, || {
            format!("`{}` was asked for, and is not for Services", made.id)
        })?;
        let listed = bench.reservations().await?;
        let row =
            find(&listed, &made.id).ok_or_else(|| Stop::fail(format!("`{}` is not in the list", made.id)))?;
        // Tags are P21's. What was pending may have become ready since.
        let untagged = |row: &Reservation| Reservation {
            tags: Vec::new(),
            ..row.clone()
        };
        must(untagged(row) == untagged(&made) || is_pending(&made), || {
            format!("CreateReservation said {made:?}, and the list {row:?}")
        })?;
        bench.delete(&made.id).await?;
    }
    Ok(())
}

fn is_one(prefix: &str, family: &str) -> bool {
    prefix.contains('/')
        && prefix
            .parse::<Prefix>()
            .is_ok_and(|prefix| prefix.is_host() && Family::to_string(&prefix.family()) == family)
}

pub(super) async fn tags(bench: &Bench) -> Check {
    let long = "x".repeat(255);
    let own = [
        "zulu last",
        "alpha first",
        "dup=1",
        "dup=1",
        "ünïcödé=✓ 日本語 🚀",
        "e\u{301} is not \u{e9}",
        "Case=Mixed",
        " blanks around ",
        "quotes=\"'`,;:/\\{}[]<>&%",
        &long,
    ];
    let wanted = bench.wanted("P21", &bench.first_family()?, &own);
    let made = bench.create(&wanted).await?;
    let listed = bench.reservations().await?;
    let row =
        find(&listed, &made.id).ok_or_else(|| Stop::fail(format!("`{}` is not in the list", made.id)))?;
    for (who, tags) in [("CreateReservation", &made.tags), ("ListReservations", &row.tags)] {
        must(*tags == wanted.tags, || {
            format!("given {:?}, {who} has {tags:?}", wanted.tags)
        })?;
    }
    Ok(())
}

pub(super) async fn again(bench: &Bench) -> Check {
    let wanted = bench.wanted("P22", &bench.first_family()?, &[]);
    let first = bench.create(&wanted).await?;
    let second = bench.create(&wanted).await?;
    must(first.id == second.id, || {
        format!("the first call made `{}`, the second `{}`", first.id, second.id)
    })?;
    must_be_one(bench, "P22").await
}

pub(super) async fn at_once(bench: &Bench) -> Check {
    let wanted = bench.wanted("P23", &bench.first_family()?, &[]);
    let answers = join_all((0..8).map(|_| bench.create(&wanted))).await;
    let mut ids = BTreeSet::new();
    for answer in answers {
        match answer {
            Ok(row) => {
                ids.insert(row.id);
            }
            // "One of these runs already": the caller comes again.
            Err(Refusal {
                code: Code::Aborted | Code::Unavailable,
                ..
            }) => {}
            Err(refusal) => return Err(refusal.into()),
        }
    }
    must(ids.len() == 1, || {
        format!("eight calls at once gave the reservations {ids:?}")
    })?;
    must_be_one(bench, "P23").await
}

pub(super) async fn reused(bench: &Bench) -> Check {
    let wanted = bench.wanted("P24", &bench.first_family()?, &["one"]);
    bench.create(&wanted).await?;
    let mut other = wanted.clone();
    other.tags.pop();
    other.tags.push("other".to_owned());
    must_refuse(
        "CreateReservation with a used key and other tags",
        bench.create(&other).await,
        &[
            Code::FailedPrecondition,
            Code::InvalidArgument,
            Code::AlreadyExists,
        ],
    )?;
    must_be_one(bench, "P24").await
}

pub(super) async fn same_tags(bench: &Bench) -> Check {
    let family = bench.first_family()?;
    let first = bench.create(&bench.wanted("P25", &family, &[])).await?;
    let second = bench.create(&bench.wanted("P25", &family, &[])).await?;
    must(first.id != second.id, || {
        format!("two keys gave the one reservation `{}`", first.id)
    })?;
    let made = bench.of_rule("P25").await?.len();
    must(made == 2, || {
        format!("there should be two reservations, and there are {made}")
    })
}

pub(super) async fn deadline(bench: &Bench) -> Check {
    let wanted = bench.wanted("P26", &bench.first_family()?, &[]);
    // It may be in time after all; the rule holds then, too.
    drop(bench.create_by(&bench.calls.within(SHORT), &wanted).await);
    bench.create(&wanted).await?;
    must_be_one(bench, "P26").await
}

pub(super) async fn cancelled(bench: &Bench) -> Check {
    let wanted = bench.wanted("P27", &bench.first_family()?, &[]);
    // Dropped on the way, so that the provider is told that nobody waits any more.
    drop(tokio::time::timeout(SHORT, bench.create(&wanted)).await);
    bench.create(&wanted).await?;
    must_be_one(bench, "P27").await
}

pub(super) async fn deleted(bench: &Bench) -> Check {
    let made = bench
        .create(&bench.wanted("P28", &bench.first_family()?, &[]))
        .await?;
    bench.calls.delete_reservation(&made.id).await?;
    let listed = bench.reservations().await?;
    must(find(&listed, &made.id).is_none(), || {
        format!("`{}` was deleted, and is in the list", made.id)
    })
}

pub(super) async fn gone(bench: &Bench) -> Check {
    let made = bench
        .create(&bench.wanted("P29", &bench.first_family()?, &[]))
        .await?;
    bench.calls.delete_reservation(&made.id).await?;
    for id in [made.id, uuid::Uuid::new_v4().to_string()] {
        bench.calls.delete_reservation(&id).await?;
    }
    Ok(())
}

pub(super) async fn family(bench: &Bench) -> Check {
    let offered = &bench.said.address_families;
    let others = ["IPv4", "IPv6", "IPv5"];
    for family in others
        .into_iter()
        .filter(|family| !offered.iter().any(|one| one == family))
    {
        must_refuse(
            &format!("CreateReservation of family {family}"),
            bench.create(&bench.wanted("P30", family, &[])).await,
            &[Code::InvalidArgument, Code::FailedPrecondition],
        )?;
    }
    let made = bench.of_rule("P30").await?;
    must(made.is_empty(), || {
        format!("it was refused, and made `{}`", made[0].id)
    })
}

pub(super) async fn other_tags(bench: &Bench) -> Check {
    let family = bench.first_family()?;
    let before = bench.create(&bench.wanted("P31", &family, &["before"])).await?;
    let tags = bench
        .wanted(
            "P31",
            &family,
            &["zulu last", "alpha first", "dup=1", "dup=1", "ünïcödé=✓"],
        )
        .tags;
    if !bench.said.replaces_tags {
        return must_refuse(
            "ReplaceTags without replaces_tags",
            bench.calls.replace_tags(&before.id, &tags).await,
            &[Code::Unimplemented],
        );
    }
    let expected = Reservation {
        tags: tags.clone(),
        ..before.clone()
    };
    for _ in 0..2 {
        let after = bench.calls.replace_tags(&before.id, &tags).await?;
        must(after.tags == tags, || {
            format!("given {tags:?}, it has {:?}", after.tags)
        })?;
        must(after == expected || is_pending(&before), || {
            format!("other tags made {after:?} of {before:?}")
        })?;
    }
    let listed = bench.reservations().await?;
    let row = find(&listed, &before.id)
        .ok_or_else(|| Stop::fail(format!("`{}` is not in the list any more", before.id)))?;
    // In which order they are listed is P21's.
    let sorted = |tags: &[String]| {
        let mut tags = tags.to_vec();
        tags.sort();
        tags
    };
    must(sorted(&row.tags) == sorted(&tags), || {
        format!("given {tags:?}, the list has {:?}", row.tags)
    })
}

pub(super) async fn tags_of_nothing(bench: &Bench) -> Check {
    if !bench.said.replaces_tags {
        return Err(Stop::skip("the provider does not say `replaces_tags`"));
    }
    let made = bench
        .create(&bench.wanted("P32", &bench.first_family()?, &[]))
        .await?;
    bench.delete(&made.id).await?;
    for id in [made.id, uuid::Uuid::new_v4().to_string()] {
        must_refuse(
            &format!("ReplaceTags of `{id}`"),
            bench.calls.replace_tags(&id, &made.tags).await,
            &[Code::NotFound],
        )?;
    }
    Ok(())
}
