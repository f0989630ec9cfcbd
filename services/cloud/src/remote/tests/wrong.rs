//! A provider that answers wrongly, late, twice, with what we do not know, or not at all: never absence, and clear words.

mod tags;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use groundplane_core::{Family, Owner};
use groundplane_proto::instances::v1 as instances;
use groundplane_proto::provider::v1 as wire;
use groundplane_runtime::Context;
use groundplane_runtime::grpc::{Listen, MemoryListener, Server, Target, channel, memory};
use parking_lot::Mutex;
use pretty_assertions::assert_eq;
use prost::Message;
use tonic::{Code, Status};

use super::super::{CallMetrics, Remote};
use crate::config::{Capability, RemoteConfig};
use crate::testing::loopback::{Passing, tap};
use crate::{
    BgpFabric as _, CloudError, CloudErrorKind, ElasticIps, EndpointIps as _, EndpointSelector, Inventory,
    MachineSource, NewReservation, Placement, PowerState, ReservationState, keep,
};

type Answer = Result<Bytes, Status>;

/// A provider that says what it is told to, behind the driver.
struct Bench {
    remote: Remote,
    context: Context,
    /// What was asked, in order.
    asked: Arc<Mutex<Vec<(String, Bytes)>>>,
}

impl Bench {
    /// Every capability is offered; the other calls are answered by `script`: the method, and how often it was called before.
    async fn new(script: impl Fn(&str, usize) -> Answer + Send + Sync + 'static) -> Self {
        Self::over(move |method, times| {
            if method == "GetCapabilities" {
                return Ok(write(&capabilities()));
            }
            script(method, times)
        })
        .await
    }

    async fn over(script: impl Fn(&str, usize) -> Answer + Send + Sync + 'static) -> Self {
        let (listener, connector) = memory();
        let bench = Self::away(&Target::Memory(connector), &RemoteConfig::default());
        bench.serve(listener, script).await;
        bench
    }

    /// Nobody listens yet.
    fn away(target: &Target, config: &RemoteConfig) -> Self {
        let context = Context::new();
        let metrics = context.metrics.register(CallMetrics::register);
        let remote = Remote::new(config, target, None, metrics).unwrap();
        Self {
            remote,
            context,
            asked: Arc::default(),
        }
    }

    async fn serve(
        &self,
        listener: MemoryListener,
        script: impl Fn(&str, usize) -> Answer + Send + Sync + 'static,
    ) {
        let script = Arc::new(script);
        let asked = Arc::clone(&self.asked);
        // It answers everything itself; nobody is behind it.
        let nobody = channel(&Target::Memory(memory().1), None).unwrap();
        let routes = tap(&nobody, move |call: Passing| -> BoxFuture<'static, Answer> {
            let (script, asked) = (Arc::clone(&script), Arc::clone(&asked));
            Box::pin(async move {
                let times = {
                    let mut asked = asked.lock();
                    let times = asked.iter().filter(|(method, _)| *method == call.method).count();
                    asked.push((call.method.clone(), call.request.clone()));
                    times
                };
                let answer = script(&call.method, times);
                if matches!(&answer, Err(status) if status.code() == Code::Cancelled) {
                    std::future::pending::<()>().await;
                }
                answer
            })
        });
        Server::new("provider", &self.context)
            .listen(Listen::Memory(listener))
            .routes(routes)
            .start()
            .await
            .unwrap();
    }

    fn calls(&self, method: &str) -> usize {
        self.asked
            .lock()
            .iter()
            .filter(|(asked, _)| asked == method)
            .count()
    }

    async fn machines(&self) -> Result<Vec<crate::Machine>, CloudError> {
        MachineSource::list(&self.remote).await
    }

    async fn reservations(&self) -> Result<Vec<crate::Reservation>, CloudError> {
        ElasticIps::list(&self.remote).await
    }
}

