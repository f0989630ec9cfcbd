//! The one watch that both sides have: it sees the last Service get its address and its condition.

use std::collections::HashSet;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, pin_mut};
use groundplane_core::names;
use k8s_openapi::api::core::v1::Service;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};

use crate::kube_api::ingress_of;

/// The API server ends a watch after this many seconds, and then it is opened again: the client refuses more.
const TIMEOUT: u32 = 290;

/// Where to watch, and from when on.
#[derive(Debug)]
pub(super) struct Watching {
    api: Api<Service>,
    version: String,
}

impl Watching {
    /// Begins where the namespace is now.
    pub(super) async fn start(client: Client, namespace: &str) -> Result<Self> {
        let api: Api<Service> = Api::namespaced(client, namespace);
        let now = api
            .list(&ListParams::default().limit(1))
            .await
            .context("list Services")?;
        let version = now
            .metadata
            .resource_version
            .context("a list without a version")?;
        Ok(Self { api, version })
    }

    /// Watches until this many Services are settled, and says when the last one was seen.
    pub(super) async fn until_settled(mut self, count: usize) -> Result<Instant> {
        let mut settled = HashSet::new();
        loop {
            let params = WatchParams::default().timeout(TIMEOUT);
            let events = self
                .api
                .watch(&params, &self.version)
                .await
                .context("watch Services")?;
            pin_mut!(events);
            while let Some(event) = events.next().await {
                match event.context("watch Services")? {
                    WatchEvent::Added(service) | WatchEvent::Modified(service) => {
                        if is_settled(&service) {
                            settled.insert(service.name_any());
                        }
                        self.version = service.resource_version().unwrap_or_default();
                        if settled.len() >= count {
                            return Ok(Instant::now());
                        }
                    }
                    WatchEvent::Bookmark(bookmark) => self.version = bookmark.metadata.resource_version,
                    WatchEvent::Deleted(service) => bail!("{} was deleted", service.name_any()),
                    WatchEvent::Error(status) => bail!("the watch ended: {}", status.message),
                }
            }
        }
    }
}

/// Has it an address, and the condition that says so?
fn is_settled(service: &Service) -> bool {
    let conditions = service
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let told = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == names::CONDITION_ADDRESS && condition.status == "True");
    told && !ingress_of(service).is_empty()
}
