//! An address that moves between machines.

use std::time::Duration;

use futures::future::join;
use groundplane_proto::provider::v1::get_endpoint_request::Selector;
use tonic::Code;

use super::super::bench::Bench;
use super::{Check, Stop, must, must_refuse};
use crate::Capability;

/// Of a block that was withdrawn from use (RFC 7526): nobody reserves it.
const NOBODYS: &str = "192.88.99.254";
/// Too short for anything to be done and answered, long enough for it to be begun.
const SHORT: Duration = Duration::from_millis(1);

/// `machine` holds the address, and nobody else.
async fn must_hold(bench: &Bench, address: &str, machine: &str) -> Check {
    let held = bench.holders(address).await?;
    must(held.len() == 1 && held[0].provider_id == machine, || {
        format!("{address} should be held by {machine} alone, and is by {held:?}")
    })
}

pub(super) async fn found(bench: &Bench) -> Check {
    let address = bench.address("P50").await?;
    let mut selectors = vec![Selector::Address(address.text.clone())];
    selectors.extend(address.tag.map(Selector::Tag));
    for selector in selectors {
        let found = bench.calls.get_endpoint(selector.clone()).await?;
        must(found.address == address.text, || {
            format!(
                "by {selector:?} it found `{}`, not {}",
                found.address, address.text
            )
        })?;
        must(found.assignments.is_empty(), || {
            format!(
                "nobody was given {}, and it is held: {:?}",
                address.text, found.assignments
            )
        })?;
    }
    Ok(())
}

pub(super) async fn missing(bench: &Bench) -> Check {
    let tag = Selector::Tag(format!("nobody={}", bench.run));
    for selector in [tag, Selector::Address(NOBODYS.to_owned())] {
        must_refuse(
            &format!("GetEndpoint {selector:?}"),
            bench.calls.get_endpoint(selector).await,
            &[Code::NotFound],
        )?;
    }
    Ok(())
}

pub(super) async fn ambiguous(bench: &Bench) -> Check {
    if !bench.uses(Capability::Addresses) {
        return Err(Stop::skip(
            "needs two reservations, and `addresses` is not there to make them",
        ));
    }
    let (tag, family) = (format!("endpoint={}-P52", bench.run), bench.first_family()?);
    for _ in 0..2 {
        bench.create(&bench.wanted("P52", &family, &[&tag])).await?;
    }
    must_refuse(
        "GetEndpoint by a tag of two",
        bench.calls.get_endpoint(Selector::Tag(tag)).await,
        &[Code::FailedPrecondition],
    )
}

pub(super) async fn assigned(bench: &Bench) -> Check {
    let (address, machine) = (
        bench.address("P53").await?.text,
        bench.machines(1).await?.remove(0),
    );
    let made = bench.assign(&address, &machine).await?;
    must(!made.id.is_empty() && made.provider_id == machine, || {
        format!("assigned to {machine}, it answered {made:?}")
    })?;
    must_hold(bench, &address, &machine).await?;
    let held = bench.holders(&address).await?;
    must(held[0].id == made.id, || {
        format!(
            "Assign answered the id `{}`, and GetEndpoint `{}`",
            made.id, held[0].id
        )
    })
}

pub(super) async fn again(bench: &Bench) -> Check {
    let (address, machine) = (
        bench.address("P54").await?.text,
        bench.machines(1).await?.remove(0),
    );
    let first = bench.assign(&address, &machine).await?;
    let second = bench.assign(&address, &machine).await?;
    must(first.id == second.id, || {
        format!(
            "the first call made the assignment `{}`, the second `{}`",
            first.id, second.id
        )
    })?;
    must_hold(bench, &address, &machine).await
}

pub(super) async fn held(bench: &Bench) -> Check {
    let [one, two] = bench.two_machines().await?;
    let address = bench.address("P55").await?.text;
    bench.assign(&address, &one).await?;
    must_refuse(
        "Assign of a held address",
        bench.assign(&address, &two).await,
        &[Code::AlreadyExists],
    )?;
    must_hold(bench, &address, &one).await
}

