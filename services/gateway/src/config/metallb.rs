//! The section `gateway.metallb`: how MetalLB is told.

use std::time::Duration;

use groundplane_runtime::config::{HumanDuration, Problem};
use serde::{Deserialize, Serialize};

/// MetalLB ends a session that is silent for this long, if the neighbour agrees.
const HOLD_TIME: Duration = Duration::from_secs(30);

/// RFC 4271: a hold time is 0 or three seconds and more. 0 would leave a dead neighbour undetected.
const SHORTEST_HOLD_TIME: Duration = Duration::from_secs(3);

/// How MetalLB is told. Read where the announcer is `metallb` or `metallb-configmap`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Metallb {
    /// MetalLB's own namespace, in which its objects must be.
    pub namespace: String,
    /// Announcer `metallb-configmap`: the `ConfigMap` in that namespace, whose key `config` MetalLB up to 0.12 reads.
    pub config_map: String,
    /// How nodes and their peers become `BGPPeer` objects.
    pub peer_mode: PeerMode,
    /// What makes MetalLB announce the addresses, where no object of the user does.
    pub advertisement: Advertisement,
    /// Hold time of the sessions, 3s or more. Not in the `ConfigMap`, where MetalLB's own default applies.
    pub hold_time: HumanDuration,
}

impl Default for Metallb {
    fn default() -> Self {
        Self {
            namespace: "metallb-system".to_owned(),
            config_map: "config".to_owned(),
            peer_mode: PeerMode::default(),
            advertisement: Advertisement::default(),
            hold_time: HOLD_TIME.into(),
        }
    }
}

/// How nodes and their peers become `BGPPeer` objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerMode {
    /// One for each peer of each node, with the node's source address. For MetalLB in `native` mode, and from 0.16 on in every mode.
    #[default]
    Native,
    /// One for each peer that nodes have in common. For the FRR modes, which up to 0.15 refuse two objects with one address.
    Frr,
    /// None: the user writes them.
    None,
}

/// What makes MetalLB announce addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Advertisement {
    /// A `BGPAdvertisement` of all our pools.
    #[default]
    Bgp,
    /// An `L2Advertisement` of all our pools, and no peers.
    L2,
    /// Nothing: the user writes it.
    None,
}

impl Metallb {
    /// What is wrong with it, all at once.
    pub(super) fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (path, name) in [("namespace", &self.namespace), ("configMap", &self.config_map)] {
            if name.is_empty() || name.contains(['/', ':']) {
                problems.push(Problem::new(
                    path,
                    "is no name",
                    "write the name alone, such as `metallb-system` and `config`",
                ));
            }
        }
        let hold_time = self.hold_time.0;
        if hold_time < SHORTEST_HOLD_TIME || hold_time.subsec_nanos() != 0 || hold_time.as_secs() > 65_535 {
            problems.push(Problem::new(
                "holdTime",
                "must be whole seconds, from 3s to 65535s",
                "write `30s`",
            ));
        }
        problems
    }
}
