//! What must never be, looked at with each write, and what must be in the end.

use std::collections::BTreeMap;

use groundplane_cloud::{ElasticIps as _, Reservation};
use groundplane_core::{ClusterId, Name, Owner, names};
use serde_json::Value;

use super::objects::Done;
use super::world::{CLUSTER, NAMESPACE, PEOPLE, Shown, World, node_name, provider_id, service_name};

/// The address that a Service shows; empty where it shows none.
pub(crate) fn shown_by(service: &Value) -> &str {
    service["status"]["loadBalancer"]["ingress"][0]["ip"]
        .as_str()
        .unwrap_or_default()
}

/// Does our condition say that it has its address?
fn is_ready(service: &Value) -> bool {
    let conditions = service["status"]["conditions"].as_array();
    let ours =
        |condition: &Value| condition["type"] == names::CONDITION_ADDRESS && condition["status"] == "True";
    conditions.is_some_and(|all| all.iter().any(ours))
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// What people wrote to an object.
fn of_people(object: &Value) -> BTreeMap<&str, &Value> {
    let annotations = object["metadata"]["annotations"].as_object();
    let all = annotations.into_iter().flatten();
    all.filter(|(key, _)| key.starts_with(PEOPLE))
        .map(|(key, value)| (key.as_str(), value))
        .collect()
}

impl World {
    /// Which of these reservations are a Service's, by the tags that the cloud keeps.
    fn held_by<'a>(&self, all: &'a [Reservation], name: &str) -> Vec<&'a Reservation> {
        let owner = Owner::service(
            CLUSTER.parse::<ClusterId>().expect("an id"),
            NAMESPACE.parse::<Name>().expect("a name"),
            name.parse::<Name>().expect("a name"),
        );
        let tags = self.cloud.tags_of(&owner);
        let is_theirs = |row: &&Reservation| tags.iter().all(|tag| row.tags.contains(tag));
        all.iter().filter(is_theirs).collect()
    }

    /// Looks at a write of a gateway.
    pub(crate) fn judge(&self, done: &Done) {
        let Done { path, before, after } = done;
        if let (Some(before), Some(after)) = (before, after)
            && of_people(before) != of_people(after)
        {
            self.broken(format_args!("{path:?}: what people wrote was changed"));
        }
        match (path.0.as_str(), before, after) {
            ("nodes", Some(_), None) => {
                let state = self.state();
                let lives = state.machines.keys().any(|number| node_name(*number) == path.2);
                drop(state);
                self.count("nodes deleted");
                if lives {
                    self.broken(format_args!("{} was deleted, and its machine lives", path.2));
                }
            }
            ("services", Some(before), Some(after)) => self.judge_service(before, after),
            _ => self.judge_metallb(done),
        }
    }

    /// Looks at a change of a Service's status.
    pub(crate) fn judge_service(&self, before: &Value, after: &Value) {
        let (name, uid) = (text(after, "name"), text(after, "uid"));
        let (was, is) = (shown_by(before), shown_by(after));
        if was == is {
            return;
        }
        let known = self.state().shown.get(uid).cloned();
        if let Some(known) = known
            && !known.forfeited
            && is != known.address
        {
            let what = if is.is_empty() { "nothing" } else { is };
            self.broken(format_args!(
                "{name} showed {}, and now {what}, though it always was a load balancer",
                known.address
            ));
        }
        if is.is_empty() {
            self.state().shown.remove(uid);
            return;
        }
        self.count("addresses shown");
        let all = self.cloud.reservations();
        let mine = self.held_by(&all, name);
        let holds = |row: &&Reservation| {
            row.prefix
                .as_ref()
                .is_some_and(|prefix| prefix.address().to_string() == is)
        };
        if !mine.iter().any(holds) {
            self.broken(format_args!("{name} shows {is}, which it does not hold"));
        }
        let objects = self.objects();
        let mut others = objects.list("services", "");
        if let Some((other, _)) = others.find(|(path, other)| path.2 != name && shown_by(other) == is) {
            let other = other.2.clone();
            drop(others);
            drop(objects);
            self.broken(format_args!("{name} and {other} both show {is}"));
        } else {
            drop(others);
            drop(objects);
        }
        let balanced =
            after["spec"]["type"] == "LoadBalancer" && after["metadata"]["deletionTimestamp"].is_null();
        self.state().shown.insert(
            uid.to_owned(),
            Shown {
                address: is.to_owned(),
                forfeited: !balanced,
            },
        );
    }

    /// Looks at the deletion of a reservation.
    pub(crate) fn judge_release(&self, id: &str) {
        let all = self.cloud.reservations();
        let Some(row) = all.iter().find(|row| row.id == id) else {
            return;
        };
        let Some(address) = row.prefix.as_ref().map(|prefix| prefix.address().to_string()) else {
            return;
        };
        self.count("reservations deleted");
        let holder = {
            let objects = self.objects();
            let mut all = objects.list("services", "");
            all.find(|(_, service)| shown_by(service) == address)
                .map(|(path, service)| (path.2.clone(), text(service, "uid").to_owned()))
        };
        let Some((name, uid)) = holder else {
            return;
        };
        let keeps = self.state().shown.get(&uid).is_some_and(|shown| !shown.forfeited);
        if keeps {
            self.broken(format_args!("{address} is given back while {name} shows it"));
        }
    }

    /// What is not as it should be once nothing goes wrong any more; `None`: all is well.
    pub(crate) fn unwell(&self) -> Option<String> {
        self.services_unwell()
            .or_else(|| self.nodes_unwell())
            .or_else(|| self.orphans().into_iter().next())
            .or_else(|| self.metallb_unwell())
    }

    fn services_unwell(&self) -> Option<String> {
        let wanted = self.state().wanted.clone();
        let all = self.cloud.reservations();
        for number in 0..self.plan.services {
            let name = service_name(number);
            let service = self.objects().get("services", NAMESPACE, &name).cloned();
            let held = self.held_by(&all, &name);
            let (service, wanted) = match (service, wanted.get(&number)) {
                (None, None) => continue,
                (Some(_), None) => return Some(format!("{name} is still there")),
                (None, Some(_)) => return Some(format!("{name} is not there")),
                (Some(service), Some(wanted)) => (service, wanted),
            };
            let people = of_people(&service);
            let touched = format!("{PEOPLE}touched");
            if people.get(touched.as_str()).copied() != Some(&Value::from(wanted.touched.to_string())) {
                return Some(format!("{name} lost what people wrote: {people:?}"));
            }
            let shows = shown_by(&service);
            let has: Vec<String> = held
                .iter()
                .filter_map(|row| Some(row.prefix.as_ref()?.address().to_string()))
                .collect();
            if wanted.balanced && (shows.is_empty() || has != [shows]) {
                return Some(format!("{name} shows `{shows}` and holds {has:?}"));
            }
            if wanted.balanced && !is_ready(&service) {
                return Some(format!("{name} is not said to be ready: {}", service["status"]));
            }
            if !wanted.balanced && !shows.is_empty() {
                return Some(format!("{name} shows `{shows}` and is no load balancer"));
            }
            let finalizers = &service["metadata"]["finalizers"];
            if !wanted.balanced && finalizers.to_string().contains(names::SERVICE_FINALIZER) {
                return Some(format!("{name} has our finalizer and is no load balancer"));
            }
        }
        None
    }

    fn nodes_unwell(&self) -> Option<String> {
        let machines = self.state().machines.clone();
        for number in 0..self.plan.machines {
            let name = node_name(number);
            let node = self.objects().get("nodes", "", &name).cloned();
            let (node, alive) = match (node, machines.get(&number)) {
                (None, None) => continue,
                (Some(_), None) => return Some(format!("{name} is there, and its machine is not")),
                (None, Some(_)) => return Some(format!("{name} is not there, and its machine is")),
                (Some(node), Some(alive)) => (node, alive),
            };
            let taints = node["spec"]["taints"].to_string();
            if taints.contains(names::TAINT_UNINITIALIZED) || taints.contains(names::TAINT_SHUTDOWN) {
                return Some(format!("{name} is tainted: {taints}"));
            }
            if node["spec"]["providerID"] != provider_id(number).to_string() {
                return Some(format!("{name} is {}", node["spec"]["providerID"]));
            }
            let annotations = node["metadata"]["annotations"].to_string();
            if !annotations.contains("169.254.255.1") {
                return Some(format!("{name} is not told its peer: {annotations}"));
            }
            let mark = format!("{PEOPLE}mark");
            if node["metadata"]["annotations"][&mark].as_str() != Some(&alive.marked.to_string()) {
                return Some(format!("{name} lost what people wrote: {annotations}"));
            }
        }
        None
    }

    /// Reservations that no Service explains. Those that were left by force, or came late, only a reclaim collects.
    fn orphans(&self) -> Vec<String> {
        let (wanted, mut left) = {
            let state = self.state();
            (state.wanted.clone(), state.left.clone())
        };
        if self.reclaims() {
            left.clear();
        }
        let balanced = |number: usize| wanted.get(&number).is_some_and(|wanted| wanted.balanced);
        let all = self.cloud.reservations();
        let mut explained = 0;
        let mut orphans = Vec::new();
        for number in 0..self.plan.services {
            let name = service_name(number);
            let held = self.held_by(&all, &name);
            explained += held.len();
            if !balanced(number) && !held.is_empty() && !left.contains(&name) {
                orphans.push(format!(
                    "{name} wants no address, and holds {} of them",
                    held.len()
                ));
            }
        }
        if all.len() != explained {
            orphans.push(format!("{} reservations are nobody's", all.len() - explained));
        }
        orphans
    }

    /// How many reservations are left that only a reclaim can collect.
    pub(crate) fn left_behind(&self) -> usize {
        let (wanted, left) = {
            let state = self.state();
            (state.wanted.clone(), state.left.clone())
        };
        let has = |name: &String| {
            let mut all = wanted.iter();
            all.any(|(number, wanted)| wanted.balanced && service_name(*number) == *name)
        };
        let all = self.cloud.reservations();
        let gone = left.iter().filter(|name| !has(name));
        gone.map(|name| self.held_by(&all, name).len()).sum()
    }
}