pub(super) async fn race(bench: &Bench) -> Check {
    let [one, two] = bench.two_machines().await?;
    let address = bench.address("P56").await?.text;
    let (first, second) = join(bench.assign(&address, &one), bench.assign(&address, &two)).await;
    let winner = match (&first, &second) {
        (Ok(_), Err(refusal)) if refusal.code == Code::AlreadyExists => one,
        (Err(refusal), Ok(_)) if refusal.code == Code::AlreadyExists => two,
        _ => {
            return Err(Stop::fail(format!(
                "one should succeed and one be ALREADY_EXISTS; they were {first:?} and {second:?}"
            )));
        }
    };
    must_hold(bench, &address, &winner).await
}

pub(super) async fn unassigned(bench: &Bench) -> Check {
    let (address, machine) = (
        bench.address("P57").await?.text,
        bench.machines(1).await?.remove(0),
    );
    let made = bench.assign(&address, &machine).await?;
    bench.calls.unassign(&made.id).await?;
    let held = bench.holders(&address).await?;
    must(held.is_empty(), || {
        format!("it was taken away, and is held: {held:?}")
    })?;
    must_refuse(
        "the second Unassign",
        bench.calls.unassign(&made.id).await,
        &[Code::NotFound],
    )
}

pub(super) async fn stale(bench: &Bench) -> Check {
    let (address, machine) = (
        bench.address("P58").await?.text,
        bench.machines(1).await?.remove(0),
    );
    let old = bench.assign(&address, &machine).await?;
    bench.calls.unassign(&old.id).await?;
    let new = bench.assign(&address, &machine).await?;
    must(new.id != old.id, || format!("the id `{}` was used again", old.id))?;
    must_refuse(
        "Unassign of the old assignment",
        bench.calls.unassign(&old.id).await,
        &[Code::NotFound],
    )?;
    must_hold(bench, &address, &machine).await
}

pub(super) async fn nowhere(bench: &Bench) -> Check {
    let address = bench.address("P59").await?.text;
    let absent = bench.absent_machine();
    must_refuse(
        &format!("Assign to {absent}"),
        bench.assign(&address, &absent).await,
        &[Code::NotFound],
    )?;
    let machine = bench.machines(1).await?.remove(0);
    must_refuse(
        &format!("Assign of {NOBODYS}"),
        bench.calls.assign(NOBODYS, &machine).await,
        &[Code::NotFound],
    )
}

pub(super) async fn moved(bench: &Bench) -> Check {
    let machines = bench.machines(2).await?;
    let address = bench.address("P60").await?.text;
    if !bench.said.moves_atomically {
        return must_refuse(
            "Reassign without moves_atomically",
            bench.reassign(&address, &machines[0]).await,
            &[Code::Unimplemented],
        );
    }
    let first = bench.assign(&address, &machines[0]).await?;
    let same = bench.reassign(&address, &machines[0]).await?;
    must(same.id == first.id, || {
        format!("Reassign to the holder made `{}` of `{}`", same.id, first.id)
    })?;
    must_hold(bench, &address, &machines[0]).await?;
    let Some(other) = machines.get(1) else {
        return Ok(());
    };
    let moved = bench.reassign(&address, other).await?;
    must(moved.id != first.id && moved.provider_id == *other, || {
        format!("moved to {other}, it answered {moved:?}, and before {first:?}")
    })?;
    must_hold(bench, &address, other).await?;
    must_refuse(
        "Unassign of the assignment before",
        bench.calls.unassign(&first.id).await,
        &[Code::NotFound],
    )?;
    must_hold(bench, &address, other).await
}

pub(super) async fn deadline(bench: &Bench) -> Check {
    let (address, machine) = (
        bench.address("P61").await?.text,
        bench.machines(1).await?.remove(0),
    );
    let short = bench.calls.within(SHORT);
    // Noted as assigned before it is sent, as every Assign; it may be in time after all.
    bench.will_assign(&address);
    drop(short.assign(&address, &machine).await);
    bench.assign(&address, &machine).await?;
    must_hold(bench, &address, &machine).await
}
