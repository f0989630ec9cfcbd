//! The API endpoint, over HTTP to the cloud in a box.

use std::net::IpAddr;
use std::time::Duration;

use futures::future::join_all;
use groundplane_cloud::EndpointSelector;
use groundplane_core::ErrorKind;
use groundplane_proto::eip::v1 as eip;
use groundplane_runtime::grpc::RpcError;
use groundplane_sandbox::{
    Action, Assignment, AssignmentId, DeviceId, DeviceOptions, FaultRule, ReservationKind,
    ReservationOptions, StatusFault, most_holders,
};
use pretty_assertions::assert_eq;

use super::world::*;

const TAG: &str = "cluster-a-api";
const READ: (&str, &str) = ("GET", "/projects/{pid}/ips");
const REMOVE: (&str, &str) = ("DELETE", "/ips/{id}");
const ASSIGN: (&str, &str) = ("POST", "/devices/{id}/ips");

/// Three machines, and an endpoint that is told by its tag.
struct Scene {
    world: World,
    eip: Process,
    address: IpAddr,
    machines: [DeviceId; 3],
}

impl Scene {
    async fn new() -> Self {
        let world = World::new().await;
        let address = world
            .project
            .add_reservation(ReservationOptions::tagged([TAG, "by=hand"]))
            .address
            .unwrap();
        // Another one, which is not the endpoint.
        world
            .project
            .add_reservation(ReservationOptions::tagged(["cluster-a-api-old"]));
        let machines = ["a", "b", "c"].map(|name| world.project.add_device(DeviceOptions::named(name)));
        let eip = Self::process(&world).await;
        Self {
            world,
            eip,
            address,
            machines,
        }
    }

    async fn process(world: &World) -> Process {
        let tag = EndpointSelector::Tag(TAG.to_owned());
        world.process_with(Some(tag)).await
    }

    fn provider_id(&self, machine: usize) -> String {
        format!("equinixmetal://{}", self.machines[machine])
    }

    /// Gives it to a machine, as it was before.
    fn held_by(&self, machine: usize) -> AssignmentId {
        self.world.project.assign(self.machines[machine], self.address)
    }

    fn request(&self, to: &str, decided_on: Option<AssignmentId>) -> eip::MoveEndpointRequest {
        eip::MoveEndpointRequest {
            cluster: CLUSTER.to_owned(),
            address: self.address.to_string(),
            to: to.to_owned(),
            assignment_id: decided_on.map(|id| id.to_string()).unwrap_or_default(),
            request_id: String::new(),
        }
    }

    async fn move_to(
        &self,
        machine: usize,
        decided_on: Option<AssignmentId>,
    ) -> Result<eip::MoveEndpointResponse, RpcError> {
        let request = self.request(&self.provider_id(machine), decided_on);
        self.eip.move_endpoint(request).await
    }

    fn holders(&self) -> Vec<DeviceId> {
        let held = self.world.project.holders(self.address);
        held.into_iter().map(|row| row.device).collect()
    }

    fn fault(&self, (method, route): (&str, &str), action: Action) {
        self.world
            .project
            .fault(FaultRule::on(method, route, action).first(1));
    }

    fn calls(&self, (method, route): (&str, &str), since: u64) -> usize {
        self.world.project.journal().calls(since, method, route).len()
    }

    /// It never had two holders, and lost the first before it got the second.
    fn never_two(&self) {
        assert_eq!(most_holders(&self.world.project.holder_changes(self.address)), 1);
    }
}

fn told(error: &RpcError) -> (ErrorKind, &str) {
    (error.kind, &error.reason)
}

/// E69 (this service's part): the old assignment is removed first, by its id; exactly one at the end; three calls.
#[tokio::test]
async fn a_move_removes_the_old_assignment_then_makes_one() {
    let scene = Scene::new().await;
    let old = scene.held_by(0);
    let seen = scene.eip.get_endpoint().await.unwrap();
    assert_eq!(
        (seen.address, seen.holder, seen.assignment_id),
        (scene.address.to_string(), scene.provider_id(0), old.to_string())
    );
    assert_eq!((seen.other_assignments.len(), seen.calls_per_move), (0, 3));
    let mark = scene.world.project.journal().mark();
    let moved = scene.move_to(1, Some(old)).await.unwrap();
    assert_eq!((moved.calls, moved.unchanged), (3, false));
    assert!(moved.gap.is_some());
    assert_eq!(scene.holders(), [scene.machines[1]]);
    let changes: Vec<_> = scene
        .world
        .project
        .holder_changes(scene.address)
        .iter()
        .map(|change| (change.device, change.given))
        .collect();
    let [a, b, _] = scene.machines;
    assert_eq!(changes, [(a, true), (a, false), (b, true)]);
    let counts = [READ, REMOVE, ASSIGN].map(|route| scene.calls(route, mark));
    assert_eq!(counts, [1, 1, 1]);

    let again = scene.move_to(1, Some(old)).await.unwrap();
    assert_eq!(
        (again.assignment_id, again.unchanged, again.calls),
        (moved.assignment_id, true, 1)
    );
}

