//! What is wrong, if anything: one look at everything that is known.

use std::fmt::Write as _;
use std::time::Instant;

use groundplane_core::NodeName;

use super::{Candidate, Cause, Holder, Monitor, Sign, Tally};

/// What a look finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Nothing is wrong.
    Fine,
    /// Something is, and a move would not mend it, or would be rash.
    Note(String),
    /// The endpoint should leave its holder.
    Leave(Cause, String),
}

/// Whether what we see may be our own fault.
enum Doubt {
    None,
    /// Until the failure has lasted for long enough.
    Wait(String),
    /// For as long as it looks like this.
    Stay(String),
}

impl Monitor {
    pub(super) fn find(&self, now: Instant) -> Finding {
        match &self.situation.holder {
            Holder::Nobody => Finding::Leave(Cause::Unheld, "nobody holds the endpoint".to_owned()),
            Holder::Unknown => self.find_unknown(now),
            Holder::Node(node) => match self.situation.candidates.get(node) {
                Some(candidate) => self.find_held(node, *candidate, now),
                None => self.find_unknown(now),
            },
        }
    }

    /// The holder is no candidate: the endpoint's own probes are all that there is.
    fn find_unknown(&self, now: Instant) -> Finding {
        if self.situation.own_addresses_only {
            return Finding::Note(
                "who holds it is no candidate, or not known yet, and the endpoint's own address is not probed: nobody can tell whether it \
                 is well"
                    .to_owned(),
            );
        }
        if !is_dead(&self.endpoint) {
            return Finding::Fine;
        }
        let why = format!(
            "the endpoint missed {}; its holder is no candidate",
            misses(&self.endpoint)
        );
        let doubt = self.doubt(false, true, now);
        self.weigh(why, &self.endpoint, doubt, now)
    }

    fn find_held(&self, node: &NodeName, candidate: Candidate, now: Instant) -> Finding {
        let mut rash = None;
        if is_dead(&self.holding) {
            let answers = self.endpoint.is_ready();
            let mut why = format!(
                "{node}, which holds the endpoint, missed {}",
                misses(&self.holding)
            );
            if answers {
                why.push_str("; the endpoint still answers, which another machine may do in its place");
            }
            let seen = self.tallies.get(node).is_some_and(|t| t.answered_at().is_some());
            match self.weigh(why, &self.holding, self.doubt(answers, seen, now), now) {
                Finding::Note(why) => rash = Some(why),
                finding => return finding,
            }
        }
        if candidate.deleting {
            return Finding::Leave(Cause::Deleting, format!("{node} is being deleted"));
        }
        if candidate.cordoned {
            return Finding::Leave(Cause::Cordoned, format!("{node} is cordoned"));
        }
        if let Some(why) = rash {
            return Finding::Note(why);
        }
        if is_dead(&self.endpoint) && self.holding.is_ready() {
            return Finding::Note(format!(
                "the endpoint missed {}, and {node}, which holds it, is ready: the way to the address is broken, and not the \
                 machine, so a move would not mend it",
                misses(&self.endpoint)
            ));
        }
        Finding::Fine
    }

    fn weigh(&self, why: String, tally: &Tally, doubt: Doubt, now: Instant) -> Finding {
        let lasted = tally
            .failed_at()
            .is_some_and(|failed| now.saturating_duration_since(failed) >= self.settings.doubt);
        match doubt {
            Doubt::Wait(doubt) if !lasted => Finding::Note(format!(
                "{why}; {doubt}, so it must last for {:?}",
                self.settings.doubt
            )),
            Doubt::Stay(doubt) => Finding::Note(format!("{why}; {doubt}")),
            Doubt::None | Doubt::Wait(_) => Finding::Leave(Cause::Dead, why),
        }
    }

    /// May we be the ones who are cut off? `answers`: the endpoint does; `seen`: what failed was ready before our eyes.
    fn doubt(&self, answers: bool, seen: bool, now: Instant) -> Doubt {
        let all = self.situation.candidates.len();
        let heard = self.tallies.values().filter(|tally| {
            tally.is_fresh(&self.settings, now) && tally.sign().is_some_and(|sign| sign != Sign::Silent)
        });
        let heard = heard.count();
        let few = format!("only {heard} of {all} candidates are heard from here, which may be cut off");
        match (heard * 2 > all, answers) {
            (false, true) => Doubt::Stay(few),
            (false, false) => Doubt::Wait(few),
            (true, true) if !seen => Doubt::Wait("it was never ready since we look".to_owned()),
            (true, _) => Doubt::None,
        }
    }
}

/// It has failed, and the last probe missed, too.
fn is_dead(tally: &Tally) -> bool {
    tally.has_failed() && !tally.is_ready()
}

fn misses(tally: &Tally) -> String {
    let misses = tally.misses();
    let mut text = format!("{misses} probe{}", if misses == 1 { "" } else { "s in a row" });
    if !tally.detail().is_empty() {
        // Writing to a string cannot fail.
        write!(text, " ({})", tally.detail()).ok();
    }
    text
}
