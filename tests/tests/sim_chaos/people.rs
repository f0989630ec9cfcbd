//! People, kubelets, and what goes wrong: how a plan is carried out.

use std::net::{IpAddr, Ipv4Addr};

use groundplane_cloud::PowerState;
use groundplane_core::names;
use groundplane_tests::chaos::Action;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Alive, FAULTS, NAMESPACE, PEOPLE, Wanted, World, api_plan, node_name, provider_id, service_name,
};
use crate::process::Role;

impl World {
    /// Does what the plan says, where it makes sense.
    pub(crate) fn act(&self, action: Action) {
        self.note(format_args!("{action:?}"));
        self.count(action.kind());
        match action {
            Action::Create(number) => {
                let mut state = self.state();
                state.wanted.entry(number).or_insert(Wanted {
                    balanced: true,
                    touched: 0,
                });
            }
            Action::Delete(number) => {
                self.state().wanted.remove(&number);
            }
            Action::Flip(number) => self.change(number, |wanted| wanted.balanced = !wanted.balanced),
            Action::Touch(number) => self.change(number, |wanted| wanted.touched += 1),
            Action::Abandon(number) => self.abandon(number),
            Action::Join(number) => self.join(number),
            Action::Lose(number) => {
                if self.state().machines.remove(&number).is_some() {
                    self.cloud.remove_machine(&provider_id(number));
                }
            }
            Action::Ready(number, ready) => self.alter(number, |alive| alive.ready = ready),
            Action::Power(number, on) => {
                self.alter(number, |alive| alive.on = on);
                let power = if on { PowerState::On } else { PowerState::Off };
                self.cloud.set_power(&provider_id(number), power);
            }
            Action::Mark(number) => self.alter(number, |alive| alive.marked += 1),
            Action::KillLeader => {
                let leader = self.state().leader;
                if let Some(life) = leader {
                    self.kill(life);
                }
            }
            Action::KillServices => {
                let life = self.state().running.get(&Role::Services).copied();
                if let Some(life) = life {
                    self.kill(life);
                }
            }
            Action::KillAt(step) => self.state().fuse.light(step),
            Action::Edit(edit) => self.edit_metallb(edit),
            Action::Stale(part) => {
                let until = Instant::now() + part.of(FAULTS);
                let mut state = self.state();
                if let Some(leader) = state.leader {
                    state.lives[leader].stale_until = Some(until);
                }
            }
            Action::CutOff(part) => {
                let until = Instant::now() + part.of(FAULTS);
                let mut state = self.state();
                if let Some(leader) = state.leader {
                    state.lives[leader].deaf_until = Some(until);
                }
            }
            Action::Api(rate) => {
                self.state().api = api_plan(self.plan.seed, rate);
                self.sever();
            }
            Action::Cloud(rate) => self.state().cloud_rate = rate,
            Action::Quota(quota) => self.cloud.set_quota(quota.unwrap_or(usize::MAX)),
            Action::Clock(seconds) => self.clock.jump(seconds),
        }
        self.live();
    }

    fn change(&self, number: usize, change: impl FnOnce(&mut Wanted)) {
        if let Some(wanted) = self.state().wanted.get_mut(&number) {
            change(wanted);
        }
    }

    fn alter(&self, number: usize, change: impl FnOnce(&mut Alive)) {
        if let Some(alive) = self.state().machines.get_mut(&number) {
            change(alive);
        }
    }

