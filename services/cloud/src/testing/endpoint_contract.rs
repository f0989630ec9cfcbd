//! What a cloud promises that can move the API endpoint.
#![allow(
    clippy::expect_used,
    reason = "a contract is a test: it panics where it is broken"
)]

use groundplane_core::ProviderId;

use crate::{CloudErrorKind, Endpoint, EndpointIps, EndpointSelector};

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
    let read = || async { ips.endpoint(selector).await.expect("read") };
    let Endpoint { address, assignments } = read().await;
    assert_eq!(assignments, [], "nobody holds it");
    for machine in machines {
        assert_eq!(
            ips.machine(machine).as_ref(),
            Some(machine),
            "as assignments have it"
        );
    }

    let error = ips
        .assign(address, absent)
        .await
        .expect_err("there is no such machine");
    assert_eq!(error.kind, CloudErrorKind::NotFound, "{error}");
    let first = ips.assign(address, machines[0]).await.expect("assign");
    assert_eq!(first.machine, *machines[0]);
    assert_eq!(
        read().await.assignments,
        vec![first.clone()],
        "the list says what the answer said"
    );

    let error = ips.assign(address, machines[1]).await.expect_err("it is held");
    assert_eq!(error.kind, CloudErrorKind::AlreadyExists, "{error}");
    assert_eq!(
        read().await.assignments,
        vec![first.clone()],
        "and stays where it is"
    );

    ips.unassign(&first.id).await.expect("unassign");
    assert_eq!(read().await.assignments, []);
    let error = ips.unassign(&first.id).await.expect_err("it is gone");
    assert_eq!(error.kind, CloudErrorKind::NotFound, "{error}");

    let again = ips.assign(address, machines[0]).await.expect("assign again");
    // A cloud that moves it in one step may call an assignment by its machine.
    assert!(
        ips.moves_atomically() || again.id != first.id,
        "an id never comes back"
    );
    let mut last = again;
    if ips.moves_atomically() {
        let moved = ips.reassign(address, machines[1]).await.expect("reassign");
        assert_eq!(moved.machine, *machines[1]);
        assert_ne!(moved.id, last.id);
        assert_eq!(read().await.assignments, vec![moved.clone()]);
        let error = ips
            .reassign(address, absent)
            .await
            .expect_err("there is no such machine");
        assert_eq!(error.kind, CloudErrorKind::NotFound, "{error}");
        assert_eq!(
            read().await.assignments,
            vec![moved.clone()],
            "and stays where it is"
        );
        last = moved;
    } else {
        let error = ips.reassign(address, machines[1]).await.expect_err("it cannot");
        assert_eq!(error.kind, CloudErrorKind::Refused, "{error}");
    }
    ips.unassign(&last.id).await.expect("put back");
    assert_eq!(read().await.assignments, []);
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
