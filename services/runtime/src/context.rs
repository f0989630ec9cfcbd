//! What a service is given when it starts.

use std::fmt;
use std::sync::Arc;

use groundplane_core::{Clock, SystemClock};

use crate::{Health, Metrics, Tasks};

/// What a process lends to each of its services. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Context {
    /// Where tasks are started.
    pub tasks: Tasks,
    /// Where metrics are registered.
    pub metrics: Metrics,
    /// Where readiness is told.
    pub health: Health,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
}

impl Context {
    /// A context of its own for one process, with the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// As [`Context::new`], with this clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let tasks = Tasks::new();
        let health = Health::new(tasks.token());
        Self {
            tasks,
            metrics: Metrics::new(),
            health,
            clock,
        }
    }
}

impl Default for Context {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("tasks", &self.tasks)
            .field("health", &self.health)
            .finish_non_exhaustive()
    }
}
