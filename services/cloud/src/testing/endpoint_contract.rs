//! What a cloud promises that can move the API endpoint.
#![allow(
    clippy::expect_used,
    reason = "a contract is a test: it panics where it is broken"
)]

use groundplane_core::ProviderId;

use crate::{CloudErrorKind, Endpoint, EndpointAssignment, EndpointIps, EndpointSelector};

/// The endpoint that `selector` means is there, and nobody holds it; `missing` means none. `machines` are two, and `absent` is not
/// there, though it could be. Leaves the endpoint with nobody.
///
/// # Panics
/// Where the contract is broken.
pub async fn endpoint_ips_contract(
    ips: &dyn EndpointIps,
    selector: &EndpointSelector,
    missing: &EndpointSelector,
    machines: [&ProviderId; 2],
    absent: &ProviderId,
) {
    assert!(ips.calls_per_move() > 0);
    let error = ips
        .endpoint(missing)
        .await
        .expect_err("there is no such endpoint");
    assert_eq!(error.kind, CloudErrorKind::NotFound, "{error}");
    for machine in machines {
        assert_eq!(
            ips.machine(machine).as_ref(),
            Some(machine),
            "as assignments have it"
        );
    }
    let held = is_given_once(ips, selector, machines, absent).await;
    let held = moves_as_it_says(ips, selector, held, machines[1], absent).await;
    ips.unassign(&held.id).await.expect("put back");
    assert_eq!(holders(ips, selector).await, []);
}

async fn holders(ips: &dyn EndpointIps, selector: &EndpointSelector) -> Vec<EndpointAssignment> {
    ips.endpoint(selector).await.expect("read").assignments
}

/// To no machine that is not there, and to none while another has it. The first machine has it in the end.
async fn is_given_once(
    ips: &dyn EndpointIps,
    selector: &EndpointSelector,
    machines: [&ProviderId; 2],
    absent: &ProviderId,
) -> EndpointAssignment {
    let Endpoint { address, assignments } = ips.endpoint(selector).await.expect("read");
    assert_eq!(assignments, [], "nobody holds it");
    let error = ips
        .assign(address, absent)
        .await
        .expect_err("there is no such machine");
    assert_eq!(error.kind, CloudErrorKind::NotFound, "{error}");
    let first = ips.assign(address, machines[0]).await.expect("assign");
    assert_eq!(first.machine, *machines[0]);
    let alone = std::slice::from_ref(&first);
    assert_eq!(
        holders(ips, selector).await,
        alone,
        "the list says what the answer said"
    );

    let error = ips.assign(address, machines[1]).await.expect_err("it is held");
    assert_eq!(error.kind, CloudErrorKind::AlreadyExists, "{error}");
    assert_eq!(holders(ips, selector).await, alone, "and stays where it is");

    ips.unassign(&first.id).await.expect("unassign");
    assert_eq!(holders(ips, selector).await, []);
    let error = ips.unassign(&first.id).await.expect_err("it is gone");
    assert_eq!(error.kind, CloudErrorKind::NotFound, "{error}");

    let again = ips.assign(address, machines[0]).await.expect("assign again");
    // A cloud that moves it in one step may call an assignment by its machine.
    assert!(
        ips.moves_atomically() || again.id != first.id,
        "an id never comes back"
    );
    again
}

/// In one step to `machine`, or not at all. Gives the assignment that there is in the end.
async fn moves_as_it_says(
    ips: &dyn EndpointIps,
    selector: &EndpointSelector,
    held: EndpointAssignment,
    machine: &ProviderId,
    absent: &ProviderId,
) -> EndpointAssignment {
    let Endpoint { address, .. } = ips.endpoint(selector).await.expect("read");
    if !ips.moves_atomically() {
        let error = ips.reassign(address, machine).await.expect_err("it cannot");
        assert_eq!(error.kind, CloudErrorKind::Refused, "{error}");
        return held;
    }
    let moved = ips.reassign(address, machine).await.expect("reassign");
    assert_eq!(moved.machine, *machine);
    assert_ne!(moved.id, held.id);
    let alone = std::slice::from_ref(&moved);
    assert_eq!(holders(ips, selector).await, alone);
    let error = ips
        .reassign(address, absent)
        .await
        .expect_err("there is no such machine");
    assert_eq!(error.kind, CloudErrorKind::NotFound, "{error}");
    assert_eq!(holders(ips, selector).await, alone, "and stays where it is");
    moved
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeEndpoint;

    #[tokio::test]
    async fn the_fake_keeps_the_contract_in_both_flavours() {
        for atomic in [false, true] {
            let fake = FakeEndpoint::new("203.0.113.9".parse().unwrap(), atomic);
            let machines: [ProviderId; 2] = ["fake://a", "fake://b"].map(|id| id.parse().unwrap());
            for id in &machines {
                fake.add_machine(id);
            }
            endpoint_ips_contract(
                &fake,
                &EndpointSelector::Address(fake.address()),
                &EndpointSelector::Tag("none".to_owned()),
                [&machines[0], &machines[1]],
                &"fake://gone".parse().unwrap(),
            )
            .await;
        }
    }
}
