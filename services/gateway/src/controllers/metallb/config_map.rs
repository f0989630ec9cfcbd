//! A round by the `ConfigMap` of MetalLB up to 0.12: read, changed, and written if it is still as it was read.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ObjectMeta;
use serde_json::json;
use tokio::time::timeout;
use tracing::{info, warn};

use super::present::PATIENCE;
use super::{MetallbController, Stop, Told};
use crate::announcers::Trouble;
use crate::announcers::metallb::Round;
use crate::announcers::metallb::config_map::{self, ConfigPlan};
use crate::cluster::WriteError;

/// The key that MetalLB reads.
const KEY: &str = "config";

/// The kind's name in metrics.
const WHAT: &str = "configmaps";

impl MetallbController {
    pub(super) async fn by_config_map(&self) -> Result<Told, Stop> {
        let term = self.gateway.cluster.leader.term();
        let (world, generation) = self.world();
        let world = self.with_hidden(world).await?;
        let config = &self.gateway.config.metallb;
        let name = format!("{}/{}", config.namespace, config.config_map);
        let api: Api<ConfigMap> = Api::namespaced(self.gateway.cluster.client.clone(), &config.namespace);
        let present = match timeout(PATIENCE, api.get_opt(&config.config_map)).await {
            Ok(Ok(present)) => present,
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                let message = format!(
                    "The ConfigMap {name} may not be read: give the gateway's account the chart's role for MetalLB. It is tried again."
                );
                return Err(away(message));
            }
            _ => {
                let message = format!(
                    "The ConfigMap {name} cannot be read: the API server does not answer. It is tried again."
                );
                return Err(away(message));
            }
        };
        let data = present.as_ref().and_then(|present| present.data.as_ref());
        let text = data.and_then(|data| data.get(KEY)).map_or("", String::as_str);
        let plan = config_map::plan(text, &world, &self.metallb.settings).map_err(|error| {
            Stop::Failed(Trouble {
                reason: "AnnouncerUnreadable",
                message: format!(
                    "The key {KEY} of the ConfigMap {name} cannot be changed without touching what is yours: {error}. It is tried again."
                ),
            })
        })?;
        if !plan.refused.is_empty() {
            warn!(
                services = plan.refused.len(),
                config_map = name,
                "no room for more"
            );
        }
        if let Some(text) = &plan.text {
            self.write_config(&api, present.as_ref(), text)
                .await
                .map_err(|error| self.config_stopped(&name, &error))?;
            info!(
                config_map = name,
                addresses = plan.placed.len(),
                "MetalLB is told"
            );
        }
        let ConfigPlan { placed, refused, .. } = plan;
        let round = Round {
            generation,
            term,
            placed,
            complete: world.complete,
            refused,
        };
        Ok(Told { round, refusal: None })
    }

    async fn write_config(
        &self,
        api: &Api<ConfigMap>,
        present: Option<&ConfigMap>,
        text: &str,
    ) -> Result<(), WriteError> {
        let writer = self.gateway.cluster.services.writer();
        let name = &self.gateway.config.metallb.config_map;
        let written = if let Some(present) = present {
            let patch = json!({
                "metadata": {
                    "uid": present.metadata.uid,
                    "resourceVersion": present.metadata.resource_version,
                },
                "data": { KEY: text },
            });
            writer.merge(api, WHAT, name, patch).await
        } else {
            let config_map = ConfigMap {
                metadata: ObjectMeta {
                    name: Some(name.clone()),
                    ..ObjectMeta::default()
                },
                data: Some(BTreeMap::from([(KEY.to_owned(), text.to_owned())])),
                ..ConfigMap::default()
            };
            writer.create(api, WHAT, &config_map).await
        };
        written.map(drop)
    }

    fn config_stopped(&self, name: &str, error: &WriteError) -> Stop {
        if matches!(error, WriteError::Gone(_)) {
            // Of a ConfigMap that is there, and goes, the next round knows.
            return Stop::Missing(Trouble {
                reason: "AnnouncerMissing",
                message: format!(
                    "There is no namespace {} for the ConfigMap {name}. Install MetalLB up to 0.12, or choose another gateway.announcer. It \
                     is tried again.",
                    self.gateway.config.metallb.namespace
                ),
            });
        }
        self.stopped(&format!("The ConfigMap {name}"), error)
    }
}

fn away(message: String) -> Stop {
    Stop::Failed(Trouble {
        reason: "AnnouncerUnavailable",
        message,
    })
}
