//! MetalLB, as far as groundplane meets it: it gives Services the addresses that its pools have, and writes their status. People have
//! entries of their own in its configuration, and change them.

use std::collections::BTreeMap;

use groundplane_cloud::BgpProject;
use groundplane_tests::chaos::Announcer;
use groundplane_tests::chaos::metallb::{
    CONFIG, NAMESPACE, Object, Wanted, covers, document, edited, is_intact, objects_of_people,
    wrong_in_objects, wrong_in_text,
};
use serde_json::{Value, json};

use super::objects::{Answer, Done, refused};
use super::rules::shown_by;
use super::world::{World, node_name};

/// Kinds and resources of what is in MetalLB's namespace.
const KINDS: [(&str, &str); 5] = [
    ("IPAddressPool", "ipaddresspools"),
    ("BGPPeer", "bgppeers"),
    ("BGPAdvertisement", "bgpadvertisements"),
    ("L2Advertisement", "l2advertisements"),
    ("Secret", "secrets"),
];
/// Of a Service: which addresses it wants.
const ADDRESSES: &str = "metallb.io/loadBalancerIPs";

fn resource_of(kind: &str) -> &'static str {
    let found = KINDS.into_iter().find(|(name, _)| *name == kind);
    found.expect("a kind of MetalLB").1
}

fn object(kind: &str, value: &Value) -> Object {
    let labels = value["metadata"]["labels"].as_object().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Object {
        kind: kind.to_owned(),
        name: text(&value["metadata"]["name"]),
        labels: labels.map(|(key, value)| (key.clone(), text(value))).collect(),
        spec: value["spec"].clone(),
    }
}

/// What people have. One of their peers is on the first node.
fn people(edit: u32) -> Vec<Object> {
    objects_of_people(edit, &node_name(0))
}

impl World {
    fn told_by(&self) -> Option<Announcer> {
        let announcer = self.plan.announcer;
        announcer.is_metallb().then_some(announcer)
    }

    /// Does this MetalLB know Secrets with passwords? An older one does not.
    fn knows_secrets(&self) -> bool {
        !self.plan.seed.is_multiple_of(3)
    }

