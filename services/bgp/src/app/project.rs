//! BGP of the project: switched on once, however many ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use groundplane_cloud::{BgpFabric, BgpProject, CloudError};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::info;

/// How often the cloud is asked whether it has approved.
const PENDING: Duration = Duration::from_secs(30);
/// How old an answer may be that somebody wants fresh, however many want it.
pub(crate) const RECENT: Duration = Duration::from_secs(10);

#[derive(Default)]
struct State {
    /// What the cloud said last, and when.
    project: Option<(BgpProject, Instant)>,
    /// Why the last attempt failed.
    failure: Option<CloudError>,
}

/// The project. The mutex is held across the calls: it is what makes them one.
pub(crate) struct Project {
    fabric: Arc<dyn BgpFabric>,
    state: Mutex<State>,
    /// Attempts that have ended.
    attempts: AtomicU64,
}

impl Project {
    pub(crate) fn new(fabric: Arc<dyn BgpFabric>) -> Self {
        Self {
            fabric,
            state: Mutex::default(),
            attempts: AtomicU64::new(0),
        }
    }

    /// Makes sure that BGP is on; an answer of that `age` will do. Who comes while another is at it gets that one's outcome.
    pub(crate) async fn ensure(&self, age: Duration) -> Result<BgpProject, CloudError> {
        let seen = self.attempts.load(Ordering::Acquire);
        let mut state = self.state.lock().await;
        if let Some((project, at)) = &state.project
            && at.elapsed() < if project.pending { PENDING } else { age }
        {
            return Ok(project.clone());
        }
        if self.attempts.load(Ordering::Acquire) != seen
            && let Some(failure) = &state.failure
        {
            return Err(failure.clone());
        }
        let outcome = self.switch_on().await;
        self.attempts.fetch_add(1, Ordering::Release);
        match outcome {
            Ok(project) => {
                state.failure = None;
                state.project = Some((project.clone(), Instant::now()));
                Ok(project)
            }
            // What was on stays on: it cannot be switched off.
            Err(error) => match &state.project {
                Some((project, _)) if !project.pending => Ok(project.clone()),
                _ => {
                    state.failure = Some(error.clone());
                    Err(error)
                }
            },
        }
    }

    /// Reads first: what the project has cannot be changed, and an unanswered attempt may have worked.
    async fn switch_on(&self) -> Result<BgpProject, CloudError> {
        match self.fabric.project().await? {
            Some(project) if project.enabled => Ok(project),
            _ => {
                let project = self.fabric.enable().await?;
                info!(
                    asn = project.local_asn,
                    pending = project.pending,
                    "BGP switched on for the project"
                );
                Ok(project)
            }
        }
    }
}
