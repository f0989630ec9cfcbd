//! Does an older controller run? Pure.
//!
//! Three things tell: pods of its workload, renewals of its lease, and, where neither does, what it writes (`writes`).
//!
//! A lease proves by its renewals alone that its holder lives, and those are seen, not reckoned: it was renewed if it differs from the
//! last look. Clocks take part in one case: what was renewed an hour ago by both is not waited for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use groundplane_core::DriverName;
use groundplane_core::older::{self, OlderController, Workload};
use jiff::Timestamp;
use tokio::time::Instant;

use super::writes::{Ledger, News, Write};

/// No two clocks differ by so much: a lease that nobody renewed for as long has been left.
const ABANDONED: i64 = 3600;

/// A pod whose workload is gone may write on for the time that Kubernetes gives it to end, and a little more.
const GRACE: Duration = Duration::from_secs(35);

/// An older controller that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rival {
    /// `daemonset kube-system/cloud-provider-equinix-metal`.
    pub(crate) what: String,
    /// What shows that it runs.
    pub(crate) found: String,
    /// The command that stops it.
    pub(crate) stop: String,
}

/// What is known of older controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may be that one runs.
    Undecided,
    /// None runs.
    Clear,
    /// These run.
    Rivals(Vec<Rival>),
}

/// What the lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Renewal {
    pub(super) holder: String,
    pub(super) renewed: Option<Timestamp>,
    pub(super) duration: Duration,
}

/// A look at the lease.
#[derive(Clone, Debug, Default)]
pub(super) enum Seen {
    /// It could not be read, and is as it was.
    Unread,
    /// Nobody holds it.
    #[default]
    Free,
    /// Somebody does, or did.
    Held(Renewal),
}

/// One look.
#[derive(Clone, Debug)]
pub(super) struct Sight {
    pub(super) lease: Seen,
    /// Pods at work; `None`: that could not be read, and is as it was.
    pub(super) workloads: Vec<(Workload, Option<i32>)>,
    /// Their last writes; `None`: that could not be read, and is as it was.
    pub(super) writes: Option<Vec<Write>>,
}

/// The lease as it was seen.
#[derive(Clone, Debug)]
struct Held {
    renewal: Renewal,
    /// Since when it has been so.
    since: Instant,
    /// Did we see it become so?
    moved: bool,
}

/// Remembers what was seen.
#[derive(Debug)]
pub(super) struct Judge {
    driver: DriverName,
    /// Was the lease ever read?
    read: bool,
    held: Option<Held>,
    pods: BTreeMap<Workload, i32>,
    /// When pods were last seen at work that renew no lease: nothing tells that they have ended.
    unleased: Option<Instant>,
    ledger: Ledger,
}

impl Judge {
    pub(super) fn new(driver: DriverName) -> Self {
        Self {
            driver,
            read: false,
            held: None,
            pods: BTreeMap::new(),
            unleased: None,
            ledger: Ledger::default(),
        }
    }

    /// The older controllers of the driver's cloud.
    pub(super) fn suspects(&self) -> impl Iterator<Item = &'static OlderController> + use<> {
        older::of(self.driver)
    }

    /// What their manifests run.
    pub(super) fn workloads(&self) -> Vec<Workload> {
        self.suspects()
            .flat_map(|one| one.workloads.iter().copied())
            .collect()
    }

    /// Takes a look in, and says what is known then.
    pub(super) fn see(&mut self, sight: Sight, now: Instant, wall: Timestamp) -> Verdict {
        match sight.lease {
            Seen::Unread => {}
            Seen::Free => (self.held, self.read) = (None, true),
            Seen::Held(renewal) => (self.held, self.read) = (Some(self.hold(renewal, now, wall)), true),
        }
        for (workload, pods) in sight.workloads {
            if let Some(pods) = pods {
                self.pods.insert(workload, pods);
            }
        }
        let mut rivals: Vec<Rival> = self
            .pods
            .iter()
            .filter(|(_, pods)| **pods > 0)
            .map(|(workload, pods)| running(*workload, *pods))
            .collect();
        let recent = self
            .held
            .as_ref()
            .filter(|held| now.saturating_duration_since(held.since) < held.renewal.duration);
        if let Some(held) = recent.filter(|held| held.moved) {
            rivals.push(self.leading(&held.renewal));
        }
        if recent.is_some() {
            self.unleased = None;
        } else if !rivals.is_empty() {
            self.unleased = Some(now);
        }
        let lingers = self
            .unleased
            .is_some_and(|seen| now.saturating_duration_since(seen) < GRACE);
        self.ledger
            .see(sight.writes, lingers || !rivals.is_empty(), now, wall);
        rivals.extend(self.ledger.news().map(writing));
        let known = self.read && self.workloads().iter().all(|one| self.pods.contains_key(one));
        match (rivals.is_empty(), known && recent.is_none() && !lingers) {
            (false, _) => Verdict::Rivals(rivals),
            (true, true) => Verdict::Clear,
            (true, false) => Verdict::Undecided,
        }
    }

    fn hold(&self, renewal: Renewal, now: Instant, wall: Timestamp) -> Held {
        match &self.held {
            Some(held)
                if held.renewal.renewed == renewal.renewed && held.renewal.holder == renewal.holder =>
            {
                Held {
                    renewal,
                    ..held.clone()
                }
            }
            _ if self.read => Held {
                renewal,
                since: now,
                moved: true,
            },
            _ => {
                let left = renewal
                    .renewed
                    .is_some_and(|renewed| wall.as_second().saturating_sub(renewed.as_second()) > ABANDONED);
                let since = if left {
                    now.checked_sub(renewal.duration).unwrap_or(now)
                } else {
                    now
                };
                Held {
                    renewal,
                    since,
                    moved: false,
                }
            }
        }
    }

    /// Whoever renews the lease, and whose pods we may not have found.
    fn leading(&self, renewal: &Renewal) -> Rival {
        let all = self.workloads();
        let names = all
            .iter()
            .map(|workload| format!("{}/{}", workload.kind.as_str(), workload.name));
        Rival {
            what: format!("the holder of lease {}/{}", older::NAMESPACE, older::LEASE),
            found: format!("{} renews it", renewal.holder),
            stop: format!(
                "kubectl -n {} delete --ignore-not-found {}",
                older::NAMESPACE,
                names.collect::<Vec<_>>().join(" ")
            ),
        }
    }
}

fn running(workload: Workload, pods: i32) -> Rival {
    let (namespace, kind, name) = (older::NAMESPACE, workload.kind.as_str(), workload.name);
    Rival {
        what: format!("{kind} {namespace}/{name}"),
        found: format!("{pods} of its pods ready"),
        stop: format!("kubectl -n {namespace} delete {kind} {name}"),
    }
}

/// One that has neither pods nor a lease where they are looked for: under another name, in another namespace, or no pod at all.
fn writing(news: &News) -> Rival {
    let Write {
        object, manager, at, ..
    } = &news.write;
    let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
    let names: BTreeSet<&str> = older::by_field_manager(manager)
        .into_iter()
        .flat_map(|one| {
            one.workloads
                .iter()
                .map(|workload| workload.name)
                .chain([one.name])
        })
        .collect();
    let names = names.into_iter().collect::<Vec<_>>().join("|");
    Rival {
        what: format!("a controller that writes as `{manager}`"),
        found: format!(
            "it wrote {object}{at}, while none of its usual workloads has pods in {}",
            older::NAMESPACE
        ),
        stop: format!(
            "kubectl get daemonsets,deployments,pods -A -o wide | grep -E '{names}', and delete what that finds"
        ),
    }
}

#[cfg(test)]
mod tests;
