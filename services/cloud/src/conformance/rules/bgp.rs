//! BGP. What the contract cannot take back is made only where that was allowed.

use std::collections::BTreeSet;
use std::net::IpAddr;

use groundplane_core::Family;
use groundplane_proto::provider::v1::{ListNeighborsRequest, Neighbor, Session};
use tonic::Code;

use super::super::bench::Bench;
use super::{Check, Stop, must, must_refuse};

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];

fn needs_sessions(bench: &Bench) -> Check {
    if bench.said.needs_sessions {
        return Ok(());
    }
    Err(Stop::skip("the provider needs no sessions made"))
}

async fn list(bench: &Bench) -> Result<Vec<Session>, Stop> {
    let (mut all, mut token) = (Vec::new(), String::new());
    loop {
        let page = bench.calls.list_sessions(0, &token).await?;
        all.extend(page.sessions);
        if page.next_page_token.is_empty() || page.next_page_token == token {
            return Ok(all);
        }
        token = page.next_page_token;
    }
}

pub(super) async fn project(bench: &Bench) -> Check {
    let before = bench.calls.get_project().await?;
    if !before.enabled && !bench.options.permanent {
        return Err(Stop::skip("BGP is off; --permanent would switch it on"));
    }
    if bench.options.read_only {
        return Err(Stop::skip("it changes something, and nothing may be made"));
    }
    let mut told = Vec::new();
    for _ in 0..2 {
        let answer = bench.calls.enable_project().await?;
        told.push(
            answer
                .project
                .ok_or_else(|| Stop::fail("EnableProject answered without a project"))?,
        );
    }
    told.push(bench.calls.get_project().await?);
    for project in &told {
        must(project.enabled && project.local_asn != 0, || {
            format!("BGP should be on, with an AS number: {project:?}")
        })?;
        must(*project == told[0] || project.pending != told[0].pending, || {
            format!("it was {:?}, then {project:?}", told[0])
        })?;
    }
    must(!before.enabled || before.local_asn == told[0].local_asn, || {
        format!(
            "BGP was on, and its AS number went from {} to {}",
            before.local_asn, told[0].local_asn
        )
    })
}

/// Makes a session where there is none, where that is allowed: it stays.
async fn furnish(bench: &Bench) -> Result<Vec<Session>, Stop> {
    let all = list(bench).await?;
    if !all.is_empty() {
        return Ok(all);
    }
    if !bench.said.needs_sessions || !bench.options.permanent || bench.options.read_only {
        return Err(Stop::skip("there is no session; --permanent would make one"));
    }
    let machine = bench.machines(1).await?.remove(0);
    bench.calls.create_session(&machine, FAMILIES[0]).await?;
    list(bench).await
}

pub(super) async fn sessions(bench: &Bench) -> Check {
    let all = furnish(bench).await?;
    let mut seen = BTreeSet::new();
    for session in all {
        must(!session.id.is_empty() && seen.insert(session.id.clone()), || {
            format!("the session `{}` has no id, or is there twice", session.id)
        })?;
        must(bench.is_own(&session.provider_id), || {
            format!(
                "the session `{}` is of the machine `{}`",
                session.id, session.provider_id
            )
        })?;
        must(FAMILIES.contains(&session.family.as_str()), || {
            format!(
                "the session `{}` is of the family `{}`",
                session.id, session.family
            )
        })?;
    }
    Ok(())
}

pub(super) async fn again(bench: &Bench) -> Check {
    needs_sessions(bench)?;
    if bench.options.read_only {
        return Err(Stop::skip("it changes something, and nothing may be made"));
    }
    let own =
        |session: &Session| bench.is_own(&session.provider_id) && FAMILIES.contains(&session.family.as_str());
    let Some(session) = furnish(bench).await?.into_iter().find(own) else {
        return Err(Stop::skip("there is no session that is in order"));
    };
    let (machine, family) = (session.provider_id, session.family);
    let is_it = |session: &&Session| session.provider_id == machine && session.family == family;
    let mut ids = BTreeSet::new();
    for _ in 0..2 {
        let made = bench.calls.create_session(&machine, &family).await?.session;
        let made = made.ok_or_else(|| Stop::fail("CreateSession answered without a session"))?;
        must(is_it(&&made), || {
            format!("asked for {family} of {machine}, it answered {made:?}")
        })?;
        ids.insert(made.id);
    }
    let listed: BTreeSet<_> = list(bench)
        .await?
        .iter()
        .filter(is_it)
        .map(|session| session.id.clone())
        .collect();
    must(ids.len() == 1 && ids == listed, || {
        format!("CreateSession answered the sessions {ids:?}, and the list has {listed:?}")
    })
}

