//! What holds for every provider and every list.

use std::collections::{BTreeSet, HashSet};

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::future::join_all;
use groundplane_proto::provider::v1 as wire;
use groundplane_runtime::grpc::status::code_name;
use prost::Message;
use tonic::Code;

use super::super::bench::Bench;
use super::super::calls::{List, Refusal};
use super::super::raw::unary;
use super::{Check, Stop, must, must_refuse};
use crate::Capability;

/// Items of a list that are walked one by one; a longer one is walked in this many pages.
const WALK: usize = 100;
/// Rounds of a comparison that what comes and goes meanwhile may spoil.
const ROUNDS: usize = 3;

pub(super) async fn capabilities(bench: &Bench) -> Check {
    let again = bench.calls.capabilities().await?;
    let said = &bench.said;
    must(again == *said, || format!("it said {said:?}, then {again:?}"))?;
    let is_scheme = |text: &str| {
        let rest = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".+-".contains(&byte);
        text.starts_with(|first: char| first.is_ascii_lowercase()) && text.bytes().all(rest)
    };
    must(is_scheme(&said.name), || {
        format!("the name `{}` is not of the form [a-z][a-z0-9.+-]*", said.name)
    })?;
    for scheme in &said.provider_id_schemes {
        must(is_scheme(scheme), || {
            format!("`{scheme}` is not a scheme of provider ids")
        })?;
    }
    let known = Capability::ALL.into_iter().filter(|one| bench.offers(*one));
    must(known.count() > 0, || {
        "it offers none of machines, addresses, bgp, endpoint".to_owned()
    })?;
    for asked in &bench.options.capabilities {
        must(bench.offers(*asked), || {
            format!("it does not offer `{asked}`, which was asked for")
        })?;
    }
    for family in &said.address_families {
        must(["IPv4", "IPv6"].contains(&family.as_str()), || {
            format!("`{family}` is neither `IPv4` nor `IPv6`")
        })?;
    }
    must(
        !bench.offers(Capability::Addresses) || !said.address_families.is_empty(),
        || "it offers addresses, and address_families is empty".to_owned(),
    )?;
    must(
        !bench.offers(Capability::Endpoint) || said.calls_per_move > 0,
        || "it offers the endpoint, and calls_per_move is 0".to_owned(),
    )
}

/// A request with fields that no version of the contract has: a number and a text.
fn with_unknown(request: &impl Message) -> Bytes {
    let mut bytes = BytesMut::from(&request.encode_to_vec()[..]);
    // Field 18,000 is a number, field 18,001 a text: a key is the field's number and how it is encoded.
    for number in [18_000 << 3, 7, (18_001 << 3) | 2, 6] {
        prost::encoding::encode_varint(number, &mut bytes);
    }
    bytes.put_slice(b"future");
    bytes.freeze()
}

pub(super) async fn unknown_fields(bench: &Bench) -> Check {
    let mut asked = vec![(
        "CapabilityService/GetCapabilities",
        with_unknown(&wire::GetCapabilitiesRequest {}),
    )];
    for list in bench.lists() {
        asked.push(match list {
            List::Machines => (
                "MachineService/ListMachines",
                with_unknown(&wire::ListMachinesRequest::default()),
            ),
            List::Reservations => (
                "AddressService/ListReservations",
                with_unknown(&wire::ListReservationsRequest::default()),
            ),
            List::Sessions => (
                "BgpFabricService/ListSessions",
                with_unknown(&wire::ListSessionsRequest::default()),
            ),
        });
    }
    for (method, bytes) in asked {
        let path = format!("/groundplane.provider.v1.{method}");
        let answer = unary(bench.calls.channel(), &path, bench.calls.request(bytes)).await;
        if let Err(status) = answer {
            let code = code_name(status.code());
            return Err(Stop::fail(format!(
                "{method} with an unknown field answered {code}: {}",
                status.message()
            )));
        }
    }
    Ok(())
}

