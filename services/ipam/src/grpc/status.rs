//! What a refusal says besides its reason and text.

use groundplane_runtime::grpc::{Details, status as build};
use tonic::Status;

use crate::app::IpamError;
use crate::domain::{PutPoolsError, Refusal};

/// Our name in `ErrorInfo.domain`.
pub(super) const SERVICE: &str = "ipam";

pub(super) fn status(error: &IpamError) -> Status {
    let mut details = Details::default();
    match error {
        IpamError::Invalid(fields) => details.violations.clone_from(fields),
        IpamError::Pools(PutPoolsError::Problems(problems)) => {
            let violation = |problem: &crate::domain::PoolProblem| {
                (
                    format!("pools{}", problem.path),
                    format!("{}; {}", problem.message, problem.help),
                )
            };
            details.violations = problems.iter().map(violation).collect();
        }
        IpamError::UnknownStore { ours, .. } => details.metadata.push(("store_id".to_owned(), ours.clone())),
        IpamError::Adopting(cluster) => details.metadata.push(("cluster".to_owned(), cluster.to_string())),
        IpamError::Refused(refusal) => refused(refusal, &mut details),
        _ => {}
    }
    build(SERVICE, error, details)
}

fn refused(refusal: &Refusal, details: &mut Details) {
    match refusal {
        Refusal::Taken { prefix, holder } => {
            details.metadata.push(("holder".to_owned(), holder.to_string()));
            details
                .metadata
                .push(("holder_cluster".to_owned(), holder.cluster.to_string()));
            details.resource = Some(("address".to_owned(), prefix.to_string()));
        }
        Refusal::AlreadyHolds { held, .. } | Refusal::UidMismatch { held, .. } => {
            details.metadata.push(("held".to_owned(), held.to_string()));
            details.violations.push((held.to_string(), refusal.to_string()));
        }
        Refusal::Reserved { prefix, pool } => {
            details.metadata.push(("pool".to_owned(), pool.to_string()));
            details.violations.push((prefix.to_string(), refusal.to_string()));
        }
        Refusal::Draining(pool) => details.violations.push((pool.to_string(), refusal.to_string())),
        Refusal::OutsidePools(text) => details.violations.push(("address".to_owned(), text.clone())),
        Refusal::PoolNotFound(_) => details.resource = Some(("pool".to_owned(), String::new())),
        Refusal::PoolAmbiguous { .. } => {
            details
                .violations
                .push(("selector.pool".to_owned(), refusal.to_string()));
        }
        Refusal::Exhausted { pools, .. } => {
            let names: Vec<_> = pools.iter().map(ToString::to_string).collect();
            details.violations.push((names.join(","), refusal.to_string()));
        }
        Refusal::Quota { .. } => details
            .violations
            .push(("namespace".to_owned(), refusal.to_string())),
    }
}
