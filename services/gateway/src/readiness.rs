//! Is the gateway of use?

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use groundplane_runtime::Context;
use tokio::time::{MissedTickBehavior, interval};

use crate::gateway::Gateway;

/// How often to look.
const PERIOD: Duration = Duration::from_secs(1);

/// A watch that is broken for longer makes the gateway not ready: it may be shut out.
const PATIENCE: Duration = Duration::from_secs(30);

/// Follows the caches, for as long as the process lives.
pub(crate) fn start(gateway: &Arc<Gateway>, context: &Context) {
    let component = context.health.component("kubernetes");
    let gateway = Arc::clone(gateway);
    context.tasks.spawn("readiness", async move {
        let mut period = interval(PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = gateway.stopping.cancelled() => return,
                _ = period.tick() => {}
            }
            match verdict(&gateway) {
                None => component.ready(),
                Some(reason) => component.not_ready(reason),
            }
        }
    });
}

/// Why the gateway is of no use now; `None` if it is.
fn verdict(gateway: &Gateway) -> Option<Cow<'static, str>> {
    let cluster = &gateway.cluster;
    if let Some(bar) = cluster.leader.rivals().bar() {
        return Some(bar.into());
    }
    if !cluster.nodes.index.is_synced() {
        return Some("nodes have not been listed yet".into());
    }
    if !cluster.services.index.is_synced() {
        return Some("Services have not been listed yet".into());
    }
    if cluster.identity.get().is_none() {
        return Some("the cluster's id is not known yet".into());
    }
    if cluster.nodes.index.age().max(cluster.services.index.age()) > PATIENCE {
        return Some("the API server cannot be followed".into());
    }
    None
}
