use std::sync::Arc;
use std::time::Duration;

use groundplane_core::ErrorKind;
use groundplane_proto::ipam::v1::watch_response::Event;
use groundplane_proto::ipam::v1::{AdoptResponse, Holding, WatchResponse};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::cluster::objects::Key;
use crate::config::Config;
use crate::gateway::{Adoption, Standing, WAITS_FOR_ADDRESS};
use crate::queue::Outcome;
use crate::testing::{World, rpc_error};

#[allow(clippy::needless_pass_by_value, reason = "called with json! in place")]
fn service(name: &str, ip: &str, spec: Value) -> Value {
    let mut service = json!({
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-of-{name}") },
        "spec": { "type": "LoadBalancer", "ipFamilies": ["IPv4"] },
        "status": { "loadBalancer": { "ingress": if ip.is_empty() { json!([]) } else { json!([{ "ip": ip }]) } } },
    });
    service["spec"]
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    service
}

/// Waits until `look` finds something. The time is paused, so this costs none; it ends with the test's own patience.
async fn eventually<T>(look: impl Fn() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(120), found)
        .await
        .expect("it never came")
}

async fn adopted(world: &World) -> groundplane_proto::ipam::v1::AdoptRequest {
    eventually(|| world.ipam.adopted().pop()).await
}

fn start_world(config: Config) -> World {
    let world = World::new(config);
    world.ipam.store("store-1", 7);
    start(&world.gateway, &world.context);
    world
}

fn standing(store: &str, revision: u64) -> Standing {
    Standing::Adopted {
        store: store.to_owned(),
        revision,
    }
}

#[tokio::test(start_paused = true)]
async fn the_snapshot_is_what_services_of_ours_have_in_their_status() {
    let world = World::new(Config::default());
    world.ipam.store("store-1", 7);
    world.service(service("b", "192.0.2.2", json!({})));
    world.service(service("a", "192.0.2.1", json!({})));
    world.service(service("waiting", "", json!({})));
    world.service(service(
        "other",
        "192.0.2.3",
        json!({ "loadBalancerClass": "example.com/other" }),
    ));
    world.service(service("internal", "192.0.2.4", json!({ "type": "ClusterIP" })));
    start(&world.gateway, &world.context);
    let told = adopted(&world).await;
    let holdings: Vec<_> = told
        .holdings
        .iter()
        .map(|h| {
            (
                h.owner.as_ref().unwrap().name.as_str(),
                h.owner_uid.as_str(),
                h.prefixes.join(" "),
            )
        })
        .collect();
    assert_eq!(
        holdings,
        [
            ("a", "uid-of-a", "192.0.2.1/32".to_owned()),
            ("b", "uid-of-b", "192.0.2.2/32".to_owned())
        ]
    );
    assert_eq!(
        (told.cluster.as_str(), told.kinds),
        ("cluster-1", vec!["service".to_owned()])
    );
    assert_eq!(told.store_id, "", "the first store is trusted");
    assert_eq!(
        world.gateway.adoption.settled(Duration::from_secs(60)).await,
        standing("store-1", 7)
    );
}

/// A Service that is to be left to others still announces what we gave it, until that is taken back.
#[tokio::test(start_paused = true)]
async fn a_service_that_is_ours_no_more_holds_what_it_was_not_relieved_of() {
    let world = World::new(Config::default());
    world.ipam.store("store-1", 7);
    let mut left = service("left", "192.0.2.1", json!({}));
    left["metadata"]["annotations"] = json!({ "groundplane.dev/managed": "false" });
    left["status"]["conditions"] =
        json!([{ "type": "groundplane.dev/AddressReady", "status": "True", "reason": "Assigned" }]);
    world.service(left);
    start(&world.gateway, &world.context);
    let held: Vec<_> = adopted(&world)
        .await
        .holdings
        .into_iter()
        .flat_map(|held| held.prefixes)
        .collect();
    assert_eq!(held, ["192.0.2.1/32"]);
}

/// A cache that misses changes may show Services that are gone, with addresses that others hold by now.
#[tokio::test(start_paused = true)]
async fn ipam_is_not_told_from_a_cache_that_misses_changes() {
    let world = World::new(Config::default());
    world.ipam.store("store-1", 7);
    let everything: Arc<str> = "".into();
    world.gateway.cluster.services.index.broke(&everything);
    start(&world.gateway, &world.context);
    assert_eq!(
        world.gateway.adoption.settled(Duration::from_secs(60)).await,
        Standing::Waiting
    );
    assert!(world.ipam.adopted().is_empty());
    world.gateway.cluster.services.index.works(&everything);
    adopted(&world).await;
}

/// A lease that was lost and taken again, with nobody in between: the store that was trusted before is the one that is trusted still.
#[tokio::test(start_paused = true)]
async fn the_trusted_store_outlives_a_lost_lease() {
    let world = start_world(Config::default());
    assert_eq!(adopted(&world).await.store_id, "");
    eventually(|| (world.gateway.adoption.standing() == standing("store-1", 7)).then_some(())).await;
    world.leads.send_replace(None);
    eventually(|| (world.gateway.adoption.standing() == Standing::Waiting).then_some(())).await;
    let until = tokio::time::Instant::now() + Duration::from_secs(86_400);
    world.leads.send_replace(Some(until));
    let told = adopted(&world).await;
    assert_eq!((told.store_id.as_str(), told.store_revision), ("store-1", 7));
}

