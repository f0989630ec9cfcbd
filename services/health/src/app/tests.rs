//! The whole service, with a network of its own in a box and a clock that stands still.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use groundplane_core::ErrorKind;
use groundplane_proto::FILE_DESCRIPTOR_SET;
use groundplane_proto::health::v1 as proto;
use groundplane_proto::health::v1::health_service_client::HealthServiceClient;
use groundplane_runtime::grpc::{Channel, RpcError, Server};
use pretty_assertions::assert_eq;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::*;
use crate::{HealthConfig, start_with};

const ENDPOINT: &str = "192.0.2.1:6443";

/// Addresses that are not ready. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
struct Net {
    odd: Arc<Mutex<BTreeMap<SocketAddr, Sign>>>,
    probes: Arc<AtomicU64>,
}

impl Net {
    fn set(&self, address: &str, sign: Sign) {
        self.odd.lock().insert(address.parse().unwrap(), sign);
    }

    fn all(&self, sign: Sign) {
        for address in [ENDPOINT, &own("a"), &own("b"), &own("c")] {
            self.set(address, sign);
        }
    }

    fn probes(&self) -> u64 {
        self.probes.load(Ordering::Relaxed)
    }
}

impl Probe for Net {
    async fn probe(&self, address: SocketAddr) -> Outcome {
        self.probes.fetch_add(1, Ordering::Relaxed);
        let sign = self.odd.lock().get(&address).copied().unwrap_or(Sign::Ready);
        let took = if sign == Sign::Silent {
            Settings::default().timeout
        } else {
            Duration::from_millis(1)
        };
        tokio::time::sleep(took).await;
        Outcome {
            sign,
            detail: if sign == Sign::Ready {
                ""
            } else {
                "500: etcd failed"
            }
            .to_owned(),
            took,
        }
    }
}

fn own(name: &str) -> String {
    let last = name.bytes().next().unwrap_or_default() - b'a' + 1;
    format!("10.0.0.{last}:6443")
}

fn held_by(holder: &str, revision: u64) -> proto::WatchEndpointRequest {
    let candidate = |name: &str| proto::Candidate {
        node: name.to_owned(),
        address: own(name),
        ..proto::Candidate::default()
    };
    proto::WatchEndpointRequest {
        endpoint: ENDPOINT.to_owned(),
        holder: holder.to_owned(),
        candidates: ["a", "b", "c"].map(candidate).to_vec(),
        revision,
        holder_unknown: false,
        own_addresses_only: false,
    }
}

struct World {
    net: Net,
    context: Context,
    client: HealthServiceClient<Channel>,
}

/// One stream.
struct Stream {
    say: mpsc::Sender<proto::WatchEndpointRequest>,
    hear: Streaming<proto::WatchEndpointResponse>,
}

impl World {
    async fn start() -> Self {
        let (net, context) = (Net::default(), Context::new());
        let routes = start_with(&HealthConfig::default(), net.clone(), &context);
        let server = Server::new("health", &context).routes(routes);
        let channel = server.within(FILE_DESCRIPTOR_SET).await.unwrap();
        Self {
            net,
            context,
            client: HealthServiceClient::new(channel),
        }
    }

    async fn watch(&self, request: proto::WatchEndpointRequest) -> Stream {
        let (say, said) = mpsc::channel(8);
        say.send(request).await.unwrap();
        let answers = self
            .client
            .clone()
            .watch_endpoint(ReceiverStream::new(said))
            .await;
        Stream {
            say,
            hear: answers.unwrap().into_inner(),
        }
    }
}

impl Stream {
    async fn next(&mut self) -> Result<proto::WatchEndpointResponse, RpcError> {
        let next = self.hear.message().await.map_err(RpcError::from)?;
        Ok(next.expect("the stream goes on"))
    }

    async fn until(
        &mut self,
        done: impl Fn(&proto::WatchEndpointResponse) -> bool,
    ) -> proto::WatchEndpointResponse {
        loop {
            let answer = self.next().await.unwrap();
            if done(&answer) {
                return answer;
            }
        }
    }