    /// What people have at first. Some projects speak BGP already, with a password; in others it is still to be enabled.
    pub(crate) fn begin_metallb(&self) {
        if self.plan.seed.is_multiple_of(2) && self.knows_secrets() {
            self.cloud.set_project(Some(BgpProject {
                enabled: true,
                pending: false,
                local_asn: 65_000,
                password: Some("Secret4711x".into()),
                max_prefixes: None,
            }));
        }
        match self.told_by() {
            Some(Announcer::Metallb) => self.put_objects(0),
            Some(_) => {
                let config = json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": { "name": CONFIG }, "data": { CONFIG: document(0) },
                });
                self.objects().create("configmaps", NAMESPACE, config);
            }
            None => {}
        }
    }

    /// What this API server says that it serves of MetalLB.
    pub(crate) fn discovered(&self, path: &str) -> Answer {
        let served = if self.knows_secrets() {
            "/apis/metallb.io/v1beta2"
        } else {
            "/apis/metallb.io/v1beta1"
        };
        if path != served {
            return refused(404, "NotFound");
        }
        let body = json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": path.trim_start_matches("/apis/"),
            "resources": [{
                "name": "bgppeers", "singularName": "bgppeer", "namespaced": true, "kind": "BGPPeer", "verbs": ["list"],
            }],
        });
        Answer {
            code: 200,
            body,
            done: None,
        }
    }

    /// People change what is theirs.
    pub(crate) fn edit_metallb(&self, edit: u32) {
        match self.told_by() {
            Some(Announcer::Metallb) => self.put_objects(edit),
            Some(_) => {
                let before = self.state().edit;
                match edited(&self.config(), before, edit) {
                    Some(text) => self.objects().edit("configmaps", NAMESPACE, CONFIG, |config| {
                        config["data"][CONFIG] = json!(text);
                    }),
                    None => self.broken("people do not find what they wrote into MetalLB's ConfigMap"),
                }
            }
            None => {}
        }
        self.state().edit = edit;
    }

    fn put_objects(&self, edit: u32) {
        let (before, after) = (people(self.state().edit), people(edit));
        let mut objects = self.objects();
        for gone in &before {
            let stays = |other: &Object| other.kind == gone.kind && other.name == gone.name;
            if !after.iter().any(stays) {
                objects.edit(resource_of(&gone.kind), NAMESPACE, &gone.name, |object| {
                    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                });
            }
        }
        for wanted in after {
            let resource = resource_of(&wanted.kind);
            if objects.get(resource, NAMESPACE, &wanted.name).is_none() {
                let body = json!({
                    "apiVersion": "metallb.io/v1beta1", "kind": wanted.kind,
                    "metadata": { "name": wanted.name, "labels": wanted.labels }, "spec": wanted.spec,
                });
                objects.create(resource, NAMESPACE, body);
            } else {
                objects.edit(resource, NAMESPACE, &wanted.name, |object| {
                    object["spec"] = wanted.spec;
                });
            }
        }
    }

    fn config(&self) -> String {
        let objects = self.objects();
        let found = objects.get("configmaps", NAMESPACE, CONFIG);
        let text = found.and_then(|config| config["data"][CONFIG].as_str());
        text.unwrap_or_default().to_owned()
    }

    fn metallb_objects(&self) -> Vec<Object> {
        let objects = self.objects();
        let all = KINDS.into_iter().flat_map(|(kind, resource)| {
            let found = objects.list(resource, NAMESPACE);
            found
                .map(move |(_, value)| object(kind, value))
                .collect::<Vec<_>>()
        });
        all.collect()
    }

    /// The entries of all pools.
    fn pools(&self) -> Vec<String> {
        let lists: Vec<Value> = if self.told_by() == Some(Announcer::Metallb) {
            let all = self.metallb_objects().into_iter();
            all.filter(|object| object.kind == "IPAddressPool")
                .map(|pool| pool.spec["addresses"].clone())
                .collect()
        } else {
            let config: Value = serde_saphyr::from_str(&self.config()).unwrap_or_default();
            let pools = config["address-pools"].as_array().into_iter().flatten();
            pools.map(|pool| pool["addresses"].clone()).collect()
        };
        let entries = lists.iter().filter_map(Value::as_array).flatten();
        entries.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// MetalLB looks at everything, and writes the status of Services.
    pub(crate) fn play_metallb(&self) {
        let Some(announcer) = self.told_by() else {
            return;
        };
        let pools = self.pools();
        let covered = |address: &str| pools.iter().filter(|entry| covers(entry, address)).count();
        let services: Vec<Value> = {
            let objects = self.objects();
            objects
                .list("services", "")
                .map(|(_, service)| service.clone())
                .collect()
        };
        for before in services {
            let shows = shown_by(&before);
            let annotation = before["metadata"]["annotations"][ADDRESSES].as_str();
            let annotation = annotation.filter(|_| announcer == Announcer::Metallb);
            let asks = annotation
                .or_else(|| before["spec"]["loadBalancerIP"].as_str())
                .unwrap_or_default();
            if !asks.is_empty() && covered(asks) > 1 {
                self.broken(format_args!(
                    "{asks} is in two pools: MetalLB refuses its configuration"
                ));
            }
            let keeps = covered(shows) > 0 && (asks.is_empty() || asks == shows);
            let says = match (&before["spec"]["type"], covered(asks) > 0) {
                (kind, _) if kind != "LoadBalancer" => "",
                _ if keeps => shows,
                (_, true) => asks,
                (_, false) => "",
            };
            if says != shows {
                self.say(&before, says);
            }
        }
    }

    fn say(&self, before: &Value, says: &str) {
        let text = |field: &str| before["metadata"][field].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        self.note(format_args!("MetalLB: {name} has `{says}`"));
        let mut objects = self.objects();
        objects.edit("services", namespace, name, |service| {
            service["status"]["loadBalancer"] = if says.is_empty() {
                json!({})
            } else {
                json!({ "ingress": [{ "ip": says }] })
            };
        });
        let after = objects.get("services", namespace, name).cloned();
        drop(objects);
        if let Some(after) = after {
            self.judge_service(before, &after);
        }
    }

    /// Looks at a write of a gateway to MetalLB's configuration.
    pub(crate) fn judge_metallb(&self, done: &Done) {
        let Done { path, before, .. } = done;
        if path.1 != NAMESPACE {
            return;
        }
        self.count("MetalLB told");
        let edit = self.state().edit;
        if path.0 == "configmaps" {
            if !is_intact(&self.config(), edit) {
                self.broken(format_args!("what people wrote was changed:\n{}", self.config()));
            }
            return;
        }
        let of_people = before
            .as_ref()
            .is_some_and(|before| !object("", before).is_ours());
        if of_people {
            self.broken(format_args!("{path:?} is people's, and was changed"));
        }
    }

    /// What MetalLB's configuration lacks, or has too much of.
    pub(crate) fn metallb_unwell(&self) -> Option<String> {
        let announcer = self.told_by()?;
        let mut wanted = Wanted::default();
        {
            let objects = self.objects();
            let shown = objects.list("services", "").map(|(_, service)| shown_by(service));
            wanted.addresses = shown
                .filter(|shows| !shows.is_empty())
                .map(str::to_owned)
                .collect();
            for (path, node) in objects.list("nodes", "") {
                let annotations: BTreeMap<&str, &str> = node["metadata"]["annotations"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
                    .collect();
                wanted.learn(&path.2, annotations);
            }
        }
        let edit = self.state().edit;
        if announcer == Announcer::MetallbConfigMap {
            wrong_in_text(&self.config(), edit, &wanted)
        } else {
            wrong_in_objects(&self.metallb_objects(), &people(edit), &wanted)
        }
    }
}
