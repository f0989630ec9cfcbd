//! What there is of MetalLB's objects: read anew for each round.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::timeout;

use super::Stop;
use crate::announcers::Trouble;
use crate::announcers::metallb::MANAGED_BY;
use crate::announcers::metallb::resources::{Kind, Object, PeerVersion, Present};

const GROUP: &str = "metallb.io";

/// A read takes no longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Objects a page of a list.
const PAGE: u32 = 500;

/// The objects by which parts of MetalLB say what they think of its configuration.
const STATES: &str = "configurationstates";

/// Reads MetalLB's objects.
#[derive(Debug)]
pub(super) struct Api {
    client: ClientOf,
    namespace: String,
    /// Which version of `BGPPeer` is served, once that is known.
    peer_version: Mutex<Option<PeerVersion>>,
    /// The term of ours as the leader in which no Secret of ours was left, by a list.
    tidy: Mutex<Option<i64>>,
}

/// A client without its insides in logs.
struct ClientOf(Client);

impl std::fmt::Debug for ClientOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// The plural of a kind: its path, and its name in metrics.
pub(super) fn plural(kind: Kind) -> &'static str {
    match kind {
        Kind::Pool => "ipaddresspools",
        Kind::Peer => "bgppeers",
        Kind::BgpAdvertisement => "bgpadvertisements",
        Kind::L2Advertisement => "l2advertisements",
        Kind::Secret => "secrets",
    }
}

/// The API of a kind.
pub(super) fn resource(kind: Kind, peers: PeerVersion) -> ApiResource {
    let (group, version, name) = match kind {
        Kind::Pool => (GROUP, "v1beta1", "IPAddressPool"),
        Kind::Peer if peers == PeerVersion::V1Beta1 => (GROUP, "v1beta1", "BGPPeer"),
        Kind::Peer => (GROUP, "v1beta2", "BGPPeer"),
        Kind::BgpAdvertisement => (GROUP, "v1beta1", "BGPAdvertisement"),
        Kind::L2Advertisement => (GROUP, "v1beta1", "L2Advertisement"),
        Kind::Secret => ("", "v1", "Secret"),
    };
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, name), plural(kind))
}

impl Api {
    pub(super) fn new(client: Client, namespace: String) -> Self {
        Self {
            client: ClientOf(client),
            namespace,
            peer_version: Mutex::new(None),
            tidy: Mutex::new(None),
        }
    }

    /// The API of a kind, in MetalLB's namespace.
    pub(super) fn of(&self, kind: Kind, peers: PeerVersion) -> kube::Api<DynamicObject> {
        kube::Api::namespaced_with(self.client.0.clone(), &self.namespace, &resource(kind, peers))
    }

    /// Everything. Secrets, of which only ours are of interest, where there is a password, and until none is left: peers go before their
    /// Secrets, and whoever removed the one may have died before the other.
    pub(super) async fn read(&self, with_secrets: bool, term: i64) -> Result<Present, Stop> {
        let peer_version = self.version().await?;
        let list = |kind| self.list(kind, peer_version);
        let (pools, peers, bgp_advertisements, l2_advertisements) = tokio::try_join!(
            list(Kind::Pool),
            list(Kind::Peer),
            list(Kind::BgpAdvertisement),
            list(Kind::L2Advertisement)
        )?;
        let needed = with_secrets || peers.iter().any(names_secret);
        let tidy = *self.tidy.lock() == Some(term);
        let secrets = if needed || !tidy {
            match list(Kind::Secret).await {
                Ok(secrets) => {
                    *self.tidy.lock() = (secrets.is_empty() && !needed).then_some(term);
                    secrets
                }
                // A role without Secrets is enough for those who have no passwords.
                Err(_) if !needed => Vec::new(),
                Err(stop) => return Err(stop),
            }
        } else {
            Vec::new()
        };
        Ok(Present {
            pools,
            peers,
            bgp_advertisements,
            l2_advertisements,
            secrets,
            peer_version,
        })
    }

    /// What parts of MetalLB say that find its configuration invalid, by their names. Only 0.15.3 and later say so: where nothing can be
    /// read, nothing is said.
    pub(super) async fn complaints(&self) -> Vec<State> {
        let kind = GroupVersionKind::gvk(GROUP, "v1beta1", "ConfigurationState");
        let resource = ApiResource::from_gvk_with_plural(&kind, STATES);
        let api: kube::Api<DynamicObject> =
            kube::Api::namespaced_with(self.client.0.clone(), &self.namespace, &resource);
        let parameters = ListParams::default().limit(PAGE);
        let listed = match timeout(PATIENCE, api.list(&parameters)).await {
            Ok(Ok(listed)) => listed.items,
            Ok(Err(error)) => {
                tracing::debug!(%error, what = STATES, "not read");
                Vec::new()
            }
            Err(_) => Vec::new(),
        };
        let states = listed.into_iter().map(|object| plain(object, "status"));
        let invalid = states.filter(|state| state.spec["result"] == "Invalid");
        let mut invalid: Vec<State> = invalid.map(State::of).collect();
        invalid.sort_by(|a, b| a.name.cmp(&b.name));
        invalid
    }