    /// Waits until everything was probed, and is ready.
    async fn well(&mut self) {
        self.until(|answer| {
            answer.observations.len() == 4 && answer.observations.iter().all(|seen| seen.ready)
        })
        .await;
    }

    async fn verdict(&mut self) -> proto::WatchEndpointResponse {
        self.until(|answer| !answer.move_to.is_empty()).await
    }
}

fn detected_after(answer: &proto::WatchEndpointResponse) -> Duration {
    answer.detected_after.unwrap().try_into().unwrap()
}

/// E69 (part): the holder's packets are dropped; a verdict comes within 2.3 s, and is told at once.
#[tokio::test(start_paused = true)]
async fn a_holder_whose_packets_are_dropped_is_left_within_the_bound() {
    let world = World::start().await;
    let mut stream = world.watch(held_by("a", 7)).await;
    let first = stream.next().await.unwrap();
    assert_eq!(
        (first.revision, first.move_to.as_str()),
        (7, ""),
        "a request is answered at once"
    );
    stream.well().await;
    let dead = Instant::now();
    world.net.set(ENDPOINT, Sign::Silent);
    world.net.set(&own("a"), Sign::Silent);
    let verdict = stream.verdict().await;
    assert!(
        dead.elapsed() <= Duration::from_millis(2300),
        "{:?}",
        dead.elapsed()
    );
    assert_ne!(verdict.move_to, "a");
    assert_eq!((verdict.cause(), verdict.verdict), (proto::Cause::Dead, 1));
    let holder = verdict.observations.iter().find(|seen| seen.node == "a").unwrap();
    assert_eq!(
        (holder.ready, holder.misses, holder.detail.as_str()),
        (false, 3, "500: etcd failed")
    );
    assert_eq!(verdict.observations[0].node, "", "the endpoint comes first");
    let metrics = world.context.metrics.encode().unwrap();
    assert!(
        metrics.contains("groundplane_health_verdicts_total{cause=\"dead\"} 1"),
        "{metrics}"
    );
}

/// E70: nobody is ready, so it stays, and the reason says why; as soon as somebody is, it goes there.
#[tokio::test(start_paused = true)]
async fn with_nobody_ready_it_stays_and_the_reason_says_so() {
    let world = World::start().await;
    world.net.all(Sign::Alive);
    let mut stream = world.watch(held_by("a", 1)).await;
    let answer = stream.until(|answer| !answer.reason.is_empty()).await;
    assert_eq!(answer.move_to, "");
    assert!(
        answer.reason.ends_with("no candidate is ready"),
        "{}",
        answer.reason
    );
    world.net.set(&own("c"), Sign::Ready);
    assert_eq!(stream.verdict().await.move_to, "c");
}

/// E67, E71: told at once, without waiting for anything but the first probes.
#[tokio::test(start_paused = true)]
async fn causes_that_need_no_misses_are_told_at_once() {
    let world = World::start().await;
    let mut stream = world.watch(held_by("", 1)).await;
    let began = Instant::now();
    let verdict = stream.verdict().await;
    assert_eq!(verdict.cause(), proto::Cause::Unheld);
    assert!(began.elapsed() < Settings::default().period);

    let mut cordoned = held_by("a", 2);
    cordoned.candidates[0].cordoned = true;
    stream.say.send(cordoned).await.unwrap();
    let verdict = stream
        .until(|answer| answer.revision == 2 && !answer.move_to.is_empty())
        .await;
    assert_eq!(verdict.cause(), proto::Cause::Cordoned);
    stream.say.send(held_by(&verdict.move_to, 3)).await.unwrap();
    let settled = stream.until(|answer| answer.revision == 3).await;
    assert_eq!((settled.move_to.as_str(), settled.reason.as_str()), ("", ""));
}

