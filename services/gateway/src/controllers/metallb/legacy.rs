//! A round by the ConfigMap of MetalLB up to 0.12.

use super::{MetallbController, Stop};
use crate::announcers::metallb::{Round, Trouble};

impl MetallbController {
    #[allow(
        clippy::unused_async,
        reason = "the round by custom resources reads and writes"
    )]
    pub(super) async fn by_config_map(&self) -> Result<Round, Stop> {
        Err(Stop::Failed(Trouble {
            reason: "AnnouncerCannot",
            message: format!(
                "The ConfigMap {} cannot be written yet.",
                self.gateway.config.metallb.config_map
            ),
        }))
    }
}
