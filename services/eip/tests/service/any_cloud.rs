//! What no cloud in a box does: a person decides, an answer to a delete is lost. With a cloud in memory, which is no Equinix Metal.

use groundplane_cloud::testing::{FakeCloud, Operation};
use groundplane_cloud::{CloudError, CloudErrorKind, ReservationState};
use groundplane_core::ErrorKind;
use groundplane_proto::eip::v1 as eip;
use groundplane_runtime::Context;
use pretty_assertions::assert_eq;

use super::world::*;

async fn process(cloud: &FakeCloud) -> Process {
    Process::start(cloud.cloud(), Context::new()).await
}

/// The Service `default/nginx`, whose caller knows that something has changed.
fn anew() -> eip::EnsureAddressRequest {
    eip::EnsureAddressRequest {
        fresh: true,
        ..ask(owner(CLUSTER, "nginx"), "")
    }
}

#[tokio::test]
async fn an_address_that_waits_for_a_person_is_pending_and_then_comes() {
    let cloud = FakeCloud::new();
    cloud.set_pending(true);
    let eip = process(&cloud).await;
    let waiting = eip.address("nginx").await.unwrap();
    assert_eq!(
        (waiting.state(), waiting.prefix.as_str()),
        (eip::State::Pending, "")
    );
    assert_eq!(
        eip.ensure(anew()).await.unwrap().addresses,
        std::slice::from_ref(&waiting)
    );
    cloud.change_reservations(|reservations| {
        reservations[0].prefix = Some("198.18.0.7/32".parse().unwrap());
        reservations[0].state = ReservationState::Ready;
    });
    let [given] = &eip.ensure(anew()).await.unwrap().addresses[..] else {
        panic!("one address")
    };
    assert_eq!(
        (given.state(), given.prefix.as_str(), given.origin.as_str()),
        (eip::State::Ready, "198.18.0.7/32", waiting.origin.as_str())
    );
    assert_eq!(cloud.calls(Operation::CreateReservation), 1);
}

#[tokio::test]
async fn an_address_that_a_person_denied_is_not_asked_for_again() {
    let cloud = FakeCloud::new();
    cloud.set_pending(true);
    let eip = process(&cloud).await;
    let waiting = eip.address("nginx").await.unwrap();
    cloud.change_reservations(|reservations| reservations[0].state = ReservationState::Denied);
    let error = eip.ensure(anew()).await.unwrap_err();
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorKind::Precondition, "RESERVATION_DENIED")
    );
    assert_eq!(error.metadata["reservation"], waiting.origin);
    assert_eq!(cloud.calls(Operation::CreateReservation), 1);
}

/// E40 (part): a release that was done, and whose answer was lost, is done again without an error and without harm.
#[tokio::test]
async fn a_release_whose_answer_was_lost_is_safe_to_repeat() {
    let cloud = FakeCloud::new();
    let eip = process(&cloud).await;
    let other = eip.address("other").await.unwrap();
    eip.address("nginx").await.unwrap();
    cloud.lose_answer(Operation::DeleteReservation);
    let error = eip.release(owner(CLUSTER, "nginx")).await.unwrap_err();
    assert!(
        error.kind.is_retryable() || error.kind == ErrorKind::Timeout,
        "{error:?}"
    );
    assert_eq!(eip.release(owner(CLUSTER, "nginx")).await.unwrap(), []);
    let left: Vec<_> = cloud.reservations().into_iter().map(|row| row.id).collect();
    assert_eq!(left, [other.origin]);
}

/// A duplicate that cannot be deleted does not keep its owner from the address, and is tried again.
#[tokio::test]
async fn a_duplicate_that_stays_is_settled_by_a_later_call() {
    let cloud = FakeCloud::new();
    let eip = process(&cloud).await;
    let address = eip.address("nginx").await.unwrap();
    cloud.change_reservations(|reservations| {
        let mut twin = reservations[0].clone();
        twin.id = "twin".to_owned();
        twin.prefix = Some("198.18.0.99/32".parse().unwrap());
        reservations.push(twin);
    });
    let denied = CloudError::new(CloudErrorKind::Denied, "delete reservation", "not now");
    cloud.fail(Operation::DeleteReservation, denied);
    for left in [2, 1] {
        assert_eq!(
            eip.ensure(anew()).await.unwrap().addresses,
            std::slice::from_ref(&address)
        );
        assert_eq!(cloud.reservations().len(), left);
    }
}
