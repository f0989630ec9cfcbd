//! Machines.

use std::collections::BTreeSet;
use std::net::IpAddr;

use groundplane_proto::instances::v1::{AddressType, Machine, PowerState};
use tonic::Code;

use super::super::bench::Bench;
use super::{Check, Stop, must, must_refuse};

/// Machines that are looked at one by one.
const LOOK: usize = 20;

async fn list(bench: &Bench) -> Result<Vec<Machine>, Stop> {
    let (mut all, mut token) = (Vec::new(), String::new());
    loop {
        let page = bench.calls.list_machines(0, &token).await?;
        all.extend(page.machines);
        if page.next_page_token.is_empty() || page.next_page_token == token {
            break;
        }
        token = page.next_page_token;
    }
    if all.is_empty() {
        return Err(Stop::skip("the provider has no machine"));
    }
    Ok(all)
}

pub(super) async fn once(bench: &Bench) -> Check {
    let mut seen = BTreeSet::new();
    for machine in list(bench).await? {
        let id = machine.provider_id;
        must(bench.is_own(&id), || {
            format!(
                "the provider id `{id}` has none of the provider's schemes ({})",
                bench.schemes().join(", ")
            )
        })?;
        must(id.len() <= 253 && !id.contains(char::is_whitespace), || {
            format!("the provider id `{id}` has blanks or more than 253 bytes")
        })?;
        must(seen.insert(id.clone()), || format!("`{id}` is in the list twice"))?;
    }
    Ok(())
}

pub(super) async fn same(bench: &Bench) -> Check {
    for listed in list(bench).await?.into_iter().take(LOOK) {
        let answer = bench.calls.get_machine(&listed.provider_id).await?;
        must(answer.machine.as_ref() == Some(&listed), || {
            format!(
                "the list says {listed:?}, and GetMachine {}",
                answer
                    .machine
                    .map_or_else(|| "nothing".to_owned(), |machine| format!("{machine:?}"))
            )
        })?;
    }
    Ok(())
}

pub(super) async fn absent(bench: &Bench) -> Check {
    let id = bench.absent_machine();
    must_refuse(
        &format!("GetMachine {id}"),
        bench.calls.get_machine(&id).await,
        &[Code::NotFound],
    )
}

pub(super) async fn whole(bench: &Bench) -> Check {
    for machine in list(bench).await? {
        let id = &machine.provider_id;
        must(!machine.hostname.is_empty(), || {
            format!("`{id}` has no host name")
        })?;
        let power = PowerState::try_from(machine.power);
        must(matches!(power, Ok(PowerState::On | PowerState::Off)), || {
            format!("`{id}` has the power state {}", machine.power)
        })?;
        for row in &machine.addresses {
            let fits = match AddressType::try_from(row.r#type) {
                Ok(AddressType::InternalIp | AddressType::ExternalIp) => {
                    row.address.parse::<IpAddr>().is_ok()
                }
                Ok(AddressType::Hostname | AddressType::InternalDns | AddressType::ExternalDns) => {
                    !row.address.is_empty()
                }
                Ok(AddressType::Unspecified) | Err(_) => false,
            };
            must(fits, || {
                format!("`{id}` has the address `{}` of type {}", row.address, row.r#type)
            })?;
        }
    }
    Ok(())
}
