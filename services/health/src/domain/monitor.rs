//! When an endpoint should move, and where to.
//!
//! Two things are probed that should say the same: the endpoint's address, and the own address of the machine that holds it. They may
//! differ. From a machine of the cluster, kube-proxy may lead the endpoint's address to any API server that is healthy, so that a dead
//! holder looks alive through it; and the address may miss though its holder is well, where a route is wrong or not learnt yet. What
//! counts is therefore the holder itself:
//!
//! | endpoint | holder's own address | what it means | verdict |
//! |---|---|---|---|
//! | answers | answers | all is well | none |
//! | misses | answers | the way to the address is broken, not the machine | none: never while the holder is ready. The reason says so |
//! | misses | misses | the holder is dead, or we are cut off | DEAD where a majority of the candidates is heard; else after `doubt` |
//! | answers | misses | another answers in its place, or only our way to the holder is broken | DEAD where a majority is heard and the holder was ready before our eyes; where it never was, after `doubt`; without a majority never |
//!
//! *Heard* is a candidate from which anything came back, a refusal, too. Whoever is cut off alone hears itself and nobody else, and
//! so gives no verdict at once. `doubt` is longer than an API server takes to be unready once its own etcd has lost the majority; a
//! candidate that is ready still after that has a store which works.
//!
//! Where machines carry the endpoint's address themselves, it answers from wherever it is asked: it is then not probed at all
//! (`own_addresses_only`), and the holder's own address decides, as if the endpoint missed with it.
//!
//! A holder of which nothing is known is judged by the endpoint's probes alone. An endpoint that nobody holds gets a verdict at once; a
//! holder that is cordoned or being deleted is left while it works, for one that is to stay.
//!
//! Invariants, each after every step: the decision names only a candidate that was ready when it was probed last, not longer ago than
//! an interval, that does not hold the endpoint and is not being deleted; while the holder is ready and is to stay, it names none; one
//! that was refused it names only where there is no other, and never while the holder works: each try may cost it the endpoint. It is
//! given once, and again after `dwell` where nothing came of it, or at once where the named one is ready no more. Where the holder
//! changes under us, counting and dwell start again: another agent was quicker. Nothing delays a first verdict.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use groundplane_core::NodeName;

use super::find::Finding;
use super::rank::rank;
use super::{Candidate, Cause, Change, Event, Holder, Settings, Situation, Tally};

/// What should be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The node that should hold the endpoint; `None`: leave it where it is.
    pub move_to: Option<NodeName>,
    /// Why it should move, also where there is nobody to move it to.
    pub cause: Option<Cause>,
    /// For people; empty where all is well.
    pub reason: String,
    /// From the last answer, or since we began to look, to the verdict. Zero where there is none.
    pub detected_after: Duration,
    /// When it was given.
    pub at: Instant,
    /// How many verdicts were given until now.
    pub verdict: u64,
}

/// A verdict that was given.
#[derive(Clone, Debug)]
struct Judged {
    at: Instant,
    node: NodeName,
    cause: Option<Cause>,
}

/// An address that turned from one state to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Of a candidate; `None`: the endpoint.
    pub node: Option<NodeName>,
    /// How.
    pub change: Change,
}

/// What an event led to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The decision, where it changed or is given again.
    pub decision: Option<Decision>,
    /// An address that turned.
    pub turn: Option<Turn>,
}

/// What is known of one address.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// A candidate; `None`: the endpoint.
    pub node: Option<&'a NodeName>,
    /// The address.
    pub address: SocketAddr,
    /// Its probes.
    pub tally: &'a Tally,
}

/// Watches one endpoint. Whoever probes feeds the outcomes in; time comes as an argument.
#[derive(Clone, Debug)]
pub struct Monitor {
    pub(super) settings: Settings,
    pub(super) situation: Situation,
    address: SocketAddr,
    pub(super) endpoint: Tally,
    /// Of the candidates, for as long as they keep their address.
    pub(super) tallies: BTreeMap<NodeName, Tally>,
    /// Of the holder, since it holds.
    pub(super) holding: Tally,
    /// Since when it holds.
    since: Instant,
    /// The last verdict about this holder.
    judged: Option<Judged>,
    /// Since when the cause is there that is now.
    cause: Option<(Cause, Instant)>,
    decision: Decision,
}

impl Monitor {
    /// Knows of no candidate yet.
    pub fn new(settings: Settings, address: SocketAddr, now: Instant) -> Self {
        Self {
            settings,
            situation: Situation::default(),
            address,
            endpoint: Tally::default(),
            tallies: BTreeMap::new(),
            holding: Tally::default(),
            since: now,
            judged: None,
            cause: None,
            decision: Decision {
                move_to: None,
                cause: None,
                reason: String::new(),
                detected_after: Duration::ZERO,
                at: now,
                verdict: 0,
            },
        }
    }

