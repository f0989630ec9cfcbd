//! What must never be, and what must be in the end.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use groundplane_core::names;
use groundplane_tests::kube_api::Mark;
use groundplane_tests::kube_api::ingress_of;
use groundplane_tests::{eventually_within, throughout};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use kube::api::ListParams;

use super::Run;
use super::act::{service_name, suffix};

/// Far above what it takes on a busy machine.
const CALM: Duration = Duration::from_secs(120);
/// Longer than any resync.
const QUIET: Duration = Duration::from_secs(3);

impl Run {
    /// From now on the Service may lose its address.
    pub(super) fn forget(&mut self, service: &Service) {
        self.shown.remove(&service.uid().unwrap_or_default());
    }

    /// A Service that showed an address, and always was a load balancer, shows that address.
    pub(super) async fn look(&mut self) -> Result<()> {
        let all = self
            .world
            .corner
            .api::<Service>()
            .list(&ListParams::default())
            .await?;
        for service in all {
            let number = self
                .services
                .iter()
                .find(|(number, (balanced, _))| *balanced && service_name(**number) == service.name_any());
            if number.is_none() || service.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let (name, uid) = (service.name_any(), service.uid().unwrap_or_default());
            let shows = ingress_of(&service);
            match (self.shown.get(&uid), shows.first()) {
                (None, Some(address)) => {
                    // What it showed before it was flipped may still be there: a look or two later it is its own again.
                    if self
                        .world
                        .project()?
                        .reservations()
                        .iter()
                        .any(|row| row.address.is_some_and(|held| held.to_string() == *address))
                    {
                        self.shown.insert(uid, address.clone());
                    }
                }
                (Some(before), now) => ensure!(
                    now == Some(before),
                    "{name} showed {before}, and now {now:?}, though it always was a load balancer"
                ),
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// Waits until somebody leads, and does what a leader does: without one it would be quiet, too.
    async fn somebody_leads(&self) -> Result<()> {
        let (corner, name) = (&self.world.corner, "somebody-leads");
        let mut draft = corner.service_draft(name);
        if self.metallb.is_some() {
            draft = draft.class(&corner.class());
        }
        corner.create_service(draft).await?;
        let what = format!("seed {}: somebody leads", self.plan.seed);
        eventually_within(CALM, what, async || {
            self.play().await?;
            let service = corner.api::<Service>().get(name).await?;
            ensure!(!ingress_of(&service).is_empty(), "a new Service has no address");
            Ok(())
        })
        .await?;
        corner.delete_service(name).await?;
        corner.service_gone(name).await
    }

    /// Waits until all is well.
    pub(super) async fn become_well(&mut self) -> Result<()> {
        self.somebody_leads().await?;
        let wanted: Vec<usize> = self.services.keys().copied().collect();
        for number in wanted {
            // One that was deleted and is wanted again has to be gone first.
            let what = format!("seed {}: {} is there", self.plan.seed, service_name(number));
            eventually_within(CALM, what, async || {
                self.see_to(number).await?;
                let there = self
                    .world
                    .corner
                    .api::<Service>()
                    .get(&service_name(number))
                    .await?;
                ensure!(
                    there.metadata.deletion_timestamp.is_none(),
                    "the one before is still there"
                );
                Ok(())
            })
            .await?;
        }
        let what = format!("seed {}: all is well", self.plan.seed);
        eventually_within(CALM, what, async || {
            self.play().await?;
            self.services_well().await?;
            self.nodes_well().await?;
            self.metallb_is_well().await
        })
        .await?;
        self.look().await
    }

    async fn services_well(&self) -> Result<()> {
        let all = self
            .world
            .corner
            .api::<Service>()
            .list(&ListParams::default())
            .await?;
        let mut shown = BTreeMap::new();
        for service in &all {
            let name = service.name_any();
            let found = self
                .services
                .iter()
                .find(|(number, _)| service_name(**number) == name);
            let Some((_, (balanced, touched))) = found else {
                bail!("{name} is still there");
            };
            let addresses = ingress_of(service);
            if *balanced {
                ensure!(addresses.len() == 1, "{name} shows {addresses:?}");
                let before = shown.insert(addresses[0].clone(), name.clone());
                ensure!(before.is_none(), "{name} and {before:?} show {addresses:?}");
            } else {
                ensure!(
                    addresses.is_empty(),
                    "{name} is no load balancer, and shows {addresses:?}"
                );
                let held = service
                    .finalizers()
                    .iter()
                    .any(|one| one == names::SERVICE_FINALIZER);
                ensure!(!held, "{name} is no load balancer, and has our finalizer");
            }
            let people = service.annotations().get("example.com/touched").cloned();
            ensure!(
                people == Some(touched.to_string()),
                "{name} lost what people wrote: {people:?} for {touched}"
            );
        }
        ensure!(all.items.len() == self.services.len(), "a Service is missing");
        let reserved = self.world.project()?.reservations();
        let mut surplus = Vec::new();
        for row in &reserved {
            let address = row.address.map(|address| address.to_string()).unwrap_or_default();
            if shown.remove(&address).is_none() {
                surplus.push(format!("{address} {:?}", row.tags));
            }
        }
        ensure!(shown.is_empty(), "shown and not reserved: {shown:?}");
        // What people tore away from us only a reclaim collects.
        ensure!(surplus.len() <= self.left.len(), "nobody's: {surplus:?}");
        Ok(())
    }

    async fn nodes_well(&self) -> Result<()> {
        for number in 0..self.plan.machines {
            let name = self.world.corner.node_name(&suffix(number));
            let node = self.world.corner.nodes().get_opt(&name).await?;
            let (node, (device, marked)) = match (node, self.machines.get(&number)) {
                (None, None) => continue,
                (Some(_), None) => bail!("{name} is there, and its machine is not"),
                (None, Some(_)) => bail!("{name} is not there, and its machine is"),
                (Some(node), Some(machine)) => (node, machine),
            };
            let spec = node.spec.clone().unwrap_or_default();
            let taints: Vec<String> = spec
                .taints
                .unwrap_or_default()
                .into_iter()
                .map(|taint| taint.key)
                .collect();
            for ours in [names::TAINT_UNINITIALIZED, names::TAINT_SHUTDOWN] {
                ensure!(!taints.iter().any(|taint| taint == ours), "{name} has {taints:?}");
            }
            let id = spec.provider_id.unwrap_or_default();
            let own = self.plan.cloud.provider_id(self.world.project()?, *device)?;
            ensure!(id == own, "{name} is {id}, and its machine {own}");
            let people = node.annotations().get("example.com/mark").cloned();
            ensure!(
                people == Some(marked.to_string()),
                "{name} lost what people wrote: {people:?} for {marked}"
            );
            let peer = self.plan.cloud.annotation("bgp-peers-0-peer-ip");
            let told = node.annotations().contains_key(&peer);
            ensure!(told, "{name} is not told its peers: {:?}", node.annotations());
        }
        Ok(())
    }

    /// Is in MetalLB's configuration what should be, and nothing else?
    async fn metallb_is_well(&self) -> Result<()> {
        match &self.metallb {
            Some(side) => side.is_well(&self.world.corner).await,
            None => Ok(()),
        }
    }

    /// Writes of groundplane about this world since then: to Kubernetes, but for leases, and to the cloud.
    async fn writes(&self, mark: Mark, cloud: u64) -> Result<usize> {
        let name = self.world.corner.name().to_owned();
        let audit = self.world.corner.requests_since(mark).await?;
        let audit = audit.by_agent("groundplane/").writes().only(|request| {
            // MetalLB's namespace begins so, too.
            let ours = request.namespace.starts_with(&name) || request.name.starts_with(&format!("{name}-"));
            ours && request.resource != "leases"
        });
        Ok(audit.count() + self.world.project()?.journal().writes(cloud).len())
    }

    /// Once it has come to rest, nothing is written any more.
    pub(super) async fn stay_quiet(&mut self) -> Result<()> {
        let what = format!("seed {}: it comes to rest", self.plan.seed);
        eventually_within(CALM, what, async || {
            let cloud = self.world.project()?.journal().mark();
            let mark = self.world.corner.mark().await?;
            tokio::time::sleep(QUIET).await;
            let writes = self.writes(mark, cloud).await?;
            ensure!(writes == 0, "{writes} writes in {QUIET:?}");
            Ok(())
        })
        .await?;
        let cloud = self.world.project()?.journal().mark();
        let mark = self.world.corner.mark().await?;
        let what = format!("seed {}: nothing is written", self.plan.seed);
        throughout(QUIET, what, async || {
            let writes = self.writes(mark, cloud).await?;
            ensure!(writes == 0, "{writes} writes though all was well");
            Ok(())
        })
        .await?;
        self.services_well().await?;
        self.metallb_is_well().await
    }
}
