//! A round by custom resources.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use kube::api::DynamicObject;
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use super::present::{plural, resource};
use super::refusals::{Refusals, is_of_one};
use super::{MetallbController, Stop, Told, settings};
use crate::announcers::Record;
use crate::announcers::metallb::resources::{self, Change, Kind, PeerVersion, Present};
use crate::announcers::metallb::world::World;
use crate::announcers::metallb::{MANAGED_BY, Round, Trouble};
use crate::cluster::WriteError;
use crate::cluster::objects::Key;
use crate::domain::service::addresses;

/// The type that MetalLB asks of Secrets with passwords: of another one, it stops reading its configuration.
const SECRET_TYPE: &str = "kubernetes.io/basic-auth";

impl MetallbController {
    pub(super) async fn by_custom_resources(&self) -> Result<Told, Stop> {
        let term = self.gateway.cluster.leader.term();
        let (world, generation) = self.world();
        let secret = |peer: &crate::announcers::metallb::world::Peer| !peer.password.is_empty();
        let with_secrets = world
            .nodes
            .values()
            .any(|node| node.peers.known().iter().any(secret));
        let present = self.api.read(with_secrets).await?;
        let plan = resources::plan(&world, &present, &settings(&self.gateway.config));
        for note in &plan.notes {
            warn!(note, "a peer is not written");
        }
        let refusals = self.write_all(&plan.changes, &present).await?;
        if !plan.changes.is_empty() {
            info!(
                changes = plan.changes.len(),
                addresses = plan.placed.len(),
                "MetalLB is told"
            );
        }
        let mut round = Round {
            generation,
            term,
            placed: plan.placed,
            complete: world.complete,
            refused: BTreeMap::new(),
        };
        let refusal = refusals.end(&world).map(|(trouble, stranded)| {
            if stranded {
                self.strand(&mut round, &world, &trouble);
            }
            trouble
        });
        Ok(Told { round, refusal })
    }

    /// Writes one after the other, but for what is refused by itself.
    async fn write_all<'a>(&self, changes: &'a [Change], present: &'a Present) -> Result<Refusals<'a>, Stop> {
        let mut refusals = Refusals::new(changes, present);
        for change in changes {
            if refusals.bars(change) {
                debug!(?change, "left alone, for what was refused");
                refusals.unwritten(change);
                continue;
            }
            let Err(error) = self.write(change, present.peer_version).await else {
                debug!(?change, "written");
                refusals.written(change);
                continue;
            };
            let (kind, name) = change.object();
            match self.stopped(&format!("{} {name}", plural(kind)), &error) {
                Stop::Failed(trouble) if is_of_one(change, &error) => {
                    warn!(
                        ?change,
                        message = trouble.message,
                        "refused: the others are written"
                    );
                    refusals.refused(change, trouble);
                }
                stop => return Err(stop),
            }
        }
        Ok(refusals)
    }

    /// Nobody announces what is new: Services that were not announced before are told, and the others stay.
    ///
    /// Pools tell nothing of that, for they are written all the same.
    fn strand(&self, round: &mut Round, world: &World, trouble: &Trouble) {
        let (old, new): (Vec<_>, Vec<_>) = world
            .services
            .iter()
            .partition(|(key, addresses)| self.was_announced(key, addresses, round.term));
        let kept: BTreeSet<IpAddr> = old
            .into_iter()
            .flat_map(|(_, addresses)| addresses)
            .copied()
            .collect();
        for (key, addresses) in new {
            // One that shares them is announced with the other.
            if !addresses.is_subset(&kept) {
                round
                    .placed
                    .retain(|address| kept.contains(address) || !addresses.contains(address));
                round.refused.insert(key.clone(), trouble.clone());
            }
        }
    }

    /// Was the Service let in before: by this leader, or by whom it has its word?
    fn was_announced(&self, key: &Key, wanted: &BTreeSet<IpAddr>, term: i64) -> bool {
        let Some(service) = self.gateway.cluster.services.index.get(key) else {
            return false;
        };
        let told: BTreeSet<IpAddr> = Record::of(&service)
            .addresses()
            .chain(addresses(&service))
            .collect();
        let wanted_list: Vec<IpAddr> = wanted.iter().copied().collect();
        wanted.is_subset(&told)
            || self
                .gateway
                .metallb
                .is_placed(key, &service.uid, &wanted_list, term)
    }

    async fn write(&self, change: &Change, peers: PeerVersion) -> Result<(), WriteError> {
        let writer = self.gateway.cluster.services.writer();
        let (kind, name) = change.object();
        let api = self.api.of(kind, peers);
        match change {
            Change::Apply { spec, .. } => {
                let body = body(kind, name, spec, peers);
                writer
                    .enforce::<DynamicObject>(&api, plural(kind), name, body)
                    .await
                    .map(drop)
            }
            Change::Patch {
                uid, version, patch, ..
            } => {
                let mut patch = patch.clone();
                patch["metadata"]["uid"] = json!(uid);
                patch["metadata"]["resourceVersion"] = json!(version);
                writer
                    .merge::<DynamicObject>(&api, plural(kind), name, patch)
                    .await
                    .map(drop)
            }
            Change::Delete { uid, version, .. } => {
                writer
                    .remove_read::<DynamicObject>(&api, plural(kind), name, uid, version)
                    .await
            }
        }
    }
}

/// The whole object, as it is applied.
fn body(kind: Kind, name: &str, spec: &Value, peers: PeerVersion) -> Value {
    let resource = resource(kind, peers);
    let (key, value) = MANAGED_BY;
    let mut body = json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": { "name": name, "labels": { key: value } },
    });
    if kind == Kind::Secret {
        body["type"] = json!(SECRET_TYPE);
        body["data"] = spec.clone();
    } else {
        body["spec"] = spec.clone();
    }
    body
}
