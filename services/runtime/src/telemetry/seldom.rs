//! Lines of the log that a stranger could cause at will: each is written once in a while, with how many were not.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Different lines that are kept apart; the others wait until one of them is old.
const MOST: usize = 256;

struct Line {
    written: Instant,
    kept_back: u64,
}

/// Says when the line for a key may be written.
pub(crate) struct Seldom<K> {
    every: Duration,
    lines: Mutex<HashMap<K, Line>>,
}

impl<K: Eq + Hash> Seldom<K> {
    pub(crate) fn every(every: Duration) -> Self {
        Self {
            every,
            lines: Mutex::default(),
        }
    }

    /// `Some` if it is time, with how many lines for the key were kept back since the last.
    pub(crate) fn now(&self, key: K) -> Option<u64> {
        let now = Instant::now();
        let mut lines = self.lines.lock();
        if let Some(line) = lines.get_mut(&key) {
            if now.duration_since(line.written) < self.every {
                line.kept_back += 1;
                return None;
            }
            line.written = now;
            return Some(std::mem::take(&mut line.kept_back));
        }
        if lines.len() >= MOST {
            lines.retain(|_, line| now.duration_since(line.written) < self.every);
        }
        if lines.len() >= MOST {
            return None;
        }
        let line = Line {
            written: now,
            kept_back: 0,
        };
        lines.insert(key, line);
        Some(0)
    }
}

impl<K> std::fmt::Debug for Seldom<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seldom")
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_line_is_written_once_a_while_and_counts_the_others() {
        let seldom = Seldom::every(Duration::from_secs(30));
        assert_eq!(seldom.now("a"), Some(0));
        assert_eq!((seldom.now("a"), seldom.now("a")), (None, None));
        assert_eq!(seldom.now("b"), Some(0), "another line has its own time");
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(seldom.now("a"), Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_different_lines_is_bounded() {
        let seldom = Seldom::every(Duration::from_secs(30));
        let written = (0..10 * MOST).filter(|n| seldom.now(*n).is_some()).count();
        assert_eq!(written, MOST);
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(seldom.now(0), Some(0), "the old ones make room");
    }
}
