//! The one task that adopts, and follows the pools in between.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures::StreamExt as _;
use groundplane_core::names;
use groundplane_proto::core::v1::{Owner, PoolRef};
use groundplane_proto::ipam::v1::watch_response::Event;
use groundplane_proto::ipam::v1::{AdoptRequest, AdoptResponse, GetStoreRequest, PoolStatus, WatchResponse};
use groundplane_runtime::Backoff;
use groundplane_runtime::grpc::RpcError;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::{debug, error, info, warn};

use super::snapshot;
use crate::cluster::objects::Key;
use crate::domain::service::Scope;
use crate::gateway::{Gateway, Standing, WAITS_FOR_ADDRESS};

/// Pauses while ipam is away.
const PAUSES: Backoff = Backoff {
    first: Duration::from_millis(200),
    longest: Duration::from_secs(10),
};

/// How often the store is asked for its revision, so that the lease names one that is not long ago.
const STORE_PERIOD: Duration = Duration::from_secs(10);

/// How often a store that is not trusted is looked at again: it may have been put right.
const REFUSED_PERIOD: Duration = Duration::from_secs(15);

/// Events of the pools that are taken at once: what waits is woken once for all of them.
const BATCH: usize = 256;

/// The store that this cluster trusts; an empty id: any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Trusted {
    store: String,
    revision: u64,
}

impl Trusted {
    /// What the lease says.
    fn of(annotations: &BTreeMap<String, String>) -> Self {
        let revision = annotations
            .get(names::LEASE_STORE_REVISION)
            .and_then(|text| text.parse().ok());
        Self {
            store: annotations
                .get(names::LEASE_STORE_ID)
                .cloned()
                .unwrap_or_default(),
            revision: revision.unwrap_or_default(),
        }
    }
}

/// Runs until it is dropped.
pub(super) async fn run(gateway: &Gateway) {
    let (mut trusted, mut inherited) = (Trusted::default(), BTreeMap::new());
    loop {
        gateway.cluster.services.index.synced().await;
        gateway.cluster.leader.acquired().await;
        let left = gateway.cluster.leader.inherited();
        // Where nobody led since our last term, nobody knows better than we do.
        if left != inherited {
            trusted = Trusted::of(&left);
            inherited = left;
        }
        if !trusted.store.is_empty() {
            // Each renewal says what we said last, which another leader may have known better.
            record(gateway, &trusted);
        }
        tokio::select! {
            () = gateway.cluster.leader.lost() => {}
            () = lead(gateway, &mut trusted) => {}
        }
        gateway.adoption.set(Standing::Waiting);
    }
}

/// One term. Ends with the lease only.
async fn lead(gateway: &Gateway, trusted: &mut Trusted) {
    let mut failures = 0;
    loop {
        if !gateway.cluster.services.index.is_followed() {
            // By an old snapshot, an address would be taken from its holder for a Service that is long gone.
            debug!("the API server does not say what the cluster holds; ipam is told once it does");
            sleep(PAUSES.pause(2)).await;
            continue;
        }
        match adopt(gateway, trusted).await {
            Ok(()) => {
                failures = 0;
                follow(gateway, trusted).await;
            }
            Err(error) if error.reason == "UNKNOWN_STORE" => refused(gateway, trusted, &error).await,
            Err(error) => {
                let pause = PAUSES.pause(failures);
                if failures == 0 {
                    warn!(%error, reason = error.reason, "ipam cannot be told what the cluster holds; it is tried again");
                } else {
                    debug!(%error, reason = error.reason, ?pause, "ipam cannot be told yet");
                }
                failures += 1;
                sleep(pause).await;
            }
        }
    }
}

/// Tells ipam what the cluster holds.
async fn adopt(gateway: &Gateway, trusted: &mut Trusted) -> Result<(), RpcError> {
    let accepted = gateway.adoption.accepted();
    if let Some(store) = &accepted {
        *trusted = Trusted {
            store: store.clone(),
            revision: 0,
        };
    }
    let cluster = gateway.cluster.identity.known().await;
    let scope = Scope::of(&gateway.config);
    let holdings = snapshot::holdings(&gateway.cluster.services.index.all(), &scope, &cluster);
    let count = holdings.len();
    let request = AdoptRequest {
        cluster: cluster.to_string(),
        holdings,
        store_id: trusted.store.clone(),
        store_revision: trusted.revision,
        kinds: vec![groundplane_core::OwnerKind::Service.to_string()],
    };
    let answer = gateway.services.ipam.adopt(request).await?;
    *trusted = Trusted {
        store: answer.store_id.clone(),
        revision: answer.revision,
    };
    remember(gateway, trusted);
    if let Some(store) = &accepted {
        gateway.adoption.fulfilled(store);
    }
    info!(
        store = answer.store_id,
        revision = answer.revision,
        holdings = count,
        adopted = answer.adopted,
        conflicts = answer.conflicts.len(),
        uncovered = answer.uncovered.len(),
        evicted = answer.evicted.len(),
        "ipam knows what the cluster holds"
    );
    if scope.pin {
        wake_concerned(gateway, &answer);
        gateway.queues.services.unpark(WAITS_FOR_ADDRESS);
    }
    Ok(())
}

/// Says the store in the lease, for the next leader.
fn record(gateway: &Gateway, Trusted { store, revision }: &Trusted) {
    let leader = &gateway.cluster.leader;
    leader.annotate(names::LEASE_STORE_ID, store);
    leader.annotate(names::LEASE_STORE_REVISION, &revision.to_string());
}

