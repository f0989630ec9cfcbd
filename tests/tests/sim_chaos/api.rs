//! The API server as a gateway sees it: slow, late, and wrong as the plan says. One client a gateway, which ends with it.

use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::StreamExt as _;
use futures::stream::{self, Stream};
use groundplane_tests::kube_api::proxy::{Call, Fault};
use http::{Request, Response, StatusCode};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use super::objects::{Answer, Manner, refused};
use super::world::World;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// After this long a write takes effect that was delayed.
const LATE: Duration = Duration::from_secs(7);
/// Pieces of a watch are told so much later, when it is slow.
const STALE: Duration = Duration::from_secs(3);
/// A call that stays without an answer for so long has failed.
const SILENCE: Duration = Duration::from_secs(150);
/// A watch that is not told otherwise ends after this.
const WATCH: Duration = Duration::from_secs(120);

/// A request that was read.
struct Asked {
    call: Call,
    manner: Manner,
    /// Of a list: the label that objects must carry, with its value.
    label: Option<(String, String)>,
    body: Value,
    /// Of a watch: where it begins, and how long it lasts.
    version: u64,
    lasts: Duration,
}

/// A client for the gateway that lives this life.
pub(crate) fn client(world: &World, life: usize) -> Client {
    let world = world.clone();
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let world = world.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.map_err(Failure::from)?;
            let kind = parts.headers.get(http::header::CONTENT_TYPE);
            let manner = match kind.and_then(|kind| kind.to_str().ok()) {
                Some("application/strategic-merge-patch+json") => Manner::Strategic,
                Some("application/apply-patch+yaml") => Manner::Apply,
                _ => Manner::Merge,
            };
            let query = |wanted: &str| {
                let mut pairs = parts.uri.query().unwrap_or_default().split('&');
                pairs.find_map(|pair| pair.strip_prefix(wanted)?.strip_prefix('='))
            };
            let number = |wanted: &str| query(wanted).and_then(|text| text.parse::<u64>().ok());
            let asked = Asked {
                call: Call::of(&parts.method, &parts.uri),
                manner,
                label: query("labelSelector").map(label),
                body: serde_json::from_slice(&body).unwrap_or_default(),
                version: number("resourceVersion").unwrap_or_default(),
                lasts: number("timeoutSeconds").map_or(WATCH, Duration::from_secs),
            };
            // As the gateway's own client: a connection that stays silent for longer is broken.
            match tokio::time::timeout(SILENCE, answer(world, life, asked)).await {
                Ok(answer) => answer,
                Err(_) => Err("no answer".into()),
            }
        }
    });
    Client::new(service, "default")
}

/// The label and the value that a selector (`a%2Fb%3Dc`) asks for.
fn label(selector: &str) -> (String, String) {
    let plain = selector.replace("%2F", "/").replace("%3D", "=");
    let (key, value) = plain.split_once('=').unwrap_or((&plain, ""));
    (key.to_owned(), value.to_owned())
}

async fn answer(world: World, life: usize, asked: Asked) -> Result<Response<Body>, Failure> {
    if world.is_deaf(life) {
        return std::future::pending().await;
    }
    let (fault, latency, nth) = world.api_fault(&asked.call);
    let (what, object) = (asked.call.to_string(), asked.call.name.clone());
    let answer = faulty(world.clone(), life, asked, fault, latency).await;
    world.answered(&what, &object, nth);
    answer
}

async fn faulty(
    world: World,
    life: usize,
    asked: Asked,
    fault: Option<Fault>,
    latency: Duration,
) -> Result<Response<Body>, Failure> {
    let write = asked.call.is_write();
    if let Some(fault) = fault {
        world.note(format_args!(
            "api {life}: {} {}: {fault:?}",
            asked.call, asked.call.name
        ));
    }
    sleep(latency).await;
    if write && world.step(life) {
        return std::future::pending().await;
    }
    match fault {
        Some(Fault::Status(code)) => return respond(&refused(code, "Chaos")),
        Some(Fault::TooMany(seconds)) => {
            let mut response = respond(&refused(429, "TooManyRequests"))?;
            response.headers_mut().insert("retry-after", seconds.into());
            return Ok(response);
        }
        Some(Fault::Hang) => return std::future::pending().await,
        Some(Fault::DropBefore) => return Err("the connection is lost".into()),
        Some(Fault::Slow(_)) if write => return late(world, life, asked).await,
        Some(Fault::ErrorEvent(code)) => {
            let event = json!({ "type": "ERROR", "object": refused(code, "Expired").body });
            return Ok(Response::new(Body::from(format!("{event}\n"))));
        }
        _ => {}
    }
    if asked.call.verb == "watch" {
        let slow = matches!(fault, Some(Fault::Slow(_)));
        let pieces = watch(world, life, asked, slow);
        return Ok(Response::new(match fault {
            Some(Fault::Cut(count)) => Body::from_stream(pieces.take(usize::try_from(count)?)),
            _ => Body::from_stream(pieces),
        }));
    }
    let mut answer = world.work(life, &asked.call, asked.manner, &asked.body);
    if let (Some((key, value)), Some(items)) = (&asked.label, answer.body["items"].as_array_mut()) {
        items.retain(|item| item["metadata"]["labels"][key] == **value);
    }
    if write && world.step(life) {
        return std::future::pending().await;
    }
    sleep(latency).await;
    match fault {
        Some(Fault::DropAfter | Fault::HalfBody) => Err("the answer is lost".into()),
        _ => respond(&answer),
    }
}

/// The write is done later than anybody waits for it, whoever lives then.
async fn late(world: World, life: usize, asked: Asked) -> Result<Response<Body>, Failure> {
    let tasks = world.tasks.clone();
    tasks.spawn("late", async move {
        sleep(LATE).await;
        world.work(life, &asked.call, asked.manner, &asked.body);
    });
    std::future::pending().await
}

fn respond(answer: &Answer) -> Result<Response<Body>, Failure> {
    Ok(Response::builder()
        .status(StatusCode::from_u16(answer.code)?)
        .header("content-type", "application/json")
        .body(Body::from(answer.body.to_string()))?)
}

/// The pieces of a watch: what happened since its version, then what happens.
fn watch(world: World, life: usize, asked: Asked, slow: bool) -> impl Stream<Item = Result<Bytes, Failure>> {
    let (ends, whole) = (Instant::now() + asked.lasts, world.severed());
    let news = world.changes();
    stream::unfold((world, news, asked.version), move |(world, mut news, seen)| {
        let call = asked.call.clone();
        async move {
            loop {
                let told = {
                    news.mark_unchanged();
                    world.objects().since(seen, &call.resource, &call.namespace)
                };
                if world.is_deaf(life) {
                    // Whoever is cut off is told nothing, not even the end.
                    if world.is_dead(life) {
                        return std::future::pending().await;
                    }
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
                if world.severed() != whole {
                    return Some((Err("the connection is cut".into()), (world, news, u64::MAX)));
                }
                if world.is_stale(life) && Instant::now() < ends {
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
                if let Some(last) = told.last() {
                    let seen = last.version;
                    if slow {
                        sleep(STALE).await;
                    }
                    let mut text = String::new();
                    for one in told {
                        text.push_str(&json!({ "type": one.kind, "object": one.object }).to_string());
                        text.push('\n');
                    }
                    return Some((Ok(Bytes::from(text)), (world, news, seen)));
                }
                tokio::select! {
                    biased;
                    () = sleep_until(ends) => return None,
                    changed = news.changed() => if changed.is_err() { return None },
                }
            }
        }
    })
}
