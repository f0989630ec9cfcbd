//! The brake on deletions: what would take most of the nodes, or of the elastic IPs, is rather a wrong answer than the truth. Pure.
//!
//! Counted are distinct ones, over a sliding window of time: a cloud that loses its machines one by one is as wrong as one that
//! loses them at once. What a process deleted is remembered by it alone, so a new leader starts to count anew.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

/// So few nodes may always go within a window.
const ALWAYS: usize = 2;

/// What may go, and what went.
#[derive(Debug)]
pub(super) struct Brake {
    /// The largest share of the nodes that may go within the window.
    fraction: f64,
    window: Duration,
    /// Nodes that went within the window, by UID, and when.
    went: HashMap<Box<str>, Instant>,
}

/// What the brake says to a number of deletions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// May they all go?
    pub(super) allowed: bool,
    /// Nodes that would have gone within the window then.
    pub(super) gone: usize,
    /// Nodes that there were at its beginning, or came since.
    pub(super) all: usize,
}

impl Brake {
    /// A brake that lets this share of the nodes go within a window.
    pub(super) fn new(fraction: f64, window: Duration) -> Self {
        Self {
            fraction,
            window,
            went: HashMap::new(),
        }
    }

    /// May all of these go now? `gone` and `known` are UIDs; `known` has every node that there is, `gone` included.
    pub(super) fn judge<'a>(
        &mut self,
        gone: impl Iterator<Item = &'a str>,
        known: impl Iterator<Item = &'a str>,
        now: Instant,
    ) -> Verdict {
        self.went
            .retain(|_, at| now.saturating_duration_since(*at) < self.window);
        // A node that went may still be seen, where a watch is behind.
        let union = |some: &mut dyn Iterator<Item = &'a str>| {
            let mut all: HashSet<&str> = some.collect();
            all.extend(self.went.keys().map(|uid| &**uid));
            all.len()
        };
        let (mut gone, mut known) = (gone, known);
        let (gone, all) = (union(&mut gone), union(&mut known));
        #[allow(clippy::cast_precision_loss, reason = "numbers of nodes")]
        let share = gone as f64 / all.max(1) as f64;
        Verdict {
            allowed: gone <= ALWAYS || share <= self.fraction,
            gone,
            all,
        }
    }

    /// This node went, or may have gone: the answer to its deletion did not come.
    pub(super) fn went(&mut self, uid: &str, now: Instant) {
        self.went.insert(uid.into(), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(600);

    fn uids(range: std::ops::Range<usize>) -> Vec<String> {
        range.map(|n| format!("u{n}")).collect()
    }

    fn allowed(brake: &mut Brake, gone: &[String], known: &[String], now: Instant) -> bool {
        let (gone, known) = (gone.iter().map(String::as_str), known.iter().map(String::as_str));
        brake.judge(gone, known, now).allowed
    }

    #[test]
    fn few_nodes_and_small_shares_pass() {
        let now = Instant::now();
        for (gone, all, fraction, may) in [
            (0, 0, 0.5, true),
            (1, 1, 0.5, true),
            (2, 2, 0.5, true),
            (3, 3, 0.5, false),
            (3, 6, 0.5, true),
            (4, 6, 0.5, false),
            (6, 6, 1.0, true),
        ] {
            let mut brake = Brake::new(fraction, WINDOW);
            let says = allowed(&mut brake, &uids(0..gone), &uids(0..all), now);
            assert_eq!(says, may, "{gone} of {all} at {fraction}");
        }
    }

    /// One by one, they are as many as at once; when the first ones are long gone, the next may go.
    #[test]
    fn the_window_slides() {
        let mut brake = Brake::new(0.5, WINDOW);
        let start = Instant::now();
        let all = uids(0..6);
        for n in 0..3 {
            let now = start + WINDOW / 4 * u32::try_from(n).unwrap();
            assert!(allowed(&mut brake, &all[n..=n], &all[n..], now), "{n}");
            brake.went(&all[n], now);
        }
        let (fourth, left) = (&all[3..4], &all[3..]);
        let before = start + WINDOW - Duration::from_millis(1);
        assert!(!allowed(&mut brake, fourth, left, before));
        // Of the five that are left of the window's six, two went; with this one it is three of five.
        assert!(!allowed(&mut brake, fourth, left, start + WINDOW));
        // One went, and this is the second.
        assert!(allowed(&mut brake, fourth, left, start + WINDOW / 4 * 5));
    }

    /// A node that was deleted, and that a watch still shows, is one node.
    #[test]
    fn a_node_is_counted_once() {
        let mut brake = Brake::new(0.5, WINDOW);
        let now = Instant::now();
        let all = uids(0..4);
        for uid in &all[..2] {
            brake.went(uid, now);
        }
        assert!(allowed(&mut brake, &all[..2], &all, now));
        assert!(!allowed(&mut brake, &all[..3], &all, now));
    }
}