/// Records the store: for this process, and in the lease for the next.
fn remember(gateway: &Gateway, trusted: &Trusted) {
    record(gateway, trusted);
    let Trusted { store, revision } = trusted.clone();
    gateway.adoption.set(Standing::Adopted { store, revision });
}

/// Looks at the Services again whose address is disputed, covered by no pool, or taken from them: they are told.
fn wake_concerned(gateway: &Gateway, answer: &AdoptResponse) {
    let of_conflicts = answer
        .conflicts
        .iter()
        .filter_map(|conflict| conflict.holding.as_ref());
    let holdings = of_conflicts
        .chain(&answer.uncovered)
        .filter_map(|holding| holding.owner.as_ref());
    let evicted = answer
        .evicted
        .iter()
        .filter_map(|allocation| allocation.owner.as_ref());
    for key in holdings.chain(evicted).filter_map(key_of) {
        gateway.held.reconsider_one(&key);
        gateway.queues.services.wake(key);
    }
}

fn key_of(owner: &Owner) -> Option<Key> {
    (owner.kind == groundplane_core::OwnerKind::Service.as_str())
        .then(|| Key::namespaced(&owner.namespace, &owner.name))
}

/// ipam has a store that this cluster does not trust. Waits until a person says so, or a while.
async fn refused(gateway: &Gateway, trusted: &Trusted, error: &RpcError) {
    let offered = error.metadata.get("store_id").cloned().unwrap_or_default();
    let standing = Standing::Refused {
        trusted: trusted.store.clone(),
        offered: offered.clone(),
    };
    if gateway.adoption.standing() != standing {
        error!(
            trusted = trusted.store,
            offered,
            "ipam has another store than the one that this cluster trusts; no addresses are given. If the new one is right, run: \
             groundplane ctl store accept {offered}"
        );
    }
    gateway.adoption.set(standing);
    // A wish to adopt that is older than this refusal is no reason to ask again, but a person's word is.
    tokio::select! {
        () = gateway.adoption.wanted() => {}
        () = sleep(REFUSED_PERIOD) => {}
    }
}

/// Follows the pools, until there is a reason to adopt again.
async fn follow(gateway: &Gateway, trusted: &mut Trusted) {
    let events = match gateway.services.pools.open().await {
        Ok(events) => events,
        Err(error) => {
            debug!(%error, "the pools cannot be followed");
            return sleep(PAUSES.pause(2)).await;
        }
    };
    let mut batches = events.ready_chunks(BATCH);
    let mut pools = Pools::default();
    let mut store = interval(STORE_PERIOD);
    store.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let again = tokio::select! {
            () = gateway.adoption.wanted() => Some("asked to"),
            _ = store.tick() => look_at_store(gateway, trusted).await,
            batch = batches.next() => match batch {
                None => Some("the stream of pools ended"),
                Some(batch) => take(gateway, trusted, &mut pools, batch),
            },
        };
        if let Some(why) = again {
            debug!(why, "ipam is told again what the cluster holds");
            // An ipam that ends each stream at once shall not be told in a hot loop.
            return sleep(PAUSES.pause(0)).await;
        }
    }
}

/// Is it still the same store? Says why not.
async fn look_at_store(gateway: &Gateway, trusted: &mut Trusted) -> Option<&'static str> {
    let store = match gateway.services.ipam.get_store(GetStoreRequest {}).await {
        Ok(store) => store,
        Err(error) => {
            debug!(%error, "the store does not answer");
            return None;
        }
    };
    if store.store_id != trusted.store {
        return Some("it has another store");
    }
    if store.revision < trusted.revision {
        return Some("the store's revision went back");
    }
    if store.revision > trusted.revision {
        trusted.revision = store.revision;
        remember(gateway, trusted);
    }
    None
}

/// Takes events of the pools. Says why ipam has to be told again, if it has to.
fn take(
    gateway: &Gateway,
    trusted: &mut Trusted,
    pools: &mut Pools,
    batch: Vec<Result<WatchResponse, RpcError>>,
) -> Option<&'static str> {
    let mut helps = false;
    let mut again = None;
    for event in batch {
        match event {
            Ok(WatchResponse { revision, event }) => {
                helps |= event.is_some_and(|event| pools.take(event));
                if revision > trusted.revision {
                    trusted.revision = revision;
                    remember(gateway, trusted);
                }
            }
            Err(error) => {
                debug!(%error, "the stream of pools broke");
                again = Some("the stream of pools broke");
            }
        }
    }
    if helps {
        gateway.queues.services.unpark(WAITS_FOR_ADDRESS);
        for key in gateway.held.reconsider_incomplete() {
            gateway.queues.services.wake(key);
        }
    }
    again
}

/// What is known of the pools: enough to tell a change that may help a waiting Service from an address more that is used.
#[derive(Debug, Default)]
struct Pools(HashMap<(String, String, String), PoolStatus>);

impl Pools {
    /// May this event help somebody who waits for an address?
    fn take(&mut self, event: Event) -> bool {
        let key = |pool: &PoolRef| (pool.source.clone(), pool.namespace.clone(), pool.name.clone());
        match event {
            Event::Freed(_) => true,
            Event::Pool(status) => {
                let Some(pool) = status.pool.as_ref().and_then(|pool| pool.r#ref.as_ref()) else {
                    return false;
                };
                let name = key(pool);
                let now = (status.pool.clone(), status.draining, status.total);
                let before = self.0.insert(name, status);
                before.is_none_or(|before| (before.pool, before.draining, before.total) != now)
            }
            Event::PoolGone(pool) => {
                self.0.remove(&key(&pool));
                true
            }
            Event::Allocated(_) | Event::Released(_) | Event::Synced(_) => false,
        }
    }
}
