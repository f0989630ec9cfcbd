//! How a process ends: the first SIGTERM or SIGINT drains, a second one aborts.
//!
//! The drain is bounded by [`DRAIN`], below the 30 s that Kubernetes grants by default before it kills.

use std::future::Future;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use crate::Tasks;
use crate::tasks::{DrainTimeout, TaskError};

/// How long tasks, streams and calls have to end: `terminationGracePeriodSeconds` (30 s) less the flush of traces.
pub const DRAIN: Duration = Duration::from_secs(25);

/// Why a process did not end well.
#[derive(Debug, thiserror::Error)]
pub enum ShutdownError {
    /// A second signal came while the first was being obeyed.
    #[error("aborted by a second signal")]
    Aborted,
    /// A task failed, and took the process with it.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// Not everything ended in time.
    #[error(transparent)]
    Drain(#[from] DrainTimeout),
    /// Signals cannot be listened to.
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
}

/// The signals that end a process. Made early: a signal between its making and [`run`] is not lost.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens from now on for SIGTERM and SIGINT. Needs a tokio runtime.
    pub fn listen() -> Result<Self, ShutdownError> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(ShutdownError::Signals)?,
            interrupt: signal(SignalKind::interrupt()).map_err(ShutdownError::Signals)?,
        })
    }
}

/// Where requests to stop come from.
trait Stops {
    /// The next request, by name. Dropping the future loses none.
    fn next(&mut self) -> impl Future<Output = &'static str>;
}

impl Stops for Signals {
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Waits for the first signal or the first failure of a task, then drains. Returns when the process may exit.
///
/// Whoever answers health checks sees the tasks' token cancelled and says `NOT_SERVING` from then on.
pub async fn run(tasks: &Tasks, mut signals: Signals) -> Result<(), ShutdownError> {
    drive(tasks, DRAIN, &mut signals).await
}

async fn drive(tasks: &Tasks, bound: Duration, stops: &mut impl Stops) -> Result<(), ShutdownError> {
    let cause = tokio::select! {
        failure = tasks.wait() => failure,
        name = stops.next() => {
            info!(signal = name, "stopping");
            Ok(())
        }
    };
    let drained = tokio::select! {
        drained = tasks.drain(bound) => drained,
        name = stops.next() => {
            warn!(signal = name, "aborting");
            return Err(ShutdownError::Aborted);
        }
    };
    // What failed first explains what came after it.
    cause?;
    tasks.wait().await?;
    drained?;
    info!("stopped");
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    impl Stops for mpsc::UnboundedReceiver<&'static str> {
        async fn next(&mut self) -> &'static str {
            match self.recv().await {
                Some(name) => name,
                None => std::future::pending().await,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_signal_cancels_and_the_drain_waits_for_tasks() {
        let tasks = Tasks::new();
        let token = tasks.token();
        tasks.spawn("worker", async move { token.cancelled().await });
        let (send, mut stops) = mpsc::unbounded_channel();
        send.send("SIGTERM").unwrap();
        drive(&tasks, DRAIN, &mut stops).await.unwrap();
        assert!(tasks.token().is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_aborts_a_drain_that_hangs() {
        let tasks = Tasks::new();
        tasks.spawn("deaf", std::future::pending());
        let (send, mut stops) = mpsc::unbounded_channel();
        send.send("SIGTERM").unwrap();
        send.send("SIGINT").unwrap();
        assert!(matches!(
            drive(&tasks, DRAIN, &mut stops).await,
            Err(ShutdownError::Aborted)
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_that_hangs_is_bounded() {
        let tasks = Tasks::new();
        tasks.spawn("deaf", std::future::pending());
        let (send, mut stops) = mpsc::unbounded_channel();
        send.send("SIGTERM").unwrap();
        let error = drive(&tasks, DRAIN, &mut stops).await.unwrap_err();
        assert_eq!(error.to_string(), "still running after 25.0 s: deaf");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_task_drains_and_is_the_reason() {
        let tasks = Tasks::new();
        tasks.spawn_critical("store", async { Err(std::io::Error::other("disk full")) });
        tasks.spawn("deaf", std::future::pending());
        let (_send, mut stops) = mpsc::unbounded_channel();
        let error = drive(&tasks, DRAIN, &mut stops).await.unwrap_err();
        assert_eq!(error.to_string(), "task `store` failed");
    }
}
