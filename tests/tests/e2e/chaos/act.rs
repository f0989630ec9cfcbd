//! What people do, and what goes wrong.

use std::time::Duration;

use anyhow::Result;
use groundplane_core::{Clock as _, SystemClock};
use groundplane_sandbox::{Action as CloudAction, DeviceOptions, DeviceState, RandomPlan};
use groundplane_tests::Mode;
use groundplane_tests::chaos::{Action, api_plan};
use groundplane_tests::kube_api::proxy::{Fault, Rule};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{FAULTS, Run};

/// The gateway's fail points.
const POINTS: [&str; 7] = [
    "service.after-finalizer",
    "service.after-ensure",
    "service.after-announce",
    "service.after-status",
    "service.release.after-announce",
    "service.release.after-release",
    "service.release.after-status",
];
/// How long a call to the API server takes that is slow.
const SLOW: Duration = Duration::from_millis(200);
const POINT: &str = "GROUNDPLANE_FAILPOINT";

pub(super) fn service_name(number: usize) -> String {
    format!("web-{number}")
}

pub(super) fn suffix(number: usize) -> String {
    format!("n{number}")
}

/// Every fault that a call to the cloud may meet, but for answers that look whole and are not: no client can tell.
pub(super) fn cloud_faults() -> Vec<CloudAction> {
    vec![
        CloudAction::status(500),
        CloudAction::too_many_requests(Some(1), None),
        // By the wall clock, of which groundplane may have another.
        CloudAction::too_many_requests(None, Some(SystemClock.now().as_second() + 1)),
        CloudAction::Hang,
        CloudAction::HangAfter,
        CloudAction::DropBefore,
        CloudAction::DropAfter,
        CloudAction::HalfBody,
        CloudAction::MalformedJson,
        CloudAction::latency(Duration::from_millis(300)),
    ]
}

impl Run {
    /// Does what the plan says, where it makes sense.
    pub(super) async fn act(&mut self, action: Action) -> Result<()> {
        match action {
            Action::Create(number) => self.create(number).await?,
            Action::Delete(number) => self.delete(number, false).await?,
            Action::Abandon(number) => self.delete(number, true).await?,
            Action::Flip(number) => self.flip(number).await?,
            Action::Touch(number) => {
                if let Some((_, touched)) = self.services.get_mut(&number) {
                    *touched += 1;
                    let patch = json!({ "metadata": { "annotations": { "example.com/touched": touched.to_string() } } });
                    self.world
                        .corner
                        .edit_service(&service_name(number), &patch)
                        .await?;
                }
            }
            Action::Join(number) => self.join(number).await?,
            Action::Lose(number) => {
                if let Some((device, _)) = self.machines.remove(&number) {
                    self.world.project()?.remove_device(device);
                    self.world.corner.set_ready(&suffix(number), false).await?;
                }
            }
            Action::Ready(number, ready) => {
                if self.machines.contains_key(&number) {
                    self.world.corner.set_ready(&suffix(number), ready).await?;
                }
            }
            Action::Power(number, on) => {
                if let Some((device, _)) = self.machines.get(&number) {
                    let state = if on {
                        DeviceState::Active
                    } else {
                        DeviceState::Inactive
                    };
                    self.world.project()?.set_state(*device, state);
                    self.world.corner.set_ready(&suffix(number), on).await?;
                }
            }
            Action::Mark(number) => self.mark(number).await?,
            Action::Edit(edit) => {
                if let Some(side) = &mut self.metallb {
                    side.edit(&self.world.corner, edit).await?;
                }
            }
            Action::Stale(part) => self.world.api()?.hold_watches(part.of(FAULTS)),
            Action::KillLeader => self.kill("gateway").await?,
            Action::KillServices => self.kill("eip").await?,
            Action::KillAt(step) => self.arm(step).await?,
            Action::CutOff(_) => {
                let api = self.world.api()?;
                api.add([Rule::on("*", "*", Fault::DropBefore).times(30)]);
                api.sever();
            }
            Action::Api(rate) => {
                let plan = api_plan(self.plan.seed, rate, SLOW);
                self.world.api()?.plan(plan);
                self.world.api()?.sever();
            }
            Action::Cloud(rate) => {
                let project = self.world.project()?;
                project.clear_faults();
                project.fault_plan(RandomPlan {
                    seed: self.plan.seed,
                    per_mille: rate,
                    actions: cloud_faults(),
                    project: None,
                    method: None,
                    route: None,
                    at_most: None,
                });
            }
            Action::Quota(quota) => {
                let quota = quota.map(u32::try_from).transpose()?;
                self.world.project()?.set_quota(quota);
            }
            Action::Clock(seconds) => {
                self.shifted += i64::from(seconds);
                self.clock.set(self.shifted)?;
            }
        }
        Ok(())
    }

    async fn service(&self, number: usize) -> Result<Option<Service>> {
        let api = self.world.corner.api::<Service>();
        Ok(api.get_opt(&service_name(number)).await?)
    }

    pub(super) async fn create(&mut self, number: usize) -> Result<()> {
        self.services.entry(number).or_insert((true, 0));
        self.see_to(number).await
    }

