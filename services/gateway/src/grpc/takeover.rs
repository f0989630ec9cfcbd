//! Taking a cluster over: the plan, and its application.

use std::sync::Arc;

use groundplane_core::{ErrorKind, Kinded};
use groundplane_proto::gateway::v1 as pb;
use groundplane_runtime::grpc::{Details, forward, status};
use tonic::Status;

use crate::gateway::Gateway;
use crate::takeover::{self, Action, ApplyError, GatherError, Item, Outcome};

/// What becomes of what an older controller left.
pub(super) async fn plan(gateway: &Gateway) -> Result<pb::PlanTakeoverResponse, Status> {
    let facts = takeover::gather(gateway).await.map_err(ApplyError::Gather)?;
    let plan = takeover::plan(&facts);
    Ok(pb::PlanTakeoverResponse {
        plan_id: plan.id,
        items: plan.items.into_iter().map(item).collect(),
        leader: gateway.cluster.leader.is_leader(),
    })
}

/// Does what the plan says.
pub(super) async fn apply(gateway: &Arc<Gateway>, id: &str) -> Result<pb::ApplyTakeoverResponse, Status> {
    let outcomes = takeover::apply(gateway, id).await?;
    let outcome = |Outcome {
                       item: one,
                       ok,
                       detail,
                   }| pb::TakeoverOutcome {
        item: Some(item(one)),
        ok,
        detail,
    };
    Ok(pb::ApplyTakeoverResponse {
        outcomes: outcomes.into_iter().map(outcome).collect(),
    })
}

fn item(item: Item) -> pb::TakeoverItem {
    let action = match item.action {
        Action::Adopt => pb::TakeoverAction::Adopt,
        Action::Change => pb::TakeoverAction::Change,
        Action::Leave => pb::TakeoverAction::Leave,
        Action::Blocked => pb::TakeoverAction::Blocked,
    };
    pb::TakeoverItem {
        group: item.group.to_owned(),
        kind: item.kind.to_owned(),
        name: item.name,
        found: item.found,
        action: action.into(),
        detail: item.detail,
        needs_apply: item.gives.is_some(),
    }
}

impl Kinded for ApplyError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Changed(_) => ErrorKind::Conflict,
            Self::Rival(_) | Self::NotLeader(_) => ErrorKind::Precondition,
            Self::Gather(GatherError::Service(error)) => error.kind,
            Self::Gather(_) => ErrorKind::Unavailable,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Changed(_) => "PLAN_CHANGED",
            Self::Rival(_) => "OLDER_CONTROLLER_RUNS",
            Self::NotLeader(_) => "NOT_LEADER",
            Self::Gather(GatherError::NotSynced) => "NOT_SYNCED",
            Self::Gather(GatherError::NoCluster) => "CLUSTER_UNKNOWN",
            Self::Gather(GatherError::Read(_)) => "API_UNREADABLE",
            Self::Gather(GatherError::Service(error)) => error.reason(),
        }
    }
}

impl From<ApplyError> for Status {
    fn from(error: ApplyError) -> Self {
        match &error {
            ApplyError::Gather(GatherError::Service(error)) => forward("gateway", error),
            error => status("gateway", error, Details::default()),
        }
    }
}