/// E67 (this service's part): nobody holds it, somebody gets it.
#[tokio::test]
async fn an_endpoint_that_nobody_holds_is_assigned() {
    let scene = Scene::new().await;
    let seen = scene.eip.get_endpoint().await.unwrap();
    assert_eq!((seen.holder.as_str(), seen.assignment_id.as_str()), ("", ""));
    let moved = scene.move_to(2, None).await.unwrap();
    assert_eq!((moved.calls, moved.gap, moved.unchanged), (2, None, false));
    assert_eq!(scene.holders(), [scene.machines[2]]);
}

#[tokio::test]
async fn the_ids_of_the_predecessor_are_the_same_machines() {
    let scene = Scene::new().await;
    let old = scene.held_by(0);
    let id = scene.machines[0].to_string();
    for to in [
        format!("packet://{id}"),
        id.clone(),
        format!("equinixmetal://{}", id.to_uppercase()),
    ] {
        let there = scene
            .eip
            .move_endpoint(scene.request(&to, Some(old)))
            .await
            .unwrap();
        assert!(there.unchanged, "{to}");
    }
    let error = scene
        .eip
        .move_endpoint(scene.request("aws:///x/i-1", Some(old)))
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert_eq!(scene.world.project.holders(scene.address)[0].id, old);
}

/// E78: two assignments are told, and nothing is touched.
#[tokio::test]
async fn two_holders_are_left_alone() {
    let scene = Scene::new().await;
    let first = scene.held_by(0);
    scene
        .world
        .project
        .assign_beside(scene.machines[1], scene.address);
    let seen = scene.eip.get_endpoint().await.unwrap();
    assert_eq!(
        (seen.holder, seen.other_assignments.len()),
        (scene.provider_id(0), 1)
    );
    assert_eq!(seen.other_assignments[0].holder, scene.provider_id(1));
    let mark = scene.world.project.journal().mark();
    for machine in 0..3 {
        let error = scene.move_to(machine, Some(first)).await.unwrap_err();
        assert_eq!(told(&error), (ErrorKind::Precondition, "ENDPOINT_SHARED"));
        assert!(error.message.contains(&scene.provider_id(1)), "{error}");
    }
    assert_eq!(scene.world.project.journal().writes(mark), []);
}

/// E79: no reservation carries the tag: said so, and Services get their addresses all the same.
#[tokio::test]
async fn a_missing_endpoint_is_told_and_the_rest_works() {
    let world = World::new().await;
    world
        .project
        .add_reservation(ReservationOptions::tagged(["cluster-a-ap"]));
    let eip = Scene::process(&world).await;
    let error = eip.get_endpoint().await.unwrap_err();
    assert_eq!(told(&error), (ErrorKind::NotFound, "ENDPOINT_NOT_FOUND"));
    assert!(error.message.contains(TAG), "{error}");
    eip.address("nginx").await.unwrap();
    let unset = world.process().await;
    let error = unset.get_endpoint().await.unwrap_err();
    assert_eq!(told(&error), (ErrorKind::Precondition, "ENDPOINT_NOT_CONFIGURED"));
}

#[tokio::test]
async fn what_is_not_one_address_is_no_endpoint() {
    let two = || {
        vec![
            ReservationOptions::tagged([TAG]),
            ReservationOptions::tagged([TAG]),
        ]
    };
    let block = || {
        vec![ReservationOptions {
            quantity: 4,
            ..ReservationOptions::tagged([TAG])
        }]
    };
    let pending = || {
        vec![ReservationOptions {
            pending: true,
            ..ReservationOptions::tagged([TAG])
        }]
    };
    let vrf = || {
        vec![ReservationOptions {
            kind: ReservationKind::Vrf,
            ..ReservationOptions::tagged([TAG])
        }]
    };
    for reservations in [two(), block(), pending(), vrf()] {
        let world = World::new().await;
        let made: Vec<_> = reservations
            .into_iter()
            .map(|options| world.project.add_reservation(options).id.to_string())
            .collect();
        let error = Scene::process(&world).await.get_endpoint().await.unwrap_err();
        assert_eq!(told(&error), (ErrorKind::Precondition, "ENDPOINT_AMBIGUOUS"));
        assert!(made.iter().all(|id| error.message.contains(id)), "{error}");
    }
}

#[tokio::test]
async fn of_two_processes_that_decide_at_once_one_moves_it() {
    let scene = Scene::new().await;
    for _ in 0..5 {
        let seen = scene.eip.get_endpoint().await.unwrap();
        let decided_on = seen.assignment_id.parse().ok();
        let other = Scene::process(&scene.world).await;
        let request = scene.request(&scene.provider_id(2), decided_on);
        let (first, second) = tokio::join!(scene.move_to(1, decided_on), other.move_endpoint(request));
        scene.never_two();
        let [holder] = scene.holders()[..] else {
            panic!("one holder")
        };
        let results = [(1, first), (2, second)];
        for (machine, result) in results {
            match result {
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(told(&error), (ErrorKind::Conflict, "ENDPOINT_CHANGED"));
                    assert_ne!(
                        holder, scene.machines[machine],
                        "who was told no does not have it"
                    );
                }
            }
        }
        let held = scene.world.project.holders(scene.address)[0].id;
        scene.move_to(0, Some(held)).await.unwrap();
    }
}