    /// What should be done now.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// How things are, as they were told last.
    pub fn situation(&self) -> &Situation {
        &self.situation
    }

    /// The endpoint, then the candidates by name.
    pub fn observed(&self) -> impl Iterator<Item = Observed<'_>> {
        let endpoint = Observed {
            node: None,
            address: self.address,
            tally: &self.endpoint,
        };
        let endpoint = (!self.situation.own_addresses_only).then_some(endpoint);
        let candidates = self.tallies.iter().filter_map(|(node, tally)| {
            let address = self.situation.candidates.get(node)?.address;
            Some(Observed {
                node: Some(node),
                address,
                tally,
            })
        });
        endpoint.into_iter().chain(candidates)
    }

    /// Takes in what happened.
    pub fn step(&mut self, event: Event, now: Instant) -> Step {
        let turn = match event {
            Event::Changed(situation) => {
                self.change(situation, now);
                None
            }
            Event::Probed { node, outcome, ended } => {
                let change = match &node {
                    None if self.situation.own_addresses_only => None,
                    None => self.endpoint.record(outcome, ended, &self.settings),
                    Some(node) => {
                        if self.situation.holder == Holder::Node(node.clone()) {
                            self.holding.record(outcome.clone(), ended, &self.settings);
                        }
                        self.tallies
                            .get_mut(node)
                            .and_then(|tally| tally.record(outcome, ended, &self.settings))
                    }
                };
                change.map(|change| Turn { node, change })
            }
        };
        Step {
            decision: self.judge(now),
            turn,
        }
    }

    fn change(&mut self, situation: Situation, now: Instant) {
        let before = std::mem::replace(&mut self.situation, situation);
        let address = |situation: &Situation, node: &NodeName| {
            situation.candidates.get(node).map(|candidate| candidate.address)
        };
        self.tallies
            .retain(|node, _| address(&before, node) == address(&self.situation, node));
        for node in self.situation.candidates.keys() {
            self.tallies.entry(node.clone()).or_default();
        }
        let moved = match &self.situation.holder {
            Holder::Node(node) => address(&before, node) != address(&self.situation, node),
            Holder::Nobody | Holder::Unknown => false,
        };
        if moved || before.holder != self.situation.holder {
            self.holding = Tally::default();
            self.endpoint = Tally::default();
            self.since = now;
            self.judged = None;
            self.cause = None;
        }
        if self.situation.own_addresses_only {
            self.endpoint = Tally::default();
        }
    }

    /// Looks at everything, and changes the decision where that is due. Returns it where it changed or is given again.
    fn judge(&mut self, now: Instant) -> Option<Decision> {
        let mut next = Decision {
            move_to: None,
            cause: None,
            reason: String::new(),
            detected_after: Duration::ZERO,
            at: now,
            verdict: self.decision.verdict,
        };
        match self.find(now) {
            Finding::Fine => self.calm(),
            Finding::Note(reason) => {
                self.calm();
                next.reason = reason;
            }
            Finding::Leave(cause, why) => {
                let since = match self.cause {
                    Some((before, since)) if before == cause => since,
                    _ => now,
                };
                self.cause = Some((cause, since));
                next.cause = Some(cause);
                match self.choose(cause, now) {
                    None => {
                        self.judged = None;
                        next.reason = format!("{why}; {}", self.why_nobody(cause));
                    }
                    Some(node) => return self.verdict(next, node, why, since),
                }
            }
        }
        self.publish(next)
    }

    /// There is no cause now. Where what failed has recovered, too, the next failure is a first one.
    fn calm(&mut self) {
        self.cause = None;
        let failed = match &self.situation.holder {
            Holder::Node(node) if self.situation.candidates.contains_key(node) => self.holding.has_failed(),
            _ => self.endpoint.has_failed(),
        };
        if !failed {
            self.judged = None;
        }
    }

    /// Gives the verdict where it is due.
    fn verdict(
        &mut self,
        mut next: Decision,
        node: NodeName,
        why: String,
        since: Instant,
    ) -> Option<Decision> {
        let now = next.at;
        let recent = self.judged.as_ref().filter(|judged| {
            judged.node == node && now.saturating_duration_since(judged.at) < self.settings.dwell
        });
        if let Some(judged) = recent {
            if self.decision.move_to.as_ref() == Some(&node) {
                if self.decision.cause == next.cause {
                    return None;
                }
                // The same verdict for another cause: said, but not given again.
                self.decision.cause = next.cause;
                self.decision.reason = why;
                return Some(self.decision.clone());
            }
            if judged.cause == next.cause {
                let dwell = self.settings.dwell;
                next.reason = format!("{why}; a move to {node} was asked for less than {dwell:?} ago");
                return self.publish(next);
            }
        }
        let detected = match &self.judged {
            // Given again: it was detected when it was given first.
            Some(judged) if judged.cause == next.cause && self.decision.move_to.is_some() => {
                self.decision.detected_after
            }
            _ => now.saturating_duration_since(self.began(next.cause, since)),
        };
        next.detected_after = detected;
        next.verdict = self.decision.verdict + 1;
        self.judged = Some(Judged {
            at: now,
            node: node.clone(),
            cause: next.cause,
        });
        next.move_to = Some(node);
        next.reason = why;
        self.decision = next.clone();
        Some(next)
    }

    /// Publishes a decision that names nobody, unless it says what is said already. Numbers within a reason may grow without being news.
    fn publish(&mut self, next: Decision) -> Option<Decision> {
        let same = self.decision.move_to.is_none()
            && self.decision.cause == next.cause
            && without_digits(&self.decision.reason).eq(without_digits(&next.reason));
        if same {
            return None;
        }
        self.decision = next.clone();
        Some(next)
    }

    /// When what the verdict is about began.
    fn began(&self, cause: Option<Cause>, since: Instant) -> Instant {
        let answered = match (cause, &self.situation.holder) {
            (Some(Cause::Dead), Holder::Node(node)) if self.situation.candidates.contains_key(node) => {
                self.holding.answered_at()
            }
            (Some(Cause::Dead), _) => self.endpoint.answered_at(),
            _ => return since,
        };
        answered.unwrap_or(self.since)
    }

    /// The best candidate: one that was ready in the last interval, that is not the holder, and that is to stay. Where none is to
    /// stay, a cordoned one will do, but not in place of a holder that works. One that was refused comes behind all. One that failed
    /// lately, and has not recovered, comes behind the others. The last verdict's is kept for as long as it will do; else the rank
    /// decides, which is the same everywhere.
    fn choose(&self, cause: Cause, now: Instant) -> Option<NodeName> {
        let fit = self.situation.candidates.iter().filter_map(|(node, candidate)| {
            let tally = self.tallies.get(node)?;
            let ready = tally.is_ready() && tally.is_fresh(&self.settings, now);
            (ready && self.may_hold(node, *candidate, cause)).then_some((node, candidate, tally))
        });
        fit.min_by_key(|(node, candidate, tally)| {
            (
                candidate.refused,
                candidate.cordoned,
                self.turn(node, candidate.refused, now),
                tally.has_failed(),
                rank(self.address, node),
                *node,
            )
        })
        .map(|(node, ..)| node.clone())
    }

    /// The last verdict's comes first; where nobody but those that were refused is left, last once its time is over: the next may be
    /// luckier.
    fn turn(&self, node: &NodeName, refused: bool, now: Instant) -> Turns {
        match self.judged.as_ref().filter(|judged| judged.node == *node) {
            None => Turns::Any,
            Some(judged) => {
                let over = now.saturating_duration_since(judged.at) >= self.settings.dwell;
                if refused && over {
                    Turns::Last
                } else {
                    Turns::First
                }
            }
        }
    }

    fn may_hold(&self, node: &NodeName, candidate: Candidate, cause: Cause) -> bool {
        let holds = self.holds(node);
        let works = matches!(cause, Cause::Cordoned | Cause::Deleting);
        !holds && !candidate.deleting && (!works || !(candidate.cordoned || candidate.refused))
    }

    fn holds(&self, node: &NodeName) -> bool {
        matches!(&self.situation.holder, Holder::Node(holder) if holder == node)
    }

    fn why_nobody(&self, cause: Cause) -> &'static str {
        let others = || {
            let all = self.situation.candidates.iter();
            all.filter(|(node, _)| !self.holds(node))
        };
        if others().any(|(node, candidate)| self.may_hold(node, *candidate, cause)) {
            "no candidate is ready"
        } else if others()
            .any(|(_, candidate)| candidate.refused && !candidate.cordoned && !candidate.deleting)
        {
            "the cloud did not give it to the only candidates that are left, and while its holder works they are not tried again soon"
        } else {
            "there is no other candidate that could hold it"
        }
    }
}

/// When it is a candidate's turn, among equals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turns {
    First,
    Any,
    Last,
}

fn without_digits(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|character| !character.is_ascii_digit())
}

#[cfg(test)]
mod tests;
