use groundplane_core::{DriverName, ErrorKind};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::time::advance;

use super::*;
use crate::config::{Config, Reclaim};
use crate::testing::{World, rpc_error};

const LIST: &str = "GET /api/v1/services";
const GRACE: Duration = Duration::from_secs(3600);

fn config(mode: ReclaimMode) -> Config {
    Config {
        driver: DriverName::Equinix,
        reclaim: Reclaim {
            mode,
            ..Reclaim::default()
        },
        ..Config::default()
    }
}

fn service(name: &str) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "default", "uid": name, "resourceVersion": "1" },
        "spec": { "type": "LoadBalancer" },
        "status": { "loadBalancer": {} },
    })
}

struct Setup {
    world: World,
    reclaimer: Reclaimer,
}

impl Setup {
    /// Reservations of four Services, of which the cluster has the first three.
    fn new(config: Config) -> Self {
        let world = World::new(config);
        for (n, name) in ["a", "b", "c", "gone"].iter().enumerate() {
            world.eip.reserve(
                &format!("r-{name}"),
                &format!("default/{name}"),
                &format!("192.0.2.{n}"),
            );
        }
        for name in ["a", "b", "c"] {
            world.service(service(name));
        }
        let reclaimer = Reclaimer::new(&world.gateway, ReclaimMetrics::default());
        Self { world, reclaimer }
    }

    /// What the next list of all Services says.
    fn lists(&self, names: &[&str]) {
        let items: Vec<Value> = names.iter().map(|name| service(name)).collect();
        self.lists_objects(&items);
    }

    fn lists_objects(&self, items: &[Value]) {
        let list = json!({ "metadata": { "resourceVersion": "9" }, "items": items });
        self.world.api.stream(200, list.to_string());
    }

    /// A round, in which the API server is asked this often and answers the truth.
    async fn round(&mut self, lists: usize) -> Result<(), Doubt> {
        for _ in 0..lists {
            self.lists(&["a", "b", "c"]);
        }
        let done = self.reclaimer.round().await;
        assert_eq!(self.world.api.calls(), vec![LIST; lists]);
        done
    }

    fn has_orphan(&self) -> bool {
        self.world.eip.reserved().contains(&"r-gone".to_owned())
    }

    fn events(&mut self) -> Vec<(String, &'static str)> {
        self.world.events.take()
    }
}

/// E51: after the grace, by a list of Services that is made for this deletion; with an event.
#[tokio::test(start_paused = true)]
async fn an_orphan_goes_after_the_grace_and_is_told_of() {
    let mut setup = Setup::new(config(ReclaimMode::On));
    setup.round(1).await.unwrap();
    advance(GRACE / 10 * 9).await;
    setup.round(1).await.unwrap();
    assert!(setup.has_orphan() && setup.events().is_empty());
    advance(GRACE / 10).await;
    setup.round(2).await.unwrap();
    assert_eq!(setup.world.eip.reserved(), ["r-a", "r-b", "r-c"]);
    assert_eq!(setup.events(), [("kube-system".to_owned(), "ReclaimedElasticIP")]);
    setup.round(0).await.unwrap();
    assert!(setup.events().is_empty(), "without orphans, nothing is asked");
}

/// E51: by default it is only told of, once.
#[tokio::test(start_paused = true)]
async fn a_dry_run_tells_and_deletes_nothing() {
    let mut setup = Setup::new(config(ReclaimMode::default()));
    setup.round(1).await.unwrap();
    advance(GRACE).await;
    setup.round(1).await.unwrap();
    assert_eq!(setup.events(), [("kube-system".to_owned(), "OrphanedElasticIP")]);
    setup.round(1).await.unwrap();
    assert!(setup.has_orphan() && setup.events().is_empty());
}

/// E51: the cache lacks a Service that the API server has, or the Service comes at the last moment: it keeps its reservation.
#[tokio::test(start_paused = true)]
async fn a_service_that_only_the_api_server_knows_keeps_its_address() {
    let mut setup = Setup::new(config(ReclaimMode::On));
    let all = ["a", "b", "c", "gone"];
    setup.lists(&all);
    setup.reclaimer.round().await.unwrap();
    advance(GRACE).await;
    // The grace begins here: until now, somebody had it.
    setup.lists(&all[..3]);
    setup.reclaimer.round().await.unwrap();
    advance(GRACE).await;
    setup.lists(&all[..3]);
    setup.lists(&all);
    setup.reclaimer.round().await.unwrap();
    assert!(setup.has_orphan() && setup.events().is_empty());
}

/// E51: a Service that shows, or asks for, the address keeps it, whatever the tags say.
#[tokio::test(start_paused = true)]
async fn an_address_in_use_is_spared() {
    for (path, value) in [
        ("/status/loadBalancer/ingress", json!([{ "ip": "192.0.2.3" }])),
        ("/spec/loadBalancerIP", json!("192.0.2.3")),
        (
            "/metadata/annotations",
            json!({ "metallb.io/loadBalancerIPs": "192.0.2.3, 192.0.2.9" }),
        ),
    ] {
        let mut setup = Setup::new(config(ReclaimMode::On));
        setup.round(1).await.unwrap();
        advance(GRACE).await;
        let mut user = service("a");
        let (parent, name) = path.rsplit_once('/').unwrap();
        user.pointer_mut(parent).unwrap()[name] = value;
        setup.lists(&["a", "b", "c"]);
        setup.lists_objects(&[user, service("b"), service("c")]);
        setup.reclaimer.round().await.unwrap();
        assert!(setup.has_orphan(), "{path}");
    }
}

