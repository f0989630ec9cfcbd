//! Why an object has, or does not have, what it should have.

mod node;
mod service;

use groundplane_proto::gateway::v1::{ExplainObjectRequest, ExplainObjectResponse, Step};

use super::GatewayError;
use crate::cluster::Index;
use crate::cluster::objects::{Key, Slim};
use crate::gateway::Gateway;

/// Explains an object.
pub(super) async fn object(
    gateway: &Gateway,
    request: ExplainObjectRequest,
) -> Result<ExplainObjectResponse, GatewayError> {
    let ExplainObjectRequest {
        kind,
        namespace,
        name,
    } = request;
    match kind.to_ascii_lowercase().as_str() {
        "service" => service::explain(gateway, &Key::namespaced(&namespace, &name)).await,
        "node" => node::explain(gateway, &Key::cluster_wide(&name)).await,
        _ => Err(GatewayError::Kind(kind)),
    }
}

/// The object, as the cache has it.
fn find<T: Slim>(index: &Index<T>, kind: &'static str, key: &Key) -> Result<std::sync::Arc<T>, GatewayError> {
    match index.get(key) {
        Some(object) => Ok(object),
        None if index.is_synced() => Err(GatewayError::NotFound {
            kind,
            name: key.to_string(),
        }),
        None => Err(GatewayError::NotSynced),
    }
}

fn step(title: &str, ok: bool, detail: impl Into<String>) -> Step {
    Step {
        title: title.to_owned(),
        ok,
        detail: detail.into(),
    }
}

/// The answer in one sentence: the first thing that is not as it should be.
fn summary(steps: &[Step], well: impl FnOnce() -> String) -> String {
    let wrong = steps.iter().find(|step| !step.ok);
    wrong.map_or_else(well, |step| format!("{}: {}", step.title, step.detail))
}