fn write(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

fn capabilities() -> wire::GetCapabilitiesResponse {
    wire::GetCapabilitiesResponse {
        name: "acme".to_owned(),
        // And one that we do not know.
        capabilities: vec![1, 2, 3, 4, 99],
        calls_per_move: 1,
        proves_absence: true,
        address_families: vec!["IPv4".to_owned(), "IPv9".to_owned()],
        needs_sessions: true,
        moves_atomically: true,
        replaces_tags: true,
        ..wire::GetCapabilitiesResponse::default()
    }
}

fn machine(id: &str) -> instances::Machine {
    instances::Machine {
        provider_id: id.to_owned(),
        hostname: "m".to_owned(),
        power: 1,
        ..instances::Machine::default()
    }
}

#[allow(clippy::unnecessary_wraps, reason = "an answer among others that are errors")]
fn machines(ids: &[&str], next: &str, total_size: u32) -> Answer {
    Ok(write(&wire::ListMachinesResponse {
        machines: ids.iter().map(|id| machine(id)).collect(),
        next_page_token: next.to_owned(),
        total_size,
    }))
}

fn reservation(change: impl FnOnce(&mut wire::Reservation)) -> wire::Reservation {
    let mut row = wire::Reservation {
        id: "r1".to_owned(),
        prefix: "192.0.2.1/32".to_owned(),
        tags: vec!["a".to_owned()],
        ..wire::Reservation::default()
    };
    change(&mut row);
    row
}

#[allow(clippy::unnecessary_wraps, reason = "an answer among others that are errors")]
fn reservations(row: wire::Reservation) -> Answer {
    Ok(write(&wire::ListReservationsResponse {
        reservations: vec![row],
        ..wire::ListReservationsResponse::default()
    }))
}

fn wanted() -> NewReservation {
    NewReservation {
        family: Family::V4,
        tags: vec!["a".to_owned()],
        placement: Placement::default(),
    }
}

/// The error of a list that a provider answers thus.
async fn list_error(script: impl Fn(&str, usize) -> Answer + Send + Sync + 'static) -> CloudError {
    Bench::new(script).await.machines().await.unwrap_err()
}

#[tokio::test]
async fn a_list_that_is_not_in_order_is_no_list() {
    let cases: Vec<(&str, CloudError)> = vec![
        (
            "the page token repeats itself",
            list_error(|_, times| machines(&[&format!("acme://{times}")], "again", 0)).await,
        ),
        (
            "the list changed its length from 3 to 2",
            list_error(|_, times| match times % 2 {
                0 => machines(&["acme://a"], "next", 3),
                _ => machines(&["acme://b"], "", 2),
            })
            .await,
        ),
        (
            "the list has 1 items and should have 3",
            list_error(|_, _| machines(&["acme://a"], "", 3)).await,
        ),
        (
            "`acme://a` is in the list twice",
            list_error(|_, _| machines(&["acme://a", "acme://a"], "", 0)).await,
        ),
        (
            "a page without items that is not the last",
            list_error(|_, times| machines(&[], &times.to_string(), 0)).await,
        ),
        (
            "`other://a` has none of the provider's own schemes (acme)",
            list_error(|_, _| machines(&["other://a"], "", 0)).await,
        ),
        (
            "the provider id `a` is not of the form scheme://id",
            list_error(|_, _| machines(&["a"], "", 0)).await,
        ),
        (
            "an item without an id",
            list_error(|_, _| machines(&[""], "", 0)).await,
        ),
    ];
    for (says, error) in cases {
        assert_eq!(error.kind, CloudErrorKind::Unavailable, "{error}");
        assert!(error.message.contains(says), "{error}, and not: {says}");
    }
}

#[tokio::test]
async fn a_list_that_cannot_be_gone_on_with_is_begun_again() {
    let bench = Bench::new(|_, times| match times {
        0 | 2 => machines(&["acme://a"], "next", 0),
        1 => Err(Status::aborted("it changed")),
        _ => machines(&["acme://b"], "", 0),
    })
    .await;
    assert_eq!(bench.machines().await.unwrap().len(), 2);
    assert_eq!(bench.calls("ListMachines"), 4);
    let error = list_error(|_, _| Err(Status::aborted("it changed"))).await;
    assert_eq!(error.kind, CloudErrorKind::Unavailable);
}

/// A provider that says `NOT_FOUND` to a list does not say that there is nothing.
#[tokio::test]
async fn only_what_was_looked_for_is_ever_absent() {
    let bench = Bench::new(|_, _| Err(Status::not_found("no"))).await;
    assert_eq!(bench.machines().await.unwrap_err().kind, CloudErrorKind::Refused);
    assert_eq!(
        bench.reservations().await.unwrap_err().kind,
        CloudErrorKind::Refused
    );
    assert_eq!(
        bench.remote.sessions().await.unwrap_err().kind,
        CloudErrorKind::Refused
    );
    assert_eq!(
        bench.remote.project().await.unwrap_err().kind,
        CloudErrorKind::Refused
    );
    let id = "acme://a".parse().unwrap();
    assert_eq!(
        bench.remote.get(&id).await.unwrap_err().kind,
        CloudErrorKind::NotFound
    );
    let foreign = "other://a".parse().unwrap();
    assert_eq!(
        bench.remote.get(&foreign).await.unwrap_err().kind,
        CloudErrorKind::Refused
    );
    assert_eq!(bench.calls("GetMachine"), 1, "a foreign machine is not asked for");
}

#[tokio::test]
async fn an_answer_about_another_is_no_answer() {
    let bench = Bench::new(|method, times| match (method, times) {
        ("GetMachine", 0) => Ok(write(&wire::GetMachineResponse {
            machine: Some(machine("acme://b")),
        })),
        ("GetEndpoint", _) => Ok(write(&wire::GetEndpointResponse {
            address: "192.0.2.9".to_owned(),
            assignments: Vec::new(),
        })),
        ("Assign", _) => Ok(write(&wire::AssignResponse {
            assignment: Some(wire::Assignment {
                id: "1".to_owned(),
                provider_id: "acme://b".to_owned(),
                address: String::new(),
            }),
        })),
        _ => Ok(Bytes::new()),
    })
    .await;
    let (id, address) = ("acme://a".parse().unwrap(), "192.0.2.1".parse().unwrap());
    let selector = EndpointSelector::Address(address);
    let errors = [
        bench.remote.get(&id).await.unwrap_err(),
        bench.remote.get(&id).await.unwrap_err(),
        bench.remote.endpoint(&selector).await.unwrap_err(),
        bench.remote.assign(address, &id).await.unwrap_err(),
        bench.remote.reassign(address, &id).await.unwrap_err(),
        bench.remote.create(&wanted()).await.unwrap_err(),
        bench.remote.create_session(&id, Family::V4).await.unwrap_err(),
        bench.remote.enable().await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind, CloudErrorKind::Unavailable, "{error}");
        assert!(
            error.message.contains("the provider's answer is wrong"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn values_that_we_do_not_know_change_nothing() {
    let bench = Bench::new(|method, _| match method {
        "ListMachines" => Ok(write(&wire::ListMachinesResponse {
            machines: vec![instances::Machine {
                power: 77,
                addresses: vec![
                    instances::MachineAddress {
                        r#type: 77,
                        address: "x".to_owned(),
                    },
                    instances::MachineAddress {
                        r#type: 2,
                        address: "10.0.0.1".to_owned(),
                    },
                ],
                ..machine("acme://a")
            }],
            ..wire::ListMachinesResponse::default()
        })),
        _ => reservations(reservation(|row| row.state = 77)),
    })
    .await;
    let found = bench.machines().await.unwrap();
    assert_eq!((found[0].power, found[0].addresses.len()), (PowerState::On, 1));
    let found = bench.reservations().await.unwrap();
    assert_eq!(found[0].state, ReservationState::Pending);
    assert!(bench.remote.supports(Family::V4) && !bench.remote.supports(Family::V6));
}

#[tokio::test]
async fn a_prefix_that_cannot_be_is_named() {
    let cases: [(&str, &str); 6] = [
        ("", "`r1` is ready and has no prefix"),
        ("192.0.2.1", "`192.0.2.1` of reservation `r1`: it has no length"),
        ("192.0.2.1/33", "`192.0.2.1/33` of reservation `r1`"),
        ("192.0.2.1/24", "`192.0.2.1/24` of reservation `r1`"),
        ("x/32", "`x/32` of reservation `r1`: not an address"),
        ("192.0.2.1/x", "`192.0.2.1/x` of reservation `r1`: not a length"),
    ];
    for (prefix, says) in cases {
        let row = reservation(|row| prefix.clone_into(&mut row.prefix));
        let error = Bench::new(move |_, _| reservations(row.clone()))
            .await
            .reservations()
            .await
            .unwrap_err();
        assert_eq!(error.kind, CloudErrorKind::Unavailable);
        assert!(error.message.contains(says), "{error}, and not: {says}");
    }
    let row = reservation(|row| {
        row.prefix.clear();
        row.pending = true;
    });
    let found = Bench::new(move |_, _| reservations(row.clone()))
        .await
        .reservations()
        .await
        .unwrap();
    assert_eq!(
        (found[0].state, found[0].prefix),
        (ReservationState::Pending, None)
    );
}

/// Nobody would find a reservation again whose tags are not those that were given.
#[tokio::test]
async fn a_new_reservation_must_be_what_was_asked_for() {
    let wrong: [fn(&mut wire::Reservation); 3] = [
        |row| row.tags.push("b".to_owned()),
        |row| "2001:db8::1/128".clone_into(&mut row.prefix),
        |row| "192.0.2.0/29".clone_into(&mut row.prefix),
    ];
    for change in wrong {
        let bench = Bench::new(move |_, _| {
            Ok(write(&wire::CreateReservationResponse {
                reservation: Some(reservation(change)),
            }))
        })
        .await;
        let error = bench.remote.create(&wanted()).await.unwrap_err();
        assert!(
            error.is(CloudErrorKind::Unavailable) && error.message.contains("`r1`"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn what_may_be_repeated_is_and_with_the_same_key() {
    let bench = Bench::new(|method, times| match (method, times) {
        ("CreateReservation", 0) => Err(Status::unavailable("a moment")),
        ("CreateReservation", _) => Ok(write(&wire::CreateReservationResponse {
            reservation: Some(reservation(|_| {})),
        })),
        _ => Err(Status::unavailable("a moment")),
    })
    .await;
    bench.remote.create(&wanted()).await.unwrap();
    bench.remote.create(&wanted()).await.unwrap();
    let keys: Vec<_> = bench
        .asked
        .lock()
        .iter()
        .filter(|(method, _)| method == "CreateReservation")
        .map(|(_, bytes)| {
            wire::CreateReservationRequest::decode(bytes.clone())
                .unwrap()
                .idempotency_key
        })
        .collect();
    assert_eq!(keys.len(), 3);
    assert_eq!(keys[0], keys[1], "the same reservation, the same key");
    assert_ne!(keys[1], keys[2], "another reservation, another key");
    let (id, address) = ("acme://a".parse().unwrap(), "192.0.2.1".parse().unwrap());
    bench.remote.assign(address, &id).await.unwrap_err();
    bench.remote.unassign("1").await.unwrap_err();
    bench.remote.reassign(address, &id).await.unwrap_err();
    for method in ["Assign", "Unassign", "Reassign"] {
        assert_eq!(bench.calls(method), 1, "{method} is sent once");
    }
}

#[tokio::test]
async fn a_provider_that_hangs_is_a_timeout_and_is_asked_what_it_is_again() {
    let (listener, connector) = memory();
    let config = RemoteConfig {
        request_timeout: Duration::from_millis(100),
        ..RemoteConfig::default()
    };
    let bench = Bench::away(&Target::Memory(connector), &config);
    bench
        .serve(listener, |method, times| match (method, times) {
            ("GetCapabilities", _) => Ok(write(&capabilities())),
            // The script never answers this.
            (_, 0) => Err(Status::cancelled("")),
            _ => machines(&["acme://a"], "", 1),
        })
        .await;
    let error = bench.machines().await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Timeout, "{error}");
    assert_eq!(bench.machines().await.unwrap().len(), 1);
    assert_eq!(
        bench.calls("GetCapabilities"),
        2,
        "another may listen there by now"
    );
    bench.machines().await.unwrap();
    assert_eq!(bench.calls("GetCapabilities"), 2, "nothing was lost");
}

#[tokio::test]
async fn what_is_not_offered_is_refused_with_the_way_out_until_it_is() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let bench = Bench::over(move |method, _| match method {
        "GetCapabilities" => {
            let mut said = capabilities();
            if count.fetch_add(1, Ordering::Relaxed) == 0 {
                said.capabilities = vec![1, 4];
            }
            Ok(write(&said))
        }
        "ListMachines" => Err(Status::internal("a defect")),
        _ => reservations(reservation(|_| {})),
    })
    .await;
    let error = bench.reservations().await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Refused);
    assert_eq!(
        error.message,
        "the provider `acme` at memory does not offer `addresses` (it offers `machines`, `bgp`); take `addresses` out of \
         remote.capabilities, or upgrade the provider"
    );
    assert_eq!(bench.calls("ListReservations"), 0);
    // It was replaced: the first thing that goes wrong makes us ask again.
    bench.machines().await.unwrap_err();
    assert_eq!(bench.reservations().await.unwrap().len(), 1);
}

#[tokio::test]
async fn what_a_provider_says_of_itself_must_be_in_order() {
    let wrong: [fn(&mut wire::GetCapabilitiesResponse); 3] = [
        |said| "Acme Cloud".clone_into(&mut said.name),
        |said| said.provider_id_schemes.push("a/b".to_owned()),
        |said| said.address_families = vec!["ipv4".to_owned()],
    ];
    for change in wrong {
        let bench = Bench::over(move |_, _| {
            let mut said = capabilities();
            change(&mut said);
            Ok(write(&said))
        })
        .await;
        let error = bench.machines().await.unwrap_err();
        assert_eq!(error.kind, CloudErrorKind::Unavailable, "{error}");
    }
}

/// E89: a provider that is away at start. Until it has answered, nothing is absent and nothing is anybody else's.
#[tokio::test]
async fn a_provider_that_is_away_at_start_is_waited_for() {
    let (listener, connector) = memory();
    let bench = Bench::away(&Target::Memory(connector), &RemoteConfig::default());
    let remote = &bench.remote;
    let (own, foreign, bare) = ("acme://a", "other://a", "a");
    let accepts = |text: &str| remote.accepts(&text.parse().unwrap());
    assert!(accepts(own) && accepts(foreign) && !accepts(bare));
    assert!(!remote.proves_absence() && !remote.moves_atomically());
    assert!(remote.needs_sessions() && remote.supports(Family::V6));
    let component = bench.context.health.component("machines");
    let source = remote.clone();
    let inventory = Inventory::new(
        move || {
            let source = source.clone();
            Box::pin(async move { MachineSource::list(&source).await })
        },
        Arc::clone(&bench.context.clock),
        bench.context.tasks.clone(),
    );
    keep(
        &inventory,
        component,
        Duration::from_secs(300),
        &bench.context.tasks,
    );
    assert!(!bench.context.health.is_ready());
    bench
        .serve(listener, |method, _| match method {
            "GetCapabilities" => Ok(write(&capabilities())),
            _ => machines(&["acme://a"], "", 1),
        })
        .await;
    bench.context.health.ready().await;
    assert_eq!(inventory.cached().unwrap().items.len(), 1);
    assert!(accepts(own) && !accepts(foreign));
    assert!(remote.proves_absence() && remote.moves_atomically() && !remote.supports(Family::V6));
}

#[tokio::test]
async fn tags_that_are_too_long_are_kept_by_their_hash() {
    let bench = Bench::away(&Target::Memory(memory().1), &RemoteConfig::default());
    let owner = |name: &str| -> Owner {
        let cluster = "one".parse().unwrap();
        Owner::service(cluster, "n".repeat(253).parse().unwrap(), name.parse().unwrap())
    };
    let tags = |name| bench.remote.tags_of(&owner(name));
    assert!(tags("a").iter().chain(&tags("b")).all(|tag| tag.len() <= 255));
    assert_ne!(tags("a"), tags("b"));
}

#[tokio::test]
async fn every_call_is_counted_by_method_and_code() {
    let bench = Bench::new(|_, times| match times {
        0 => Err(Status::unavailable("a moment")),
        _ => machines(&[], "", 0),
    })
    .await;
    bench.machines().await.unwrap();
    let text = bench.context.metrics.encode().unwrap();
    for line in [
        "groundplane_cloud_provider_calls_total{method=\"ListMachines\",code=\"UNAVAILABLE\"} 1",
        "groundplane_cloud_provider_calls_total{method=\"ListMachines\",code=\"OK\"} 1",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[tokio::test]
async fn what_is_not_used_comes_from_elsewhere() {
    let bench = Bench::away(&Target::Memory(memory().1), &RemoteConfig::default());
    let selector = EndpointSelector::Tag("api".to_owned());
    let cloud = bench.remote.cloud(&[Capability::Bgp], Some(&selector));
    assert!(cloud.machines.is_none() && cloud.endpoint.is_none() && cloud.bgp.is_some());
    assert!(matches!(cloud.addresses, crate::AddressBackend::Ipam));
    let cloud = bench.remote.cloud(&[Capability::Endpoint], Some(&selector));
    assert_eq!(cloud.endpoint.unwrap().selector, selector);
}
