//! Files that are read again, and what is made of them.

use std::sync::Arc;
use std::time::Duration;

use groundplane_core::Clock;
use jiff::Timestamp;
use parking_lot::Mutex;
use tracing::{error, info, warn};

use super::TlsError;
use super::identity::Validity;
use super::material::Bytes;
use super::metrics::{Outcome, TlsMetrics};

/// How often files are looked at. Kubernetes itself takes up to a minute to bring a changed Secret to a pod.
pub(crate) const RELOAD_INTERVAL: Duration = Duration::from_secs(3);

/// How often one is warned of a certificate that runs out.
const WARN_EVERY: Duration = Duration::from_secs(60 * 60);

/// A warning when this share of a certificate's life is left. Whoever renews does so at a third, usually.
const WARN_SHARE: i64 = 5;

/// Files of which something is made.
pub(super) trait Source: Send + Sync + 'static {
    /// What.
    type Made: Send + Sync;

    /// For whom: `server`, `client`, or another that metrics know.
    fn side(&self) -> &'static str;

    /// The files, as they are.
    fn read(&self) -> Result<Bytes, TlsError>;

    /// Makes it, and says how long our own certificate is good.
    fn make(&self, bytes: &Bytes) -> Result<(Self::Made, Option<Validity>), TlsError>;

    /// Names the files, for the log.
    fn name(&self) -> String;
}

/// What a look at the files found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    /// They are as they were.
    Same,
    /// They have changed, and the new ones are in use.
    Changed,
    /// They cannot be used; the old ones are.
    Failed,
}

struct State<T> {
    made: Arc<T>,
    version: u64,
    validity: Option<Validity>,
    bytes: Bytes,
    /// What is wrong, and how often it was seen.
    trouble: Option<(String, u32)>,
    warned: Option<tokio::time::Instant>,
}

/// What was made of the files when they were last in order. The lock is held for moments only.
pub(super) struct Reloading<S: Source> {
    source: S,
    state: Mutex<State<S::Made>>,
}

impl<S: Source> Reloading<S> {
    pub(super) fn load(source: S) -> Result<Self, TlsError> {
        let bytes = source.read()?;
        let (made, validity) = source.make(&bytes)?;
        let state = State {
            made: Arc::new(made),
            version: 1,
            validity,
            bytes,
            trouble: None,
            warned: None,
        };
        Ok(Self {
            source,
            state: Mutex::new(state),
        })
    }

    /// What is in use, and how many there were with it.
    pub(super) fn current(&self) -> (Arc<S::Made>, u64) {
        let state = self.state.lock();
        (Arc::clone(&state.made), state.version)
    }

    pub(super) fn source(&self) -> &S {
        &self.source
    }

    /// Looks at the files.
    pub(super) fn look(&self) -> Looked {
        let read = self.source.read().and_then(|bytes| {
            if self.state.lock().bytes == bytes {
                return Ok(None);
            }
            let made = self.source.make(&bytes)?;
            Ok(Some((bytes, made)))
        });
        match read {
            Ok(None) => {
                self.state.lock().trouble = None;
                Looked::Same
            }
            Ok(Some((bytes, (made, validity)))) => {
                let mut state = self.state.lock();
                state.made = Arc::new(made);
                state.version += 1;
                state.bytes = bytes;
                state.validity = validity;
                (state.trouble, state.warned) = (None, None);
                drop(state);
                let expires = validity.map(|validity| validity.expires.to_string());
                info!(
                    side = self.source.side(),
                    files = self.source.name(),
                    expires,
                    "certificates were renewed"
                );
                Looked::Changed
            }
            Err(wrong) => self.complain(&wrong),
        }
    }

    /// Once, and not at first sight: files are often written one after another.
    fn complain(&self, wrong: &TlsError) -> Looked {
        let text = wrong.to_string();
        let mut state = self.state.lock();
        let seen = match state.trouble.take() {
            Some((before, seen)) if before == text => seen.saturating_add(1),
            _ => 1,
        };
        state.trouble = Some((text, seen));
        drop(state);
        if seen != 2 {
            return Looked::Same;
        }
        error!(
            side = self.source.side(),
            files = self.source.name(),
            error = wrong as &dyn std::error::Error,
            "changed certificates cannot be used; the old ones stay in use"
        );
        Looked::Failed
    }

    /// As [`Reloading::look`], counted; and a warning if our certificate runs out.
    pub(super) fn watch(&self, metrics: &TlsMetrics, clock: &dyn Clock) -> Looked {
        let looked = self.look();
        match looked {
            Looked::Same => {}
            Looked::Changed => metrics.reloaded(self.source.side(), Outcome::Ok),
            Looked::Failed => metrics.reloaded(self.source.side(), Outcome::Failed),
        }
        let validity = self.state.lock().validity;
        if let Some(validity) = validity {
            metrics.expires(self.source.side(), validity.expires);
            self.warn(validity, clock.now());
        }
        looked
    }

    fn warn(&self, validity: Validity, now: Timestamp) {
        let Some(over) = runs_out(validity, now) else {
            return;
        };
        let mut state = self.state.lock();
        if state.warned.is_some_and(|at| at.elapsed() < WARN_EVERY) {
            return;
        }
        state.warned = Some(tokio::time::Instant::now());
        drop(state);
        let (side, files, expires) = (self.source.side(), self.source.name(), validity.expires);
        if over {
            error!(side, files, %expires, "our certificate has expired: put a renewed one into its file, no restart is needed");
        } else {
            warn!(side, files, %expires, "our certificate will expire soon: put a renewed one into its file, no restart is needed");
        }
    }
}

/// Is it time to warn? Says whether the certificate has expired.
pub(super) fn runs_out(validity: Validity, now: Timestamp) -> Option<bool> {
    let life = validity.expires.as_second() - validity.begins.as_second();
    let left = validity.expires.as_second() - now.as_second();
    (left < life / WARN_SHARE).then_some(left <= 0)
}
