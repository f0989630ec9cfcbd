//! What `ctl` shows: the gateway's messages as rows, each with the names that programs read.

use std::collections::BTreeMap;

use groundplane_proto::bgp::v1 as bgp;
use groundplane_proto::core::v1 as core;
use groundplane_proto::gateway::v1 as pb;
use groundplane_proto::instances::v1 as instances;
use groundplane_proto::ipam::v1 as ipam;
use serde::Serialize;

use crate::ctl::duration::{age, stamp};
use crate::ctl::table::{Row, Show, lay_out};

fn pool_name(pool: Option<core::PoolRef>) -> String {
    let core::PoolRef {
        source,
        namespace,
        name,
    } = pool.unwrap_or_default();
    match (source.as_str(), namespace.is_empty()) {
        ("file" | "", true) => name,
        ("file" | "", false) => format!("{namespace}/{name}"),
        (source, true) => format!("{source}:{name}"),
        (source, false) => format!("{source}:{namespace}/{name}"),
    }
}

fn owner_name(owner: Option<core::Owner>) -> String {
    let Some(core::Owner {
        cluster: _,
        kind,
        namespace,
        name,
        slot,
    }) = owner
    else {
        return String::new();
    };
    let slash = if namespace.is_empty() { "" } else { "/" };
    let hash = if slot.is_empty() { "" } else { "#" };
    format!("{kind} {namespace}{slash}{name}{hash}{slot}")
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PoolRow {
    name: String,
    network: String,
    addresses: Vec<String>,
    total: u64,
    used: u64,
    free: u64,
    cooling: u64,
    priority: i32,
    draining: bool,
}

impl From<ipam::PoolStatus> for PoolRow {
    fn from(status: ipam::PoolStatus) -> Self {
        let ipam::PoolStatus {
            pool,
            total,
            used,
            free,
            cooling,
            draining,
        } = status;
        let pool = pool.unwrap_or_default();
        Self {
            name: pool_name(pool.r#ref),
            network: pool.network,
            addresses: pool.addresses,
            total,
            used,
            free,
            cooling,
            priority: pool.priority,
            draining,
        }
    }
}

impl Row for PoolRow {
    const COLUMNS: &'static [&'static str] = &[
        "POOL",
        "NETWORK",
        "USED",
        "FREE",
        "COOLING",
        "TOTAL",
        "PRIORITY",
        "STATE",
        "ADDRESSES",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.network.clone(),
            self.used.to_string(),
            self.free.to_string(),
            self.cooling.to_string(),
            self.total.to_string(),
            self.priority.to_string(),
            if self.draining { "draining" } else { "open" }.to_owned(),
            self.addresses.join(","),
        ]
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AddressRow {
    address: String,
    owner: String,
    origin: String,
    since: String,
    state: String,
}

impl From<pb::AddressRow> for AddressRow {
    fn from(row: pb::AddressRow) -> Self {
        let pb::AddressRow {
            prefix,
            owner,
            origin,
            since,
            state,
        } = row;
        Self {
            address: prefix,
            owner: owner_name(owner),
            origin,
            since: stamp(since.as_ref()),
            state,
        }
    }
}

impl Row for AddressRow {
    const COLUMNS: &'static [&'static str] = &["ADDRESS", "OWNER", "ORIGIN", "SINCE", "STATE"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.address.clone(),
            self.owner.clone(),
            self.origin.clone(),
            self.since.clone(),
            self.state.clone(),
        ]
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MachineRow {
    provider_id: String,
    hostname: String,
    node: String,
    instance_type: String,
    zone: String,
    region: String,
    power: &'static str,
    addresses: Vec<String>,
}

impl From<pb::MachineRow> for MachineRow {
    fn from(row: pb::MachineRow) -> Self {
        let machine = row.machine.unwrap_or_default();
        let power = match machine.power() {
            instances::PowerState::On => "on",
            instances::PowerState::Off => "off",
            instances::PowerState::Unspecified => "unknown",
        };
        Self {
            provider_id: machine.provider_id,
            hostname: machine.hostname,
            node: row.node,
            instance_type: machine.instance_type,
            zone: machine.zone,
            region: machine.region,
            power,
            addresses: machine
                .addresses
                .into_iter()
                .map(|address| address.address)
                .collect(),
        }
    }
}

impl Row for MachineRow {
    const COLUMNS: &'static [&'static str] = &[
        "MACHINE",
        "HOSTNAME",
        "NODE",
        "TYPE",
        "ZONE",
        "REGION",
        "POWER",
        "ADDRESSES",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.provider_id.clone(),
            self.hostname.clone(),
            self.node.clone(),
            self.instance_type.clone(),
            self.zone.clone(),
            self.region.clone(),
            self.power.to_owned(),
            self.addresses.join(","),
        ]
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PeerRow {
    machine: String,
    node: String,
    peer_address: String,
    peer_asn: u32,
    local_asn: u32,
    source_address: String,
    gateway: String,
    private_network: String,
    sessions: BTreeMap<String, String>,
}

impl PeerRow {
    /// One row a peer of the machine.
    pub(crate) fn of(machine: bgp::MachinePeers) -> Vec<Self> {
        let bgp::MachinePeers {
            provider_id,
            node,
            peers,
            session_status,
            private_network,
            gateway,
        } = machine;
        let row = |peer: bgp::Peer| Self {
            machine: provider_id.clone(),
            node: node.clone(),
            peer_address: peer.peer_address,
            peer_asn: peer.peer_asn,
            local_asn: peer.local_asn,
            source_address: peer.source_address,
            gateway: gateway.clone(),
            private_network: private_network.clone(),
            sessions: session_status.clone(),
        };
        peers.into_iter().map(row).collect()
    }
}

impl Row for PeerRow {
    const COLUMNS: &'static [&'static str] = &[
        "NODE", "MACHINE", "PEER", "PEER-AS", "LOCAL-AS", "SOURCE", "GATEWAY", "SESSIONS",
    ];

    fn cells(&self) -> Vec<String> {
        let sessions = self
            .sessions
            .iter()
            .map(|(family, status)| format!("{family}={status}"));
        vec![
            self.node.clone(),
            self.machine.clone(),
            self.peer_address.clone(),
            self.peer_asn.to_string(),
            self.local_asn.to_string(),
            self.source_address.clone(),
            self.gateway.clone(),
            sessions.collect::<Vec<_>>().join(" "),
        ]
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Explanation {
    summary: String,
    addresses: Vec<String>,
    steps: Vec<Step>,
    cache_age_seconds: Option<i64>,
}

#[derive(Debug, Serialize)]
struct Step {
    title: String,
    ok: bool,
    detail: String,
}

impl From<pb::ExplainObjectResponse> for Explanation {
    fn from(answer: pb::ExplainObjectResponse) -> Self {
        let pb::ExplainObjectResponse {
            summary,
            steps,
            addresses,
            cache_age,
        } = answer;
        let step = |pb::Step { title, ok, detail }| Step { title, ok, detail };
        Self {
            summary,
            addresses,
            steps: steps.into_iter().map(step).collect(),
            cache_age_seconds: cache_age.map(|age| age.seconds),
        }
    }
}

impl Show for Explanation {
    fn text(&self) -> String {
        let mark = |ok: bool| if ok { "ok" } else { "NO" }.to_owned();
        let rows = self
            .steps
            .iter()
            .map(|step| vec![mark(step.ok), step.title.clone(), step.detail.clone()]);
        let told = |seconds| format!("\nfrom a cache that is {} old\n", age(seconds));
        let cached = self.cache_age_seconds.map(told).unwrap_or_default();
        format!("{}\n\n{}{cached}", self.summary, lay_out(rows.collect()))
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Overview {
    version: String,
    cluster: String,
    driver: String,
    leader: bool,
    leader_identity: String,
    services: u32,
    services_with_address: u32,
    nodes: u32,
    nodes_initialized: u32,
    queue_length: u32,
    cache_age_seconds: i64,
    store_id: String,
    store_revision: u64,
    dependencies: BTreeMap<String, String>,
}

impl From<pb::OverviewResponse> for Overview {
    fn from(answer: pb::OverviewResponse) -> Self {
        Self {
            version: answer.version,
            cluster: answer.cluster,
            driver: answer.driver,
            leader: answer.leader,
            leader_identity: answer.leader_identity,
            services: answer.services,
            services_with_address: answer.services_with_address,
            nodes: answer.nodes,
            nodes_initialized: answer.nodes_initialized,
            queue_length: answer.queue_length,
            cache_age_seconds: answer.cache_age.map(|age| age.seconds).unwrap_or_default(),
            store_id: answer.store_id,
            store_revision: answer.store_revision,
            dependencies: answer.dependencies,
        }
    }
}

impl Show for Overview {
    fn text(&self) -> String {
        let leader = if self.leader {
            "this one"
        } else {
            self.leader_identity.as_str()
        };
        let mut rows = vec![
            ("version", self.version.clone()),
            ("cluster", self.cluster.clone()),
            ("driver", self.driver.clone()),
            ("leader", leader.to_owned()),
            (
                "services",
                format!(
                    "{} of {} have their address",
                    self.services_with_address, self.services
                ),
            ),
            (
                "nodes",
                format!("{} of {} are initialised", self.nodes_initialized, self.nodes),
            ),
            ("queue", self.queue_length.to_string()),
            ("cache", format!("{} old", age(self.cache_age_seconds))),
            (
                "ipam store",
                format!("{} at revision {}", self.store_id, self.store_revision),
            ),
        ];
        rows.extend(
            self.dependencies
                .iter()
                .map(|(name, state)| (name.as_str(), state.clone())),
        );
        lay_out(
            rows.into_iter()
                .map(|(name, value)| vec![name.to_owned(), value])
                .collect(),
        )
    }
}