pub(super) async fn no_machine(bench: &Bench) -> Check {
    needs_sessions(bench)?;
    let id = bench.absent_machine();
    must_refuse(
        &format!("CreateSession for {id}"),
        bench.calls.create_session(&id, FAMILIES[0]).await,
        &[Code::NotFound],
    )
}

/// Whose? With what Kubernetes would know of it.
async fn question(bench: &Bench) -> Result<ListNeighborsRequest, Stop> {
    let provider_id = bench.machines(1).await?.remove(0);
    let mut question = ListNeighborsRequest {
        node: provider_id.rsplit('/').next().unwrap_or_default().to_owned(),
        provider_id,
        ..ListNeighborsRequest::default()
    };
    if bench.offers(crate::Capability::Machines) {
        let answer = bench.calls.get_machine(&question.provider_id).await?;
        if let Some(machine) = answer.machine {
            question.node = machine.hostname;
            question.node_addresses = machine
                .addresses
                .into_iter()
                .map(|row| row.address)
                .filter(|text| text.parse::<IpAddr>().is_ok())
                .collect();
        }
    }
    Ok(question)
}

pub(super) async fn neighbors(bench: &Bench) -> Check {
    let answer = bench.calls.list_neighbors(question(bench).await?).await?;
    if answer.neighbors.is_empty() {
        return Err(Stop::skip("the machine has no neighbors (yet)"));
    }
    let mut seen = BTreeSet::new();
    for neighbor in &answer.neighbors {
        check(neighbor)?;
        for address in &neighbor.peer_addresses {
            must(seen.insert(address.clone()), || {
                format!("{address} is there twice")
            })?;
        }
    }
    must(
        answer.private_network.is_empty()
            || answer.private_network.parse::<groundplane_core::Prefix>().is_ok(),
        || format!("the private network is `{}`", answer.private_network),
    )
}

fn check(neighbor: &Neighbor) -> Check {
    let who = neighbor.peer_addresses.join(", ");
    must(!neighbor.peer_addresses.is_empty(), || {
        "a neighbor without an address".to_owned()
    })?;
    must(neighbor.local_asn != 0 && neighbor.peer_asn != 0, || {
        format!(
            "{who} has the AS numbers {} and {}",
            neighbor.local_asn, neighbor.peer_asn
        )
    })?;
    must(u16::try_from(neighbor.port).is_ok(), || {
        format!("{who} has the port {}", neighbor.port)
    })?;
    let of_family = |text: &String| {
        text.parse::<IpAddr>()
            .is_ok_and(|address| Family::of(address).to_string() == neighbor.family)
    };
    let mut addresses = neighbor.peer_addresses.iter();
    must(addresses.all(of_family), || {
        format!("{who}: not addresses of the family `{}`", neighbor.family)
    })?;
    must(
        neighbor.local_address.is_empty() || of_family(&neighbor.local_address),
        || format!("{who} is spoken to from `{}`", neighbor.local_address),
    )
}

pub(super) async fn no_neighbors(bench: &Bench) -> Check {
    needs_sessions(bench)?;
    let id = bench.absent_machine();
    let question = ListNeighborsRequest {
        provider_id: id.clone(),
        node: "conformance".to_owned(),
        ..ListNeighborsRequest::default()
    };
    must_refuse(
        &format!("ListNeighbors of {id}"),
        bench.calls.list_neighbors(question).await,
        &[Code::NotFound],
    )
}
