//! Does what a plan says beyond what the controllers do by themselves.

use std::sync::Arc;

use groundplane_proto::eip::v1::EnsureAddressResponse;
use groundplane_runtime::grpc::RpcError;
use tokio::time::timeout_at;
use tracing::info;

use super::gather::{GatherError, gather};
use super::plan::{Facts, Item, plan};
use crate::clients::messages;
use crate::cluster::objects::{Key, ServiceObject};
use crate::domain::service::{self, Scope};
use crate::failpoint::{Point, pass};
use crate::gateway::Gateway;

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error("the plan changed; look again (it is {0} now)")]
    Changed(String),
    #[error("{0}")]
    Rival(String),
    #[error("this replica does not lead; {0}")]
    NotLeader(String),
    #[error(transparent)]
    Gather(#[from] GatherError),
}

/// What became of an item.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) item: Item,
    pub(crate) ok: bool,
    pub(crate) detail: String,
}

/// Applies the plan of this id.
pub(crate) async fn apply(gateway: &Arc<Gateway>, id: &str) -> Result<Vec<Outcome>, ApplyError> {
    let facts = gather(gateway).await?;
    let plan = plan(&facts);
    if plan.id != id {
        return Err(ApplyError::Changed(plan.id));
    }
    if let Some(bar) = gateway.cluster.leader.rivals().bar() {
        return Err(ApplyError::Rival(bar));
    }
    if !gateway.cluster.leader.is_leader() {
        return Err(ApplyError::NotLeader(leader(gateway, id).await));
    }
    let mut outcomes = Vec::new();
    for item in plan.items {
        let Some(key) = &item.gives else {
            continue;
        };
        let given = give(gateway, &facts, key, &item.name).await;
        pass(Point::TakeoverAfterGive);
        let (ok, detail) = match given {
            Ok(detail) => (true, detail),
            Err(detail) => (false, detail),
        };
        info!(audit = true, reservation = item.name, service = %key, ok, detail, "takeover");
        outcomes.push(Outcome { item, ok, detail });
    }
    wake(gateway);
    Ok(outcomes)
}

/// Gives the Service the reservation, if it still has no address.
async fn give(gateway: &Gateway, facts: &Facts, key: &Key, reservation: &str) -> Result<String, String> {
    let service = facts.services.iter().find(|service| service.key == *key);
    let service = service.ok_or_else(|| "the Service is gone".to_owned())?;
    let cluster = gateway.cluster.identity.known().await;
    let scope = Scope::of(&gateway.config);
    let service::Plan::Hold(wish) = service::plan(service, &scope) else {
        return Err("the Service is not served any more".to_owned());
    };
    let request = {
        let mut request = messages::ensure(&cluster, service, &wish);
        request.adopt = vec![reservation.to_owned()];
        request.fresh = true;
        request
    };
    // While reservations are deleted that look like nobody's, none changes hands.
    let _open = gateway.doors.pass().await;
    let leader = &gateway.cluster.leader;
    let valid = leader
        .valid_until()
        .ok_or_else(|| "another replica leads now".to_owned())?;
    let answer: Result<EnsureAddressResponse, RpcError> =
        timeout_at(valid, gateway.services.eip.ensure_address(request))
            .await
            .map_err(|_| "it took longer than our lease is sure to last; apply again".to_owned())?;
    let answer = answer.map_err(|error| error.to_string())?;
    said(service, reservation, &answer)
}

fn said(
    service: &ServiceObject,
    reservation: &str,
    answer: &EnsureAddressResponse,
) -> Result<String, String> {
    let given = answer
        .addresses
        .iter()
        .find(|address| address.origin == reservation);
    match given {
        Some(address) => Ok(format!("{} is Service {}'s", address.prefix, service.key)),
        None => Err(format!("Service {} has another address by now", service.key)),
    }
}

/// Has the controllers look at everything.
fn wake(gateway: &Gateway) {
    let cluster = &gateway.cluster;
    for service in cluster.services.index.all() {
        gateway.queues.services.wake(service.key.clone());
    }
    for node in cluster.nodes.index.all() {
        gateway.queues.nodes.wake(node.key.clone());
        gateway.queues.bgp.wake(node.key.clone());
    }
    gateway.backend.wake();
}

/// Who leads, by the lease, and how it is told to apply the plan of this id.
async fn leader(gateway: &Gateway, id: &str) -> String {
    let Some(holder) = gateway.cluster.holder().await else {
        return "nobody does, or its lease cannot be read; try again in half a minute".to_owned();
    };
    // `identity` puts the name of the pod in front.
    let pod = holder.split_once('_').map_or(holder.as_str(), |(pod, _)| pod);
    let (namespace, _) = gateway.cluster.leader.lease();
    format!("pod {pod} does: kubectl -n {namespace} exec {pod} -- groundplane ctl takeover apply --plan {id}")
}
