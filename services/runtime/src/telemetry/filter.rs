//! What is logged, as it is now: it may be changed while the process runs.

use std::fmt;
use std::sync::Arc;

use tracing::info;
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::reload;

use super::TelemetryError;

/// A filter from a level or from directives.
pub(super) fn parse(text: &str) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .parse(text)
        .map_err(|source| TelemetryError::Filter {
            filter: text.to_owned(),
            source,
        })
}

/// The filter of the log. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct LogFilter(Arc<dyn Filtering>);

trait Filtering: Send + Sync {
    fn text(&self) -> Option<String>;
    fn set(&self, filter: EnvFilter) -> Result<(), reload::Error>;
}

impl<S: 'static> Filtering for reload::Handle<EnvFilter, S> {
    fn text(&self) -> Option<String> {
        self.with_current(EnvFilter::to_string).ok()
    }

    fn set(&self, filter: EnvFilter) -> Result<(), reload::Error> {
        self.reload(filter)
    }
}

impl LogFilter {
    pub(super) fn new<S: 'static>(handle: reload::Handle<EnvFilter, S>) -> Self {
        Self(Arc::new(handle))
    }

    /// One that filters nobody's log; its layer lives as long as the test.
    #[cfg(test)]
    pub(crate) fn detached(text: &str) -> Result<Self, TelemetryError> {
        let (layer, handle) = reload::Layer::<_, tracing_subscriber::Registry>::new(parse(text)?);
        // Its handle is weak.
        Box::leak(Box::new(layer));
        Ok(Self::new(handle))
    }

    /// As it is; empty once logging has ended.
    pub fn text(&self) -> String {
        self.0.text().unwrap_or_default()
    }

    /// Changes it, to a level (`debug`) or to directives (`info,groundplane_ipam=debug`). It is `info` where no directive
    /// says otherwise.
    pub fn set(&self, text: &str) -> Result<(), TelemetryError> {
        let filter = parse(text)?;
        // Said before, in case the new one keeps it back.
        info!(from = self.text(), to = text, "the log's filter is changed");
        self.0.set(filter).map_err(TelemetryError::Ended)
    }
}

impl fmt::Debug for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogFilter").field(&self.text()).finish()
    }
}
