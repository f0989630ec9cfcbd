//! A round by custom resources.

use kube::api::DynamicObject;
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use super::present::{plural, resource};
use super::{MetallbController, Stop, settings};
use crate::announcers::metallb::resources::{self, Change, Kind, PeerVersion};
use crate::announcers::metallb::{MANAGED_BY, Round};
use crate::cluster::WriteError;

/// The type that MetalLB asks of Secrets with passwords: of another one, it stops reading its configuration.
const SECRET_TYPE: &str = "kubernetes.io/basic-auth";

impl MetallbController {
    pub(super) async fn by_custom_resources(&self) -> Result<Round, Stop> {
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
        for change in &plan.changes {
            let written = self.write(change, present.peer_version).await;
            let (kind, name) = change.object();
            if let Err(error) = written {
                return Err(self.stopped(&format!("{} {name}", plural(kind)), &error));
            }
            debug!(?change, "written");
        }
        if !plan.changes.is_empty() {
            info!(
                changes = plan.changes.len(),
                addresses = plan.placed.len(),
                "MetalLB is told"
            );
        }
        Ok(Round {
            generation,
            term,
            placed: plan.placed,
            complete: world.complete,
            refused: std::collections::BTreeMap::new(),
        })
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