#[tokio::test(start_paused = true)]
async fn ipam_is_told_again_when_it_says_so_when_its_stream_ends_and_when_its_revision_goes_back() {
    let world = start_world(Config::default());
    adopted(&world).await;
    let events = eventually(|| world.ipam.events()).await;
    world.gateway.adoption.want();
    assert_eq!(
        adopted(&world).await.store_id,
        "store-1",
        "the store that was trusted first"
    );
    drop(events);
    eventually(|| world.ipam.events()).await;
    world.ipam.hang_up();
    adopted(&world).await;
    eventually(|| world.ipam.events()).await;
    world.ipam.store("store-1", 3);
    let told = adopted(&world).await;
    assert_eq!(told.store_revision, 7, "what the cluster has seen");
    assert_eq!(
        world.gateway.adoption.settled(Duration::from_secs(60)).await,
        standing("store-1", 3)
    );
}

#[tokio::test(start_paused = true)]
async fn an_unknown_store_is_refused_until_a_person_accepts_it() {
    let world = World::new(Config::default());
    world.ipam.store("store-2", 1);
    let mut unknown = rpc_error(ErrorKind::Precondition, "UNKNOWN_STORE");
    unknown
        .metadata
        .insert("store_id".to_owned(), "store-2".to_owned());
    for _ in 0..3 {
        world.ipam.answer(Err(unknown.clone()));
    }
    start(&world.gateway, &world.context);
    let refused = Standing::Refused {
        trusted: String::new(),
        offered: "store-2".to_owned(),
    };
    assert_eq!(
        world.gateway.adoption.settled(Duration::from_secs(5)).await,
        refused
    );
    world.gateway.adoption.accept("store-2");
    assert!(
        world
            .gateway
            .adoption
            .adopts("store-2", Duration::from_secs(120))
            .await
    );
    let told = world.ipam.adopted();
    assert_eq!(told.last().unwrap().store_id, "store-2");
    assert_eq!(told.last().unwrap().store_revision, 0);
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_ipam_is_waited_for() {
    let world = World::new(Config::default());
    world.ipam.store("store-1", 7);
    for _ in 0..4 {
        world
            .ipam
            .answer(Err(rpc_error(ErrorKind::Unavailable, "UNAVAILABLE")));
    }
    start(&world.gateway, &world.context);
    assert_eq!(
        world.gateway.adoption.settled(Duration::from_secs(120)).await,
        standing("store-1", 7)
    );
    assert_eq!(world.ipam.adopted().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn services_that_wait_are_woken_by_what_helps_and_by_nothing_else() {
    let world = start_world(Config::default());
    let queue = &world.gateway.queues.services;
    let key = Key::namespaced("default", "waits");
    adopted(&world).await;
    let events = eventually(|| world.ipam.events()).await;
    queue.wake(key.clone());
    assert_eq!(queue.next().await, key);
    queue.done(&key, Outcome::Parked(WAITS_FOR_ADDRESS));
    let event = |revision, event| {
        Ok(WatchResponse {
            revision,
            event: Some(event),
        })
    };
    events.send(event(8, Event::Synced(true))).unwrap();
    eventually(|| (world.gateway.adoption.standing() == standing("store-1", 8)).then_some(())).await;
    assert_eq!(queue.depth().ready, 0);
    events
        .send(event(
            9,
            Event::Freed(groundplane_proto::core::v1::PoolRef::default()),
        ))
        .unwrap();
    eventually(|| (queue.depth().ready == 1).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn services_whose_address_is_disputed_are_looked_at() {
    let world = World::new(Config::default());
    let owner = groundplane_proto::core::v1::Owner {
        kind: "service".to_owned(),
        namespace: "default".to_owned(),
        name: "disputed".to_owned(),
        ..Default::default()
    };
    world.ipam.answer(Ok(AdoptResponse {
        store_id: "store-1".to_owned(),
        uncovered: vec![Holding {
            owner: Some(owner),
            ..Holding::default()
        }],
        ..AdoptResponse::default()
    }));
    start(&world.gateway, &world.context);
    assert_eq!(
        world.gateway.queues.services.next().await,
        Key::namespaced("default", "disputed")
    );
}

#[tokio::test(start_paused = true)]
async fn only_the_leader_tells() {
    let world = World::new(Config::default());
    world.ipam.store("store-1", 7);
    world.leads.send_replace(None);
    start(&world.gateway, &world.context);
    assert_eq!(
        world.gateway.adoption.settled(Duration::from_secs(60)).await,
        Standing::Waiting
    );
    assert!(world.ipam.adopted().is_empty());
    world
        .leads
        .send_replace(Some(tokio::time::Instant::now() + Duration::from_secs(600)));
    adopted(&world).await;
    world.leads.send_replace(None);
    eventually(|| (world.gateway.adoption.standing() == Standing::Waiting).then_some(())).await;
}

#[test]
fn adoption_is_shared_between_its_clones() {
    let adoption = Adoption::default();
    let clone = adoption.clone();
    clone.set(standing("s", 1));
    assert_eq!(adoption.standing(), standing("s", 1));
}