    fn abandon(&self, number: usize) {
        let name = service_name(number);
        let held = self.objects().get("services", NAMESPACE, &name).is_some();
        if held {
            let mut state = self.state();
            state.wanted.remove(&number);
            state.left.insert(name.clone());
            drop(state);
            self.objects().edit("services", NAMESPACE, &name, |service| {
                service["metadata"]["finalizers"] = json!([]);
                service["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            });
        }
    }

    fn join(&self, number: usize) {
        let mut state = self.state();
        if state.machines.contains_key(&number) {
            return;
        }
        state.machines.insert(
            number,
            Alive {
                ready: true,
                on: true,
                marked: 0,
            },
        );
        let last = u8::try_from(number + 1).expect("few machines");
        let addresses = [Ipv4Addr::new(10, 0, 0, last), Ipv4Addr::new(100, 64, 0, last)].map(IpAddr::V4);
        self.cloud
            .add_machine(&node_name(number), &addresses)
            .expect("a name");
    }

    /// Nothing goes wrong any more, and everything that lives is well.
    pub(crate) fn mend(&self) {
        self.act(Action::Api(0));
        self.act(Action::Cloud(0));
        self.act(Action::Quota(None));
        let numbers: Vec<usize> = self.state().machines.keys().copied().collect();
        for number in numbers {
            self.act(Action::Power(number, true));
            self.act(Action::Ready(number, true));
        }
        self.tidy();
        let mut state = self.state();
        state.fuse.put_out();
        for life in &mut state.lives {
            life.deaf_until = None;
            life.stale_until = None;
        }
    }

    /// Somebody takes away nodes that were never initialised, and whose machine went: nobody else knows that they were ours.
    fn tidy(&self) {
        for number in 0..self.plan.machines {
            let name = node_name(number);
            if self.state().machines.contains_key(&number) {
                continue;
            }
            self.objects().edit("nodes", "", &name, |node| {
                if node["spec"]["providerID"].is_null() {
                    node["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                }
            });
        }
    }

    /// People see to it that what they want is there, and kubelets that their nodes are. They are never told an error.
    pub(crate) fn live(&self) {
        for number in 0..self.plan.services {
            let wanted = self.state().wanted.get(&number).cloned();
            self.see_to_service(number, wanted);
        }
        for number in 0..self.plan.machines {
            let alive = self.state().machines.get(&number).cloned();
            self.see_to_node(number, alive);
        }
        self.play_metallb();
        self.tell();
    }

    fn see_to_service(&self, number: usize, wanted: Option<Wanted>) {
        let name = service_name(number);
        let mut objects = self.objects();
        let Some(service) = objects.get("services", NAMESPACE, &name).cloned() else {
            if wanted.is_some() {
                objects.create("services", NAMESPACE, draft(&name));
            }
            return;
        };
        let deleting = !service["metadata"]["deletionTimestamp"].is_null();
        match wanted {
            Some(wanted) if !deleting => {
                let kind = if wanted.balanced {
                    "LoadBalancer"
                } else {
                    "ClusterIP"
                };
                if service["spec"]["type"] == "LoadBalancer" && !wanted.balanced {
                    self.forfeit(&service);
                }
                objects.edit("services", NAMESPACE, &name, |service| {
                    service["spec"]["type"] = json!(kind);
                    service["metadata"]["annotations"][format!("{PEOPLE}touched")] =
                        json!(wanted.touched.to_string());
                });
            }
            None if !deleting => {
                self.forfeit(&service);
                objects.edit("services", NAMESPACE, &name, |service| {
                    service["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                });
            }
            _ => {}
        }
    }

    /// From now on the Service may lose its address.
    fn forfeit(&self, service: &Value) {
        let uid = service["metadata"]["uid"].as_str().unwrap_or_default();
        if let Some(shown) = self.state().shown.get_mut(uid) {
            shown.forfeited = true;
        }
    }

    fn see_to_node(&self, number: usize, alive: Option<Alive>) {
        let name = node_name(number);
        let mut objects = self.objects();
        let ready = match &alive {
            Some(alive) if alive.ready && alive.on => "True",
            Some(_) => "False",
            None => "Unknown",
        };
        if alive.is_some() && objects.get("nodes", "", &name).is_none() {
            objects.create("nodes", "", node(&name));
        }
        objects.edit("nodes", "", &name, |node| {
            node["status"]["conditions"] = json!([{ "type": "Ready", "status": ready }]);
            if let Some(alive) = alive {
                node["metadata"]["annotations"][format!("{PEOPLE}mark")] = json!(alive.marked.to_string());
            }
        });
    }
}

fn draft(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": name, "annotations": { "example.com/touched": "0", "example.com/team": "web" } },
        "spec": { "type": "LoadBalancer", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "ports": [{ "port": 80 }] },
        "status": { "loadBalancer": {} },
    })
}

fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "annotations": { "example.com/mark": "0" }, "labels": { "kubernetes.io/hostname": name } },
        "spec": { "taints": [{ "key": names::TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule" }] },
        "status": {
            "addresses": [{ "type": "Hostname", "address": name }],
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    })
}