    /// Makes a Service that people want, unless there is one, or one is still going.
    pub(super) async fn see_to(&self, number: usize) -> Result<()> {
        if self.service(number).await?.is_none() {
            let draft = self.world.corner.service_draft(&service_name(number));
            let touched = self.services.get(&number).map_or(0, |(_, touched)| *touched);
            let mut draft = draft.annotation("example.com/touched", &touched.to_string());
            if self.metallb.is_some() {
                draft = draft.class(&self.world.corner.class());
            }
            self.world.corner.create_service(draft).await?;
            self.retype(number).await?;
        }
        Ok(())
    }

    async fn delete(&mut self, number: usize, abandon: bool) -> Result<()> {
        let name = service_name(number);
        self.services.remove(&number);
        let Some(service) = self.service(number).await? else {
            return Ok(());
        };
        self.forget(&service);
        self.world.corner.delete_service(&name).await.ok();
        if abandon {
            self.left.insert(name.clone());
            // It may be gone by now.
            self.world.corner.strip_finalizers(&name).await.ok();
        }
        Ok(())
    }

    async fn flip(&mut self, number: usize) -> Result<()> {
        let Some((balanced, _)) = self.services.get_mut(&number) else {
            return Ok(());
        };
        *balanced = !*balanced;
        if let Some(service) = self.service(number).await? {
            self.forget(&service);
        }
        self.retype(number).await
    }

    async fn retype(&self, number: usize) -> Result<()> {
        if let Some((balanced, _)) = self.services.get(&number) {
            // A real MetalLB serves but one class here.
            let class = self.metallb.as_ref().map(|_| self.world.corner.class());
            let patch = if *balanced {
                json!({ "spec": { "type": "LoadBalancer", "loadBalancerClass": class } })
            } else {
                json!({ "spec": { "type": "ClusterIP", "loadBalancerClass": null } })
            };
            self.world
                .corner
                .edit_service(&service_name(number), &patch)
                .await?;
        }
        Ok(())
    }

    pub(super) async fn join(&mut self, number: usize) -> Result<()> {
        let name = self.world.corner.node_name(&suffix(number));
        let old = self.world.corner.nodes().get_opt(&name).await?;
        // The node of a machine that went must go before another comes of its name.
        if self.machines.contains_key(&number) || old.is_some() {
            return Ok(());
        }
        let device = self.world.project()?.add_device(DeviceOptions::named(name));
        let draft = self.world.corner.node_draft(&suffix(number)).uninitialized();
        let draft = draft.annotation("example.com/mark", "0");
        self.world.corner.create_node(draft).await?;
        self.machines.insert(number, (device, 0));
        Ok(())
    }

    async fn mark(&mut self, number: usize) -> Result<()> {
        if let Some((_, marked)) = self.machines.get_mut(&number) {
            *marked += 1;
            let patch = json!({ "metadata": { "annotations": { "example.com/mark": marked.to_string() } } });
            let name = self.world.corner.node_name(&suffix(number));
            let nodes = self.world.corner.nodes();
            nodes
                .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await?;
        }
        Ok(())
    }

    async fn kill(&mut self, role: &str) -> Result<()> {
        let disarm = |environment: &mut Vec<(String, std::ffi::OsString)>| {
            environment.retain(|(name, _)| name != POINT);
        };
        self.world.process(role)?.restart_with(disarm).await
    }

    /// The gateway dies at a fail point, after it has started again with it.
    async fn arm(&mut self, step: u32) -> Result<()> {
        let point = POINTS[usize::try_from(step)? % POINTS.len()];
        let role = self.world.gateway_role();
        let arm = |environment: &mut Vec<(String, std::ffi::OsString)>| {
            environment.retain(|(name, _)| name != POINT);
            environment.push((POINT.to_owned(), point.into()));
        };
        self.world.process(role)?.restart_with(arm).await?;
        self.armed = true;
        Ok(())
    }

    /// Starts the gateway again where it came to its fail point.
    pub(super) async fn revive(&mut self) -> Result<()> {
        if !self.armed {
            return Ok(());
        }
        let role = self.world.gateway_role();
        if self.world.process(role)?.wait(Duration::ZERO).await.is_ok() {
            self.note("it died at its fail point");
            self.kill(role).await?;
            self.armed = false;
        }
        Ok(())
    }

    /// Nothing goes wrong any more, and everything that lives is well.
    pub(super) async fn mend(&mut self) -> Result<()> {
        self.world.api()?.clear();
        let project = self.world.project()?;
        project.clear_faults();
        project.set_quota(None);
        self.clock.set(0)?;
        for (number, (device, _)) in &self.machines {
            project.set_state(*device, DeviceState::Active);
            self.world.corner.set_ready(&suffix(*number), true).await?;
        }
        if self.armed {
            let role = self.world.gateway_role();
            self.kill(role).await?;
            self.armed = false;
        }
        self.tidy().await?;
        if self.world.mode() == Mode::Services {
            self.note("two gateways");
        }
        self.note("faults end");
        Ok(())
    }

    /// Takes away nodes that were never initialised, and whose machine went: nobody else knows that they were ours, and groundplane says
    /// of them again and again that they have none.
    async fn tidy(&self) -> Result<()> {
        for number in (0..self.plan.machines).filter(|number| !self.machines.contains_key(number)) {
            let name = self.world.corner.node_name(&suffix(number));
            let node = self.world.corner.nodes().get_opt(&name).await?;
            let spec = node.and_then(|node| node.spec);
            if spec.is_some_and(|spec| spec.provider_id.is_none()) {
                self.world.corner.delete_node(&suffix(number)).await?;
            }
        }
        Ok(())
    }
}