    async fn version(&self) -> Result<PeerVersion, Stop> {
        if let Some(known) = *self.peer_version.lock() {
            return Ok(known);
        }
        for (version, name) in [
            (PeerVersion::V1Beta2, "metallb.io/v1beta2"),
            (PeerVersion::V1Beta1, "metallb.io/v1beta1"),
        ] {
            let served = self.client.0.list_api_group_resources(name);
            match timeout(PATIENCE, served).await {
                Ok(Ok(list)) if list.resources.iter().any(|resource| resource.name == "bgppeers") => {
                    *self.peer_version.lock() = Some(version);
                    return Ok(version);
                }
                Ok(Ok(_)) => {}
                Ok(Err(kube::Error::Api(status))) if status.code == 404 => {}
                Ok(Err(error)) => return Err(unreadable("the API group metallb.io", Some(&error))),
                Err(_) => return Err(unreadable("the API group metallb.io", None)),
            }
        }
        Err(Stop::Missing(missing()))
    }

    async fn list(&self, kind: Kind, peers: PeerVersion) -> Result<Vec<Object>, Stop> {
        let api = self.of(kind, peers);
        let mut parameters = ListParams::default().limit(PAGE);
        if kind == Kind::Secret {
            parameters = parameters.labels(&format!("{}={}", MANAGED_BY.0, MANAGED_BY.1));
        }
        let mut objects = Vec::new();
        loop {
            let page = match timeout(PATIENCE, api.list(&parameters)).await {
                Ok(Ok(page)) => page,
                Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                    // Uninstalled, or another version: look anew next time.
                    *self.peer_version.lock() = None;
                    return Err(Stop::Missing(missing()));
                }
                Ok(Err(error)) => return Err(unreadable(plural(kind), Some(&error))),
                Err(_) => return Err(unreadable(plural(kind), None)),
            };
            let token = page.metadata.continue_.clone().unwrap_or_default();
            let field = if kind == Kind::Secret { "data" } else { "spec" };
            objects.extend(page.items.into_iter().map(|object| plain(object, field)));
            if token.is_empty() {
                return Ok(objects);
            }
            parameters = parameters.continue_token(&token);
        }
    }
}

/// What a part of MetalLB thinks of its configuration.
#[derive(Debug)]
pub(super) struct State {
    /// `controller`, `speaker-<node>`.
    pub(super) name: String,
    pub(super) uid: String,
    /// In its own words.
    pub(super) summary: String,
}

impl State {
    fn of(object: Object) -> Self {
        let summary = object.spec["errorSummary"].as_str().unwrap_or_default();
        Self {
            summary: summary.trim().to_owned(),
            name: object.name,
            uid: object.uid,
        }
    }
}

fn names_secret(peer: &Object) -> bool {
    !peer.spec["passwordSecret"].is_null()
}

fn plain(object: DynamicObject, field: &str) -> Object {
    let DynamicObject {
        metadata, mut data, ..
    } = object;
    Object {
        name: metadata.name.unwrap_or_default(),
        uid: metadata.uid.unwrap_or_default(),
        version: metadata.resource_version.unwrap_or_default(),
        labels: metadata
            .labels
            .unwrap_or_default()
            .into_iter()
            .collect::<BTreeMap<_, _>>(),
        spec: data.get_mut(field).map_or(Value::Null, Value::take),
    }
}

fn missing() -> Trouble {
    Trouble {
        reason: "AnnouncerMissing",
        message: "This cluster has no MetalLB with custom resources (metallb.io). Install MetalLB 0.13 or later, or choose another \
                  gateway.announcer. It is tried again."
            .to_owned(),
    }
}

fn unreadable(what: &str, error: Option<&kube::Error>) -> Stop {
    tracing::debug!(what, error = error.map(tracing::field::display), "not read");
    let denied = match error {
        Some(kube::Error::Api(status)) => status.code == 403,
        _ => false,
    };
    let message = if denied {
        format!(
            "{what} in MetalLB's namespace may not be read: give the gateway's account the chart's role for MetalLB. It is tried again."
        )
    } else {
        format!("{what} cannot be read: the API server does not answer. It is tried again.")
    };
    Stop::Failed(Trouble {
        reason: "AnnouncerUnavailable",
        message,
    })
}
