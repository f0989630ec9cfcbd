//! From what there is to what becomes of it: pure.
//!
//! Every line says what the controllers will do by themselves, for they act on the same facts by the same rules; only lines with
//! `needs_apply` wait for a person. What is as it should be is left: a cluster that was taken over has nothing else.

mod endpoint;
mod leftovers;
mod reservations;
mod services;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use groundplane_core::Prefix;
use groundplane_proto::eip::v1::Standing;

use crate::cluster::objects::{Key, NodeObject, ServiceObject};
use crate::cluster::{Rival, Verdict};
use crate::config::{Announcer, Layout};
use crate::domain::service::Scope;

/// What a plan is made of.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) scope: Scope,
    pub(crate) announcer: Announcer,
    /// Are nodes told their peers?
    pub(crate) bgp: bool,
    /// Which.
    pub(crate) bgp_selector: String,
    /// The generations of annotations that are written.
    pub(crate) written: Vec<&'static str>,
    /// All generations, each with its names.
    pub(crate) formats: Vec<(&'static str, Vec<Layout>)>,
    pub(crate) rivals: Verdict,
    /// Is nothing written while one runs?
    pub(crate) refuses: bool,
    /// Those of this cluster, and those of which a name says that they may be; then those that other clusters have.
    pub(crate) reservations: Vec<Reserved>,
    /// Nodes that were looked at and have no peers to be told, and why.
    pub(crate) peerless: BTreeMap<Key, String>,
    /// All of the cluster.
    pub(crate) services: Vec<Arc<ServiceObject>>,
    pub(crate) nodes: Vec<Arc<NodeObject>>,
    pub(crate) metallb: Metallb,
    pub(crate) externals: Vec<External>,
    /// External Services that could not be read.
    pub(crate) unread: Vec<Unread>,
    /// Address and holder of the API endpoint, or why they are not known; `None`: no endpoint is configured.
    pub(crate) endpoint: Option<Result<(String, String), String>>,
}

/// A reservation of the cloud that some controller made.
#[derive(Clone, Debug)]
pub(crate) struct Reserved {
    pub(crate) id: String,
    pub(crate) prefix: Option<Prefix>,
    pub(crate) standing: Standing,
    pub(crate) owner: Option<Key>,
    pub(crate) tags: Vec<String>,
    pub(crate) names_cluster: bool,
}

/// What MetalLB was told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metallb {
    /// `namespace/name` of the `ConfigMap`.
    pub(crate) name: String,
    /// Its text; `None`: there is none, or we may not read it.
    pub(crate) text: Option<String>,
    /// Custom resources with the older controllers' label.
    pub(crate) labelled: Vec<Labelled>,
    pub(crate) unread: Vec<Unread>,
}

/// Something that may be there, and could not be read.
#[derive(Clone, Debug)]
pub(crate) struct Unread {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) why: String,
}

/// A custom resource with the older controllers' label.
#[derive(Clone, Debug)]
pub(crate) struct Labelled {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    /// A person made it, or changed what it is for: it stays theirs.
    pub(crate) users: bool,
}

/// An external Service of the API endpoint.
#[derive(Clone, Debug)]
pub(crate) struct External {
    pub(crate) key: Key,
    /// The one that we are told to keep.
    pub(crate) is_ours: bool,
    pub(crate) address: Option<String>,
    /// Who wrote to it.
    pub(crate) managers: Vec<String>,
}

/// What becomes of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Adopt,
    Change,
    Leave,
    Blocked,
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Item {
    pub(crate) group: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) found: String,
    pub(crate) action: Action,
    pub(crate) detail: String,
    /// The Service that gets this reservation by a person's word alone.
    pub(crate) gives: Option<Key>,
}

/// Everything that was found, and an id that stands for what of it a person decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) id: String,
    pub(crate) items: Vec<Item>,
}

impl Unread {
    /// `needed`: without it, the rest of the plan says too little.
    fn item(&self, group: &'static str, needed: bool) -> Item {
        let item = Item::new(group, self.kind, &self.name, "cannot be read");
        if needed {
            item.is(Action::Blocked, &*self.why)
        } else {
            item.is(Action::Leave, format!("not looked at: {}", self.why))
        }
    }
}

impl Item {
    fn new(
        group: &'static str,
        kind: &'static str,
        name: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self {
            group,
            kind,
            name: name.into(),
            found: found.into(),
            action: Action::Leave,
            detail: String::new(),
            gives: None,
        }
    }

    /// Does it need a person, or keep everybody from acting? All else the controllers do by themselves, also between plan and apply.
    fn is_decided(&self) -> bool {
        self.gives.is_some() || self.group == "rivals"
    }

    fn is(mut self, action: Action, detail: impl Into<String>) -> Self {
        self.action = action;
        self.detail = detail.into();
        self
    }
}

/// Plans.
pub(crate) fn plan(facts: &Facts) -> Plan {
    let mut items = rivals(&facts.rivals, facts.refuses);
    items.extend(reservations::items(facts));
    items.extend(services::items(facts));
    items.extend(leftovers::nodes(facts));
    items.extend(leftovers::metallb(facts));
    items.extend(endpoint::items(facts));
    items.extend(reservations::others(facts));
    let mut hasher = DefaultHasher::new();
    for item in items.iter().filter(|item| item.is_decided()) {
        item.hash(&mut hasher);
    }
    Plan {
        id: format!("{:016x}", hasher.finish()),
        items,
    }
}

fn rivals(verdict: &Verdict, refuses: bool) -> Vec<Item> {
    let meanwhile = if refuses {
        ""
    } else {
        "; groundplane goes on beside it, as gateway.rivals says"
    };
    let item = |kind, name: &str, found: &str, detail: String| {
        Item::new("rivals", kind, name, found).is(Action::Blocked, detail)
    };
    match verdict {
        Verdict::Clear => Vec::new(),
        Verdict::Undecided => vec![item(
            "controller",
            "an older one",
            "it is not known yet whether it runs",
            "look again in a minute".to_owned(),
        )],
        Verdict::Rivals(rivals) => rivals
            .iter()
            .map(|Rival { what, found, stop }| {
                item("controller", what, found, format!("stop it: {stop}{meanwhile}"))
            })
            .collect(),
    }
}

/// Is it ours already, with all that belongs to it?
fn is_settled(service: &ServiceObject) -> bool {
    let told = service.condition.as_ref();
    told.is_some_and(|condition| &*condition.status == "True") && !service.ingress.is_empty()
}

/// Has everything that the older controller served become ours?
fn all_settled(facts: &Facts) -> bool {
    let external = |key: &Key| facts.externals.iter().any(|external| external.key == *key);
    let mut ours = facts
        .services
        .iter()
        .filter(|service| facts.scope.has(service) && !service.deleting && !external(&service.key));
    ours.all(|service| is_settled(service))
}

#[cfg(test)]
mod tests;