/// All ids of a list, by pages of `size`, and what is wrong with the pages.
async fn walk(bench: &Bench, list: List, size: u32) -> Result<Vec<String>, Stop> {
    let method = list.method();
    let (mut ids, mut tokens, mut totals) = (Vec::new(), HashSet::new(), BTreeSet::new());
    let mut token = String::new();
    loop {
        let page = bench.calls.page(list, size, &token).await?;
        let longest = usize::try_from(size).unwrap_or(usize::MAX);
        must(size == 0 || page.ids.len() <= longest, || {
            format!("{method}: a page of {} items, asked for {size}", page.ids.len())
        })?;
        must(!page.ids.is_empty() || page.next.is_empty(), || {
            format!("{method}: a page without items that is not the last")
        })?;
        ids.extend(page.ids);
        totals.extend((page.total != 0).then_some(page.total));
        if page.next.is_empty() {
            break;
        }
        must(tokens.insert(page.next.clone()), || {
            format!("{method}: the page token `{}` comes back", page.next)
        })?;
        token = page.next;
    }
    if size != 0 {
        let counted = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        must(totals.iter().all(|total| *total == counted), || {
            format!("{method}: total_size {totals:?}, and there are {counted}")
        })?;
    }
    Ok(ids)
}

fn needs_lists(bench: &Bench) -> Result<Vec<List>, Stop> {
    let lists = bench.lists();
    if lists.is_empty() {
        return Err(Stop::skip("nothing that is checked has a list"));
    }
    Ok(lists)
}

pub(super) async fn pages(bench: &Bench) -> Check {
    for list in needs_lists(bench)? {
        let mut round = 1;
        while let Err(stop) = compare(bench, list).await {
            // Something may have come or gone between the two.
            if round == ROUNDS {
                return Err(stop);
            }
            round += 1;
        }
    }
    Ok(())
}

async fn compare(bench: &Bench, list: List) -> Check {
    let whole: BTreeSet<_> = walk(bench, list, 0).await?.into_iter().collect();
    let size = u32::try_from(whole.len().div_ceil(WALK))
        .unwrap_or(u32::MAX)
        .max(1);
    let walked = walk(bench, list, size).await?;
    let by_page: BTreeSet<_> = walked.iter().cloned().collect();
    let method = list.method();
    must(by_page.len() == walked.len(), || {
        format!("{method}: an item is on two pages of {size}")
    })?;
    must(by_page == whole, || {
        format!(
            "{method}: pages of {size} have {} items, and long pages {}; only one has {}",
            by_page.len(),
            whole.len(),
            by_page
                .symmetric_difference(&whole)
                .take(3)
                .cloned()
                .collect::<Vec<_>>()
                .join(", ")
        )
    })
}

pub(super) async fn bad_token(bench: &Bench) -> Check {
    for list in needs_lists(bench)? {
        let token = format!("no such token {}", bench.run);
        let answer = bench.calls.page(list, 0, &token).await;
        must_refuse(list.method(), answer, &[Code::InvalidArgument])?;
    }
    Ok(())
}

pub(super) async fn at_once(bench: &Bench) -> Check {
    let read = || async {
        match bench.lists().first() {
            Some(list) => bench.calls.page(*list, 0, "").await.map(|page| {
                let ids: BTreeSet<_> = page.ids.into_iter().collect();
                format!("{ids:?}")
            }),
            None => bench.calls.capabilities().await.map(|said| format!("{said:?}")),
        }
    };
    let mut round = 1;
    loop {
        let answers: Result<BTreeSet<_>, Refusal> =
            join_all((0..8).map(|_| read())).await.into_iter().collect();
        if answers?.len() == 1 {
            return Ok(());
        }
        must(round < ROUNDS, || {
            "of eight answers at the same time, not all were the same".to_owned()
        })?;
        round += 1;
    }
}