/// E51: no answer of the API server, half of one, or an error of the cloud: nothing goes, and the next round does it.
#[tokio::test(start_paused = true)]
async fn doubt_reclaims_nothing() {
    let page = json!({ "metadata": { "resourceVersion": "9", "continue": "more" }, "items": [service("a")] });
    for failure in 0..4 {
        let mut setup = Setup::new(config(ReclaimMode::On));
        setup.round(1).await.unwrap();
        advance(GRACE).await;
        if failure < 3 {
            setup.lists(&["a", "b", "c"]);
        }
        match failure {
            0 => setup.world.api.stream(503, "{}"),
            1 => setup.world.api.silence(),
            2 => {
                setup.world.api.stream(200, page.to_string());
                setup.world.api.stream(410, "{}");
            }
            _ => setup
                .world
                .eip
                .fail(rpc_error(ErrorKind::Unavailable, "CLOUD_UNAVAILABLE")),
        }
        setup.reclaimer.round().await.unwrap_err();
        assert!(setup.has_orphan() && setup.events().is_empty(), "{failure}");
        setup.world.api.calls();
        setup.round(2).await.unwrap();
        assert!(!setup.has_orphan(), "{failure}");
    }
}

/// E51, E88: whoever does not lead, or not for long enough, deletes nothing.
#[tokio::test(start_paused = true)]
async fn who_does_not_lead_reclaims_nothing() {
    let mut setup = Setup::new(config(ReclaimMode::On));
    setup.round(1).await.unwrap();
    advance(GRACE).await;
    setup.world.leads.send(None).unwrap();
    assert!(matches!(setup.round(1).await, Err(Doubt::NotLeader)));
    setup
        .world
        .leads
        .send(Some(Instant::now() + Duration::from_secs(5)))
        .unwrap();
    setup.lists(&["a", "b", "c"]);
    setup.world.api.silence();
    assert!(matches!(setup.reclaimer.round().await, Err(Doubt::Late)));
    assert!(setup.has_orphan() && setup.events().is_empty());
}

/// E51: what would take most of the cluster's addresses is rather a wrong answer. What an older controller left in the project, maybe
/// for other clusters, makes it no less.
#[tokio::test(start_paused = true)]
async fn the_brake_stops_most_of_them() {
    let mut setup = Setup::new(config(ReclaimMode::On));
    let others: Vec<String> = (0..20).map(|n| format!("former-{n}")).collect();
    for id in &others {
        setup.world.eip.bequeath(id, "192.0.2.98");
    }
    for (id, name) in [("r-4", "d"), ("r-5", "e"), ("r-6", "f")] {
        let name = format!("default/{name}");
        setup.world.eip.reserve(id, &name, "192.0.2.99");
    }
    setup.round(1).await.unwrap();
    advance(GRACE).await;
    setup.round(1).await.unwrap();
    assert_eq!(setup.world.eip.reserved().len(), 7 + others.len());
    assert_eq!(setup.events(), [("kube-system".to_owned(), "ReclaimStopped")]);
}

/// E51: while reservations are deleted, nobody gets an address, and the other way round.
#[tokio::test(start_paused = true)]
async fn nobody_gets_an_address_meanwhile() {
    let mut setup = Setup::new(config(ReclaimMode::On));
    setup.round(1).await.unwrap();
    advance(GRACE).await;
    let gateway = Arc::clone(&setup.world.gateway);
    let inside = gateway.doors.pass().await;
    setup.lists(&["a", "b", "c"]);
    setup.lists(&["a", "b", "c"]);
    let mut round = Box::pin(setup.reclaimer.round());
    assert!(futures::poll!(&mut round).is_pending());
    assert!(setup.world.eip.reserved().contains(&"r-gone".to_owned()));
    drop(inside);
    round.await.unwrap();
    assert!(!setup.world.eip.reserved().contains(&"r-gone".to_owned()));
}

/// A watch of one namespace knows nothing of the others: there, the API server is asked.
#[tokio::test(start_paused = true)]
async fn a_part_of_the_services_proves_nothing() {
    let mut setup = Setup::new(Config {
        namespaces: vec!["other".to_owned()],
        ..config(ReclaimMode::On)
    });
    setup.world.eip.reserve("r-gone", "default/a", "192.0.2.3");
    let index = setup.world.gateway.cluster.services.index.clone();
    let unknown = index.get(&Key::namespaced("default", "a")).unwrap();
    index.delete(&unknown);
    setup.round(1).await.unwrap();
    advance(GRACE).await;
    setup.round(1).await.unwrap();
    assert_eq!(setup.world.eip.reserved().len(), 4);
}