/// The cloud fails between removal and assignment, before or after what it was asked for.
#[tokio::test]
async fn a_move_is_finished_though_the_cloud_fails_within() {
    let actions = || {
        [
            Action::status(500),
            Action::status(429),
            Action::StatusAfter(StatusFault::new(502)),
            Action::DropBefore,
            Action::DropAfter,
            Action::HangAfter,
            Action::Hang,
            Action::HalfBody,
        ]
    };
    let cases = [REMOVE, ASSIGN]
        .into_iter()
        .flat_map(|route| actions().map(|action| (route, action)));
    join_all(cases.map(|(route, action)| async move {
        let case = format!("{route:?} {action:?}");
        let scene = Scene::new().await;
        let old = scene.held_by(0);
        scene.fault(route, action);
        let moved = scene.move_to(1, Some(old)).await;
        let moved = moved.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert!(!moved.unchanged, "{case}");
        assert_eq!(scene.holders(), [scene.machines[1]], "{case}");
        scene.never_two();
    }))
    .await;
}

/// A removal that was answered late is not sent again by the client: 404 would be taken for a lost race.
#[tokio::test]
async fn a_removal_is_sent_once_at_a_time() {
    let scene = Scene::new().await;
    let old = scene.held_by(0);
    let mark = scene.world.project.journal().mark();
    scene.fault(REMOVE, Action::DropAfter);
    let moved = scene.move_to(1, Some(old)).await.unwrap();
    assert!(!moved.unchanged);
    assert_eq!(scene.calls(REMOVE, mark), 1);
}

/// The process is killed between removal and assignment: another one finishes it, with the same request.
#[tokio::test]
async fn another_process_finishes_what_a_dead_one_began() {
    let scene = Scene::new().await;
    let old = scene.held_by(0);
    scene.world.project.unassign(old);
    let moved = Scene::process(&scene.world)
        .await
        .move_endpoint(scene.request(&scene.provider_id(1), Some(old)))
        .await
        .unwrap();
    assert!(!moved.unchanged);
    assert_eq!(scene.holders(), [scene.machines[1]]);
}

/// The caller is gone before the assignment was answered.
#[tokio::test]
async fn a_caller_that_leaves_does_not_leave_a_gap() {
    let scene = Scene::new().await;
    let old = scene.held_by(0);
    scene.fault(ASSIGN, Action::Hang);
    let project = &scene.world.project;
    let moved = async {
        let mut request = tonic::Request::new(scene.request(&scene.provider_id(1), Some(old)));
        request.set_timeout(Duration::from_millis(300));
        scene.eip.client.clone().move_endpoint(request).await.unwrap_err()
    };
    let is_there = |holders: &[Assignment]| holders.iter().any(|row| row.device == scene.machines[1]);
    let (error, _) = tokio::join!(moved, project.until_held(scene.address, is_there));
    assert_eq!(RpcError::from(error).kind, ErrorKind::Timeout);
    scene.never_two();
}

#[tokio::test]
async fn a_machine_that_is_not_there_leaves_it_with_its_holder() {
    let scene = Scene::new().await;
    let old = scene.held_by(0);
    assert!(scene.world.project.remove_device(scene.machines[1]));
    let error = scene.move_to(1, Some(old)).await.unwrap_err();
    assert_eq!(told(&error), (ErrorKind::NotFound, "MACHINE_NOT_FOUND"));
    assert_eq!(scene.holders(), [scene.machines[0]]);
    scene.never_two();
}

#[tokio::test]
async fn a_request_that_is_none_is_refused_with_its_field() {
    let scene = Scene::new().await;
    let good = scene.request(&scene.provider_id(0), None);
    let spoil = |change: fn(&mut eip::MoveEndpointRequest)| {
        let mut request = good.clone();
        change(&mut request);
        request
    };
    for (request, field) in [
        (spoil(|r| r.cluster.clear()), "cluster"),
        (spoil(|r| r.address = "203.0.113.9/32".to_owned()), "address"),
        (spoil(|r| r.address.clear()), "address"),
        (spoil(|r| r.to = "a b".to_owned()), "to"),
    ] {
        let error = scene.eip.move_endpoint(request).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.message.starts_with(field), "{error}");
    }
    let other = eip::MoveEndpointRequest {
        address: "192.0.2.1".to_owned(),
        ..good
    };
    let error = scene.eip.move_endpoint(other).await.unwrap_err();
    assert_eq!(told(&error), (ErrorKind::Conflict, "ENDPOINT_CHANGED"));
}
