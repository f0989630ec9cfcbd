//! What happened in a run of a simulation, what of it must never have, and how often what did.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};

use parking_lot::Mutex;
use tokio::time::Instant;

/// How often what happened.
pub type Tally = BTreeMap<&'static str, u64>;

/// The chronicle of a run, by its own time.
#[derive(Debug)]
pub struct Chronicle {
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    log: Vec<String>,
    broken: Vec<String>,
    tally: Tally,
}

impl Chronicle {
    /// Of a run that begins now.
    #[must_use]
    pub fn begin() -> Self {
        Self {
            began: Instant::now(),
            state: Mutex::default(),
        }
    }

    /// When the run began.
    #[must_use]
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Writes down what happens, for whoever looks for the reason of a failure.
    pub fn note(&self, what: impl Display) {
        let at = self.began.elapsed().as_secs_f64();
        self.state.lock().log.push(format!("{at:>8.3} s  {what}"));
    }

    /// A rule is broken.
    pub fn broken(&self, what: impl Display) {
        let at = self.began.elapsed().as_secs_f64();
        self.note(format_args!("BROKEN: {what}"));
        self.state.lock().broken.push(format!("at {at:.3} s: {what}"));
    }

    /// It happened once more.
    pub fn count(&self, what: &'static str) {
        *self.state.lock().tally.entry(what).or_default() += 1;
    }

    /// How often what happened.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.state.lock().tally.clone()
    }

    /// What happened, line by line.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.state.lock().log.clone()
    }

    /// Nothing, if no rule is broken.
    ///
    /// # Errors
    /// Else what was broken first, with the plan, everything that leads there, and the command that shows it again.
    pub fn verdict(&self, plan: &dyn Display, replay: &str) -> Result<(), String> {
        let state = self.state.lock();
        let Some(first) = state.broken.first() else {
            return Ok(());
        };
        let (log, more) = (state.log.join("\n"), state.broken.len() - 1);
        Err(format!(
            "{plan}\nwhat happened:\n{log}\n\nbroken first, and {more} more: {first}\nreplay: {replay}"
        ))
    }
}

/// Adds up what happened in several runs.
pub fn add_up(tallies: impl IntoIterator<Item = Tally>) -> Tally {
    let mut sum = Tally::new();
    for (what, count) in tallies.into_iter().flatten() {
        *sum.entry(what).or_default() += count;
    }
    sum
}

/// What of this never happened.
#[must_use]
pub fn missing<'a>(tally: &Tally, wanted: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let happened = |what: &&str| tally.get(*what).is_some_and(|count| *count > 0);
    wanted.into_iter().filter(|what| !happened(what)).collect()
}

/// Ends a process at the n-th of its steps.
#[derive(Debug, Default)]
pub struct Fuse(Option<u32>);

impl Fuse {
    /// Burns for so many steps; 0 and 1 are the next one.
    pub fn light(&mut self, steps: u32) {
        self.0 = Some(steps);
    }

    /// Burns no more.
    pub fn put_out(&mut self) {
        self.0 = None;
    }

    /// A step. True: this was the one.
    pub fn step(&mut self) -> bool {
        let Some(left) = self.0 else {
            return false;
        };
        self.0 = left.checked_sub(1).filter(|left| *left > 0);
        self.0.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fuse_burns_down_once() {
        let mut fuse = Fuse::default();
        assert!(!fuse.step());
        fuse.light(2);
        assert_eq!([(); 3].map(|()| fuse.step()), [false, true, false]);
        fuse.light(1);
        fuse.put_out();
        assert!(!fuse.step());
    }

    #[test]
    fn what_was_broken_first_is_told_with_the_way_to_see_it_again() {
        let chronicle = Chronicle::begin();
        chronicle.note("a step");
        assert_eq!(chronicle.verdict(&"the plan", "make it"), Ok(()));
        chronicle.broken("one rule");
        chronicle.broken("another");
        let told = chronicle.verdict(&"the plan", "make it").unwrap_err();
        for part in [
            "the plan",
            "a step",
            "first, and 1 more: at",
            "one rule",
            "replay: make it",
        ] {
            assert!(told.contains(part), "{told}");
        }
    }

    #[test]
    fn what_never_happened_is_missing() {
        let tally = add_up([Tally::from([("a", 1), ("b", 0)]), Tally::from([("a", 2)])]);
        assert_eq!(tally["a"], 3);
        assert_eq!(missing(&tally, ["a", "b", "c"]), ["b", "c"]);
    }
}
