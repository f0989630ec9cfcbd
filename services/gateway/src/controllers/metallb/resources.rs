//! A round by custom resources.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use kube::api::DynamicObject;
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use super::present::{State, plural, resource};
use super::refusals::{Refusals, is_of_one, is_taken};
use super::{MetallbController, Stop, Told};
use crate::announcers::metallb::resources::{self, Change, Kind, PeerVersion, Present, Read};
use crate::announcers::metallb::world::{Peer, World};
use crate::announcers::metallb::{MANAGED_BY, Round, peers};
use crate::announcers::{Record, Trouble};
use crate::cluster::objects::Key;
use crate::cluster::{Event, WriteError};
use crate::domain::service::addresses;

/// No more of what MetalLB says of itself goes into a condition.
const LONGEST_COMPLAINT: usize = 400;

/// The type that MetalLB asks of Secrets with passwords: of another one, it stops reading its configuration.
const SECRET_TYPE: &str = "kubernetes.io/basic-auth";

impl MetallbController {
    pub(super) async fn by_custom_resources(&self) -> Result<Told, Stop> {
        let term = self.gateway.cluster.leader.term();
        let (world, generation) = self.world();
        let world = self.with_hidden(world).await?;
        let secret = |peer: &Peer| !peer.password.is_empty();
        let with_secrets = world
            .nodes
            .values()
            .any(|node| node.peers.known().iter().any(secret));
        let present = self.api.read(with_secrets, term).await?;
        self.listen(&self.api.complaints().await);
        let plan = resources::plan(&world, &present, &self.metallb.settings);
        for note in &plan.notes {
            warn!(note, "not all is as it should be at MetalLB");
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
        if let Some(message) = plan.unannounced {
            warn!(message, "what is new is not announced");
            let reason = "NotAdvertised";
            self.strand(&mut round, &world, &Trouble { reason, message });
        }
        let refusal = refusals.end(&world).map(|(trouble, stranded)| {
            if stranded {
                self.strand(&mut round, &world, &trouble);
            }
            trouble
        });
        Ok(Told { round, refusal })
    }

    /// Tells what MetalLB itself has against its configuration. It goes on with the last one that it accepted, so that whatever is new is
    /// not announced, whoever wrote what it does not like.
    fn listen(&self, states: &[State]) {
        let complaint = complaint(states);
        if !self.metallb.board.complains(complaint.clone()) {
            return;
        }
        let Some(complaint) = complaint else {
            info!("MetalLB accepts its configuration again");
            return;
        };
        warn!(
            message = complaint.message,
            "MetalLB does not accept its configuration"
        );
        for state in states {
            let key = Key::namespaced(&self.gateway.config.metallb.namespace, &state.name);
            let message = format!(
                "MetalLB goes on with its last valid configuration: {}",
                state.summary
            );
            let event = Event::warning("MetalLBConfigurationInvalid", message);
            let events = &self.gateway.cluster.events;
            events.record_about("ConfigurationState", &key, &state.uid, event);
        }
    }

    /// Writes one after the other, but for what is refused by itself.
    pub(super) async fn write_all<'a>(
        &self,
        changes: &'a [Change],
        present: &'a Present,
    ) -> Result<Refusals<'a>, Stop> {
        let mut refusals = Refusals::new(changes, present);
        // Some are written twice in a round.
        let mut written = BTreeMap::new();
        for change in changes {
            if refusals.bars(change) {
                debug!(?change, "left alone, for what was refused");
                refusals.unwritten(change);
                continue;
            }
            let Err(error) = self.write(change, present.peer_version, &mut written).await else {
                debug!(?change, "written");
                refusals.written(change);
                continue;
            };
            if matches!(error, WriteError::Gone(_)) && change.is_of_read() {
                return Err(Stop::Again);
            }
            let trouble = if is_taken(change, &error) {
                self.taken(change)
            } else {
                let (kind, name) = change.object();
                match self.stopped(&format!("{} {name}", plural(kind)), &error) {
                    Stop::Failed(trouble) if is_of_one(change, &error) => trouble,
                    stop => return Err(stop),
                }
            };
            self.tell_refusal(change, present, &trouble);
            refusals.refused(change, trouble);
        }
        Ok(refusals)
    }

    /// A Secret that is not ours stands where ours should.
    fn taken(&self, change: &Change) -> Trouble {
        let (_, name) = change.object();
        let (key, value) = MANAGED_BY;
        let namespace = &self.gateway.config.metallb.namespace;
        Trouble {
            reason: "AnnouncerRefused",
            message: format!(
                "The Secret {namespace}/{name} is not groundplane's, and stands where the password of BGPPeer {name} belongs: it is left \
                 alone, and so is that peer. Rename or delete it, or give it to groundplane with the label {key}={value}. It is tried again."
            ),
        }
    }

    /// Says of an object that it was refused. Who looks for it finds it beside MetalLB's own events.
    fn tell_refusal(&self, change: &Change, present: &Present, trouble: &Trouble) {
        warn!(
            ?change,
            message = trouble.message,
            "refused: the others are written"
        );
        let (kind, name) = change.object();
        let peer = present.peers.iter().find(|peer| peer.name == name);
        let uid = peer.filter(|_| kind == Kind::Peer).map_or("", |peer| &*peer.uid);
        let about = if kind == Kind::Secret { "Secret" } else { "BGPPeer" };
        let key = Key::namespaced(&self.gateway.config.metallb.namespace, name);
        let event = Event::warning(trouble.reason, trouble.message.clone());
        let events = &self.gateway.cluster.events;
        events.record_about(about, &key, uid, event);
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
                .metallb
                .board
                .is_placed(key, &service.uid, &wanted_list, term)
    }

    /// Writes one object, if it is still as it was read, or as this round has written it.
    async fn write(
        &self,
        change: &Change,
        peers: PeerVersion,
        written: &mut BTreeMap<(Kind, String), Read>,
    ) -> Result<(), WriteError> {
        let writer = self.gateway.cluster.services.writer();
        let (kind, name) = change.object();
        let (api, what) = (self.api.of(kind, peers), plural(kind));
        let at = (kind, name.to_owned());
        let latest = |read: &Read| written.get(&at).unwrap_or(read).clone();
        let object: DynamicObject = match change {
            Change::Apply { read: None, spec, .. } => {
                let object = whole(kind, name, spec, peers);
                writer.create(&api, what, &object).await?
            }
            Change::Apply {
                read: Some(read),
                spec,
                ..
            } => {
                let patch = insisting(changed(kind, spec), &latest(read));
                writer.merge(&api, what, name, patch).await?
            }
            Change::Patch { read, patch, .. } => {
                let patch = insisting(patch.clone(), &latest(read));
                writer.merge(&api, what, name, patch).await?
            }
            Change::Delete { read, .. } => {
                let Read { uid, version } = latest(read);
                written.remove(&at);
                return writer
                    .remove_read::<DynamicObject>(&api, what, name, &uid, &version)
                    .await;
            }
        };
        let read = Read {
            uid: object.metadata.uid.unwrap_or_default(),
            version: object.metadata.resource_version.unwrap_or_default(),
        };
        written.insert(at, read);
        Ok(())
    }
}

