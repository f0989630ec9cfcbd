//! BGP: the project's configuration, sessions, neighbours.

use std::num::NonZeroU32;

use async_trait::async_trait;
use groundplane_core::{Family, ProviderId};
use http::Method;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use super::pages::List;
use super::{Equinix, PASSWORD_FIELD, need_device, provider_id, wire};
use crate::error::not_absence;
use crate::http::Call;
use crate::{BgpFabric, BgpProject, CloudError, CloudErrorKind, NeighborQuery, Neighbors, Peer, Session};

const LIST: List = List {
    operation: "list BGP sessions",
    route: "/projects/{pid}/bgp/sessions",
    path: "bgp/sessions",
    include: None,
    may_lack_meta: true,
};

#[async_trait]
impl BgpFabric for Equinix {
    fn needs_sessions(&self) -> bool {
        true
    }

    async fn project(&self) -> Result<Option<BgpProject>, CloudError> {
        let call = Call::new(
            "read BGP configuration",
            Method::GET,
            "/projects/{pid}/bgp-config",
            self.in_project("bgp-config"),
        );
        project(&call, self.http.read(&call).await.map_err(not_absence)?)
    }

    async fn enable(&self) -> Result<BgpProject, CloudError> {
        let call = Call::new(
            "enable BGP",
            Method::POST,
            "/projects/{pid}/bgp-configs",
            self.in_project("bgp-configs"),
        );
        let password = self.configured_password(&call)?;
        let mut body = json!({
            "asn": self.config.bgp.local_asn,
            "deployment_type": "local",
            "use_case": "kubernetes-load-balancer",
        });
        if let (Some(password), Some(fields)) = (&password, body.as_object_mut()) {
            fields.insert("md5".to_owned(), password.expose_secret().into());
        }
        match self.http.send(&call.body(body)).await {
            Ok(()) => {}
            // Another replica may have been faster; then the project has it, and it cannot be changed.
            Err(error)
                if matches!(
                    error.kind,
                    CloudErrorKind::Refused | CloudErrorKind::AlreadyExists
                ) =>
            {
                return self.project().await?.ok_or(error);
            }
            Err(error) => return Err(not_absence(error)),
        }
        self.project().await?.ok_or_else(|| {
            CloudError::new(
                CloudErrorKind::Unavailable,
                "enable BGP",
                "accepted, but the project does not show it",
            )
        })
    }

    async fn sessions(&self) -> Result<Vec<Session>, CloudError> {
        self.list_all::<wire::Session>(LIST)
            .await?
            .into_iter()
            .map(session)
            .collect()
    }

    async fn create_session(&self, machine: &ProviderId, family: Family) -> Result<(), CloudError> {
        let device = need_device(machine, "create BGP session")?;
        let word = match family {
            Family::V4 => "ipv4",
            Family::V6 => "ipv6",
        };
        let call = Call::new(
            format!("create BGP session for {device}"),
            Method::POST,
            "/devices/{id}/bgp/sessions",
            format!("/devices/{device}/bgp/sessions"),
        )
        .body(json!({ "address_family": word }));
        match self.http.send(&call).await {
            Err(error) if error.message.to_ascii_lowercase().contains("already has session") => Ok(()),
            result => result,
        }
    }

    async fn neighbors(&self, query: &NeighborQuery) -> Result<Neighbors, CloudError> {
        let device = need_device(&query.machine, "read BGP neighbors")?;
        let neighbors = Call::new(
            format!("read BGP neighbors of {device}"),
            Method::GET,
            "/devices/{id}/bgp/neighbors",
            format!("/devices/{device}/bgp/neighbors"),
        );
        let (neighbors, network) = futures::future::try_join(
            self.http.read::<wire::Neighbors>(&neighbors),
            self.network_of(&device),
        )
        .await?;
        let rows = first_of_each_family(neighbors.bgp_neighbors);
        let mut peers: Vec<Peer> = rows.flat_map(peers_of).collect();
        peers.sort_by_key(|peer| peer.address);
        peers.dedup_by_key(|peer| peer.address);
        Ok(Neighbors {
            peers,
            private_network: network.block,
            gateway: network.gateway,
        })
    }
}

impl Equinix {
    fn configured_password(&self, call: &Call) -> Result<Option<SecretString>, CloudError> {
        let file = self.config.bgp.password_file.as_ref();
        file.map(|file| file.read(PASSWORD_FIELD))
            .transpose()
            .map_err(|error| call.error(CloudErrorKind::Refused, error.to_string()))
    }
}

/// `None`: never asked for, or switched off. A status that we do not know is no answer, since "off" would make us ask again.
fn project(call: &Call, config: wire::BgpConfig) -> Result<Option<BgpProject>, CloudError> {
    let unreadable = |what: &str| call.error(CloudErrorKind::Unavailable, what);
    let pending = match config.status.as_deref() {
        None if config.id.is_none() => return Ok(None),
        Some("disabled") => return Ok(None),
        Some("enabled") => false,
        Some("requested") => true,
        Some(other) => return Err(unreadable(&format!("unknown status `{other}`"))),
        None => return Err(unreadable("no status")),
    };
    let local_asn = config.asn.ok_or_else(|| unreadable("no AS number"))?;
    let password = config.md5.filter(|md5| !md5.expose_secret().is_empty());
    Ok(Some(BgpProject {
        enabled: true,
        pending,
        local_asn,
        password,
        max_prefixes: config.max_prefix.and_then(NonZeroU32::new),
    }))
}

fn session(row: wire::Session) -> Result<Session, CloudError> {
    let family = match row.address_family.as_str() {
        "ipv4" => Family::V4,
        "ipv6" => Family::V6,
        other => {
            let message = format!("session {} has the unknown family `{other}`", row.id);
            return Err(CloudError::new(
                CloudErrorKind::Unavailable,
                LIST.operation,
                message,
            ));
        }
    };
    let device = if row.device.id.is_empty() {
        wire::Link {
            href: row.device.href,
        }
        .id()
        .to_owned()
    } else {
        row.device.id
    };
    Ok(Session {
        id: row.id,
        machine: provider_id(&device, LIST.operation)?,
        family,
        status: row.status,
    })
}

/// A machine has one session a family, and so one row; of more the cloud's own controller reads the first, and so do we: what nodes were
/// told stays.
fn first_of_each_family(rows: Vec<wire::Neighbor>) -> impl Iterator<Item = wire::Neighbor> {
    let mut seen = Vec::new();
    rows.into_iter().filter(move |row| {
        let family = row.peer_ips.first().map(|peer| Family::of(*peer));
        let is_first = family.is_some_and(|family| !seen.contains(&family));
        seen.extend(family);
        is_first
    })
}

fn peers_of(row: wire::Neighbor) -> impl Iterator<Item = Peer> {
    let password = row
        .md5_password
        .filter(|text| !text.expose_secret().is_empty() && row.md5_enabled != Some(false));
    row.peer_ips.into_iter().map(move |address| Peer {
        address,
        asn: row.peer_as,
        local_asn: row.customer_as,
        // The switches take only what comes from the machine's own address.
        source: row.customer_ip,
        password: password.clone(),
        multihop: row.multihop,
        port: None,
    })
}