#[tokio::test(start_paused = true)]
async fn a_verdict_of_which_nothing_came_is_given_again_under_another_number() {
    let world = World::start().await;
    let mut stream = world.watch(held_by("a", 1)).await;
    stream.well().await;
    world.net.set(&own("a"), Sign::Alive);
    let first = stream.verdict().await;
    let given = Instant::now();
    let again = stream.until(|answer| answer.verdict != first.verdict).await;
    assert_eq!((again.verdict, &again.move_to), (2, &first.move_to));
    assert!(given.elapsed() >= Settings::default().dwell);
    world.net.set(&own("a"), Sign::Ready);
    let withdrawn = stream.until(|answer| answer.move_to.is_empty()).await;
    assert_eq!(withdrawn.cause(), proto::Cause::Unspecified);
}

/// A caller that was cut off in the middle of an outage does not wait for three more misses.
#[tokio::test(start_paused = true)]
async fn what_was_learned_outlives_the_stream_by_a_minute() {
    let world = World::start().await;
    let mut stream = world.watch(held_by("a", 1)).await;
    stream.well().await;
    drop(stream);
    world.net.set(&own("a"), Sign::Alive);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let mut stream = world.watch(held_by("a", 1)).await;
    let first = stream.next().await.unwrap();
    assert_ne!(first.move_to, "", "{first:?}");
    assert!(detected_after(&first) <= Duration::from_millis(2300));
}

#[tokio::test(start_paused = true)]
async fn a_minute_after_the_last_caller_nothing_is_probed_any_more() {
    let world = World::start().await;
    let mut stream = world.watch(held_by("a", 1)).await;
    stream.well().await;
    drop(stream);
    tokio::time::sleep(LINGER + Duration::from_secs(10)).await;
    let before = world.net.probes();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.net.probes(), before);
    let mut stream = world.watch(held_by("a", 1)).await;
    stream.well().await;
}

/// The holder that another agent chose is watched from now on, and what is no candidate any more is not probed.
#[tokio::test(start_paused = true)]
async fn a_request_replaces_the_one_before_it() {
    let world = World::start().await;
    let mut stream = world.watch(held_by("a", 1)).await;
    stream.well().await;
    let mut fewer = held_by("b", 2);
    fewer.candidates.truncate(2);
    stream.say.send(fewer).await.unwrap();
    let answer = stream.until(|answer| answer.revision == 2).await;
    let nodes: Vec<_> = answer
        .observations
        .iter()
        .map(|seen| seen.node.as_str())
        .collect();
    assert_eq!(nodes, ["", "a", "b"]);
    world.net.set(&own("c"), Sign::Alive);
    let later = stream.until(|answer| answer.observations[0].ready).await;
    assert_eq!(later.observations.len(), 3);
}

/// Whoever hears of a first miss can look who holds the endpoint, before a verdict depends on it.
#[tokio::test(start_paused = true)]
async fn a_first_miss_is_told_at_once() {
    let world = World::start().await;
    let mut stream = world.watch(held_by("a", 1)).await;
    stream.well().await;
    for lost in ["b", "c"] {
        let dead = Instant::now();
        world.net.set(&own(lost), Sign::Alive);
        let missed = |seen: &proto::Observation| seen.node == lost && seen.misses > 0;
        let answer = stream
            .until(|answer| answer.observations.iter().any(missed))
            .await;
        let found = answer.observations.iter().find(|seen| missed(seen)).unwrap();
        assert_eq!(found.misses, 1);
        assert!(dead.elapsed() <= Settings::default().interval());
    }
}

/// E73: the endpoint's own address is not probed where machines carry it themselves, and its holder's decides.
#[tokio::test(start_paused = true)]
async fn only_the_machines_own_addresses_are_probed_where_that_is_wanted() {
    let world = World::start().await;
    let mut request = held_by("a", 1);
    request.own_addresses_only = true;
    let mut stream = world.watch(request).await;
    let all = |answer: &proto::WatchEndpointResponse| answer.observations.iter().all(|seen| seen.ready);
    let answer = stream.until(all).await;
    let nodes: Vec<_> = answer
        .observations
        .iter()
        .map(|seen| seen.node.as_str())
        .collect();
    assert_eq!(nodes, ["a", "b", "c"]);
    let dead = Instant::now();
    world.net.set(&own("a"), Sign::Silent);
    assert_eq!(stream.verdict().await.cause(), proto::Cause::Dead);
    assert!(dead.elapsed() <= Settings::default().detection());
}