/// What parts of MetalLB have against its configuration, for the Services that wait for it.
fn complaint(states: &[State]) -> Option<Trouble> {
    let first = states.first()?;
    let more = match states.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let summary: String = first.summary.chars().take(LONGEST_COMPLAINT).collect();
    Some(Trouble {
        reason: "AnnouncerInvalid",
        message: format!(
            "MetalLB finds its configuration invalid, and goes on with the last one that was valid. Its {}{more} says: {summary}. Mend what \
             it names; see its ConfigurationState objects.",
            first.name
        ),
    })
}

/// A patch of an object that happens only if it is still this one.
fn insisting(mut patch: Value, read: &Read) -> Value {
    patch["metadata"]["uid"] = json!(read.uid);
    patch["metadata"]["resourceVersion"] = json!(read.version);
    patch
}

/// What an object of ours shall say, as a merge patch.
fn changed(kind: Kind, spec: &Value) -> Value {
    match kind {
        Kind::Secret => json!({ "data": spec }),
        Kind::Peer => json!({ "spec": peers::patch_of(spec) }),
        _ => json!({ "spec": spec }),
    }
}

/// The whole object, as it is created.
fn whole(kind: Kind, name: &str, spec: &Value, peers: PeerVersion) -> DynamicObject {
    let (key, value) = MANAGED_BY;
    let mut object = DynamicObject::new(name, &resource(kind, peers));
    object
        .metadata
        .labels
        .get_or_insert_default()
        .insert(key.to_owned(), value.to_owned());
    object.data = if kind == Kind::Secret {
        json!({ "type": SECRET_TYPE, "data": spec })
    } else {
        json!({ "spec": spec })
    };
    object
}
