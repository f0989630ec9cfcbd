//! Between messages and values.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use groundplane_core::NodeName;
use groundplane_proto::health::v1 as proto;
use groundplane_runtime::grpc::InvalidField;

use crate::app::{Asked, Observation, Report};
use crate::domain::{Candidate, Cause, Holder, Outcome, Sign, Situation};
use crate::error::HealthError;

/// An address and a port that can be connected to.
pub(super) fn address(field: &str, text: &str) -> Result<SocketAddr, HealthError> {
    let refuse = |problem: &str| -> HealthError {
        let help = "write an address and a port: `10.0.0.5:6443`, `[2001:db8::5]:6443`";
        InvalidField::new(field, format!("`{text}` {problem}; {help}")).into()
    };
    let address: SocketAddr = text.parse().map_err(|_| refuse("is no address and port"))?;
    if address.port() == 0 {
        return Err(refuse("has no port"));
    }
    if address.ip().is_unspecified() || address.ip().is_multicast() {
        return Err(refuse("is nobody's address"));
    }
    Ok(address)
}

pub(super) fn asked(request: &proto::WatchEndpointRequest) -> Result<Asked, HealthError> {
    let endpoint = address("endpoint", &request.endpoint)?;
    let mut candidates = BTreeMap::new();
    for (index, candidate) in request.candidates.iter().enumerate() {
        let field = |name: &str| format!("candidates[{index}].{name}");
        let (node, value) = self::candidate(&field, candidate)?;
        if candidates.insert(node.clone(), value).is_some() {
            return Err(InvalidField::new(field("node"), format!("`{node}` is there twice")).into());
        }
    }
    let holder = match (request.holder.as_str(), request.holder_unknown) {
        ("", true) => Holder::Unknown,
        ("", false) => Holder::Nobody,
        (_, true) => {
            let message = "a holder that is named is not unknown";
            return Err(InvalidField::new("holder_unknown", message).into());
        }
        (name, false) => Holder::Node(node("holder", name)?),
    };
    Ok(Asked {
        endpoint,
        situation: Situation {
            candidates,
            holder,
            own_addresses_only: request.own_addresses_only,
        },
        revision: request.revision,
    })
}

fn candidate(
    field: &impl Fn(&str) -> String,
    candidate: &proto::Candidate,
) -> Result<(NodeName, Candidate), HealthError> {
    let value = Candidate {
        address: address(&field("address"), &candidate.address)?,
        cordoned: candidate.cordoned,
        deleting: candidate.deleting,
        refused: candidate.refused,
    };
    Ok((node(&field("node"), &candidate.node)?, value))
}

fn node(field: &str, name: &str) -> Result<NodeName, HealthError> {
    name.parse()
        .map_err(|error| InvalidField::new(field, error).into())
}

pub(super) fn report(report: &Report, now: Instant) -> proto::WatchEndpointResponse {
    let decision = &report.decision;
    let move_to = decision.move_to.as_ref().map(ToString::to_string);
    proto::WatchEndpointResponse {
        detected_after: move_to.is_some().then(|| duration(decision.detected_after)),
        move_to: move_to.unwrap_or_default(),
        reason: decision.reason.clone(),
        revision: report.revision,
        observations: report
            .observations
            .iter()
            .map(|seen| observation(seen, now))
            .collect(),
        cause: cause(decision.cause).into(),
        verdict: decision.verdict,
    }
}

fn cause(cause: Option<Cause>) -> proto::Cause {
    match cause {
        None => proto::Cause::Unspecified,
        Some(Cause::Dead) => proto::Cause::Dead,
        Some(Cause::Unheld) => proto::Cause::Unheld,
        Some(Cause::Cordoned) => proto::Cause::Cordoned,
        Some(Cause::Deleting) => proto::Cause::Deleting,
    }
}

fn observation(seen: &Observation, now: Instant) -> proto::Observation {
    proto::Observation {
        node: seen.node.clone(),
        address: seen.address.to_string(),
        ready: seen.sign == Some(Sign::Ready),
        misses: seen.misses,
        detail: seen.detail.clone(),
        age: seen
            .probed
            .map(|(ended, _)| duration(now.saturating_duration_since(ended))),
        took: seen.probed.map(|(_, took)| duration(took)),
    }
}

pub(super) fn outcome(outcome: Outcome) -> proto::ProbeResponse {
    proto::ProbeResponse {
        ready: outcome.sign == Sign::Ready,
        detail: outcome.detail,
        took: Some(duration(outcome.took)),
    }
}

/// Durations of ours are far below what protobuf can hold.
fn duration(duration: Duration) -> prost_types::Duration {
    duration.try_into().unwrap_or_default()
}