/// Something turns several times a second for ten seconds. Followers are told of it about once a second.
#[tokio::test(start_paused = true)]
async fn what_is_only_observed_is_told_once_a_second() {
    let world = World::start().await;
    let mut stream = world.watch(held_by("a", 1)).await;
    stream.well().await;
    let mut told = 0;
    let end = Instant::now() + Duration::from_secs(10);
    let mut flips = tokio::time::interval(Duration::from_millis(700));
    let mut ready = false;
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(end) => break,
            _ = flips.tick() => {
                world.net.set(&own("c"), if ready { Sign::Ready } else { Sign::Alive });
                ready = !ready;
            }
            answer = stream.next() => {
                assert_eq!(answer.unwrap().move_to, "");
                told += 1;
            }
        }
    }
    assert!((5..=11).contains(&told), "{told}");
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_a_request_is_told_with_its_field() {
    let world = World::start().await;
    let wrong = |change: fn(&mut proto::WatchEndpointRequest)| {
        let mut request = held_by("a", 1);
        change(&mut request);
        request
    };
    for (field, request) in [
        (
            "endpoint",
            wrong(|request| request.endpoint = "192.0.2.1".to_owned()),
        ),
        (
            "endpoint",
            wrong(|request| request.endpoint = "0.0.0.0:6443".to_owned()),
        ),
        ("holder", wrong(|request| request.holder = "a b".to_owned())),
        ("holder_unknown", wrong(|request| request.holder_unknown = true)),
        (
            "candidates[1].address",
            wrong(|request| request.candidates[1].address = "b:0".to_owned()),
        ),
        (
            "candidates[2].node",
            wrong(|request| request.candidates[2].node = "a".to_owned()),
        ),
    ] {
        let error = world.watch(request).await.next().await.unwrap_err();
        assert_eq!(
            (error.kind, error.reason.as_str()),
            (ErrorKind::Invalid, "INVALID_FIELD")
        );
        assert!(
            error.message.starts_with(&format!("{field}: ")),
            "{field}: {error}"
        );
    }
    let asked = proto::ProbeRequest {
        address: "nowhere".to_owned(),
    };
    let error = RpcError::from(world.client.clone().probe(asked).await.unwrap_err());
    assert_eq!(error.kind, ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn an_address_is_probed_on_demand() {
    let world = World::start().await;
    world.net.set(&own("a"), Sign::Alive);
    let asked = proto::ProbeRequest { address: own("a") };
    let answer = world.client.clone().probe(asked).await.unwrap().into_inner();
    assert_eq!(
        (answer.ready, answer.detail.as_str()),
        (false, "500: etcd failed")
    );
}

/// Streams end when the service stops, also those on which nothing was said; and the stop is not held up by them.
#[tokio::test(start_paused = true)]
async fn streams_end_when_the_service_stops() {
    let world = World::start().await;
    let mut stream = world.watch(held_by("a", 1)).await;
    let (_say, said) = mpsc::channel(1);
    let silent = world
        .client
        .clone()
        .watch_endpoint(ReceiverStream::new(said))
        .await;
    let mut silent = silent.unwrap().into_inner();
    stream.well().await;
    let drain = world.context.tasks.drain(Duration::from_secs(5));
    let (drained, ended, also) = tokio::join!(
        drain,
        async {
            loop {
                if let Err(error) = stream.next().await {
                    break error;
                }
            }
        },
        silent.message()
    );
    drained.unwrap();
    assert_eq!(ended.kind, ErrorKind::Unavailable);
    assert_eq!(RpcError::from(also.unwrap_err()).kind, ErrorKind::Unavailable);
}
