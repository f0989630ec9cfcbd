//! The API endpoint: read it, and carry out a move.
//!
//! A move has a task of its own. Its caller's deadline, or departure, ends it only while nothing was taken away: once the address may
//! be with nobody, it goes on until somebody has it, for [`FINISH`] at most. Moves of one process wait for each other; those of others
//! are told apart by what the cloud says.

use std::sync::Arc;
use std::time::Duration;

use groundplane_cloud::{
    Cloud, CloudError, CloudErrorKind, ConfiguredEndpoint, Endpoint, EndpointAssignment, EndpointIps,
};
use groundplane_core::{Clock, ProviderId};
use groundplane_runtime::grpc::InvalidField;
use groundplane_runtime::{Backoff, Context, Tasks};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Mutex as Gate, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tracing::{Instrument as _, Span, debug, error, info, instrument, warn};

use crate::domain::{End, Move, Step, Wish};
use crate::error::{EipError, EndpointError};
use crate::metrics::{EndpointCall, EndpointMetrics, MoveOutcome};

/// Longest wait for one answer of the cloud, whatever the driver's own bound: while it hangs, nobody may hold the address.
const ANSWER: Duration = Duration::from_secs(5);
/// Pauses after calls without an answer. While nobody holds the address, none is longer than it must be.
const PAUSES: Backoff = Backoff {
    first: Duration::from_millis(50),
    longest: Duration::from_secs(1),
};
/// How long a move goes on after the address was taken away and its caller has left. Less than a drain; then others are likely to have
/// decided anew, on what the cloud says.
const FINISH: Duration = Duration::from_secs(10);
/// How long nothing is taken away for a target that the cloud refused after it had been: whoever insists would make a gap each time.
const BAR: Duration = Duration::from_secs(30);

/// The endpoint as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) endpoint: Endpoint,
    pub(crate) read_at: Timestamp,
    pub(crate) calls_per_move: u32,
}

/// A move that brought, or found, the endpoint where it was wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) assignment: String,
    /// How long nobody held it; `None`: it was not taken away.
    pub(crate) gap: Option<Duration>,
    /// Calls to the cloud.
    pub(crate) calls: u32,
    /// It was there already.
    pub(crate) unchanged: bool,
}

/// A target that was refused.
#[derive(Clone, Debug)]
struct Bar {
    machine: ProviderId,
    until: Instant,
    error: CloudError,
}

struct Inner {
    configured: ConfiguredEndpoint,
    turn: Arc<Gate<()>>,
    bar: Mutex<Option<Bar>>,
    metrics: EndpointMetrics,
    tasks: Tasks,
    clock: Arc<dyn Clock>,
}

/// The configured API endpoint, if one is. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct ApiEndpoint {
    driver: &'static str,
    inner: Option<Arc<Inner>>,
}

impl std::fmt::Debug for ApiEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiEndpoint")
            .field("configured", &self.inner.as_ref().map(|inner| &inner.configured))
            .finish_non_exhaustive()
    }
}

impl ApiEndpoint {
    pub(crate) fn new(cloud: &Cloud, context: &Context) -> Self {
        let inner = cloud.endpoint.clone().map(|configured| {
            let metrics = context.metrics.register(EndpointMetrics::register);
            Arc::new(Inner {
                configured,
                turn: Arc::default(),
                bar: Mutex::new(None),
                metrics,
                tasks: context.tasks.clone(),
                clock: Arc::clone(&context.clock),
            })
        });
        Self {
            driver: cloud.name,
            inner,
        }
    }

    fn need(&self) -> Result<&Arc<Inner>, EndpointError> {
        self.inner
            .as_ref()
            .ok_or(EndpointError::NotConfigured(self.driver))
    }

    /// The endpoint, read now.
    #[instrument(name = "read endpoint", skip_all, err(level = "info"))]
    pub(crate) async fn get(&self) -> Result<Seen, EipError> {
        let inner = self.need()?;
        let read_at = inner.clock.now();
        let endpoint = inner.read().await.map_err(EndpointError::unreadable)?;
        Ok(Seen {
            endpoint,
            read_at,
            calls_per_move: inner.ips().calls_per_move(),
        })
    }

    /// Moves the endpoint as wished; `wish.to` as the caller names the machine.
    #[instrument(name = "move endpoint", skip_all, fields(address = %wish.address, to = %wish.to))]
    pub(crate) async fn move_to(&self, wish: Wish) -> Result<Moved, EipError> {
        let inner = self.need()?;
        let Some(to) = inner.ips().machine(&wish.to) else {
            return Err(InvalidField::new("to", "not a machine of this cloud").into());
        };
        let wish = Wish { to, ..wish };
        let turn = Arc::clone(&inner.turn).lock_owned().await;
        let (tell, told) = oneshot::channel();
        let running = Arc::clone(inner);
        let task = async move {
            let result = running.carry_out(wish, || !tell.is_closed()).await;
            drop(turn);
            // Nobody there: the log has it.
            tell.send(result).ok();
        };
        inner
            .tasks
            .spawn("endpoint-move", task.instrument(Span::current()));
        match told.await {
            Ok(result) => Ok(result?),
            // The task panicked, which stops the process.
            Err(_) => Err(EndpointError::Unanswered(left("the move ended without a result")).into()),
        }
    }
}

fn left(message: &str) -> CloudError {
    CloudError::new(CloudErrorKind::Unavailable, "move the API endpoint", message)
}

/// What a move needs to know of its past.
struct Course {
    began: Instant,
    calls: u32,
    /// Since when nobody may hold the address.
    open_since: Option<Instant>,
    /// How long nobody held it.
    gap: Option<Duration>,
    /// Calls that failed.
    failures: u32,
}

impl Course {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            calls: 0,
            open_since: None,
            gap: None,
            failures: 0,
        }
    }

    fn close_gap(&mut self) {
        if let Some(since) = self.open_since {
            self.gap.get_or_insert_with(|| since.elapsed());
        }
    }

    /// Has it to be finished, though nobody waits for it?
    fn must_go_on(&self) -> bool {
        self.is_open() && self.open_since.is_some_and(|since| since.elapsed() < FINISH)
    }

    /// The next pause.
    fn pause(&mut self, error: &CloudError) -> Duration {
        let pause = PAUSES
            .nominal(self.failures)
            .max(error.retry_after.unwrap_or_default().min(ANSWER));
        self.failures += 1;
        pause
    }
}

impl Inner {
    fn ips(&self) -> &dyn EndpointIps {
        &*self.configured.ips
    }

    async fn read(&self) -> Result<Endpoint, CloudError> {
        let work = self.ips().endpoint(&self.configured.selector);
        self.call(EndpointCall::Read, "read the API endpoint", work).await
    }

    async fn call<T>(
        &self,
        call: EndpointCall,
        operation: &str,
        work: impl Future<Output = Result<T, CloudError>>,
    ) -> Result<T, CloudError> {
        let result = timeout(ANSWER, work).await.unwrap_or_else(|_| {
            let message = format!("no answer within {ANSWER:?}");
            Err(CloudError::new(CloudErrorKind::Timeout, operation, message))
        });
        self.metrics.called(call, result.is_ok());
        result
    }

    /// Carries out a move, all of it. `is_wanted`: does somebody wait for it?
    pub(crate) async fn carry_out(
        &self,
        wish: Wish,
        is_wanted: impl Fn() -> bool + Send,
    ) -> Result<Moved, EndpointError> {
        let mut course = Course::new();
        let mut state = Move::new(wish.clone(), self.ips().moves_atomically(), self.bar(&wish.to));
        let mut step = Step::Read;
        let end = loop {
            // Nothing is begun for nobody.
            let may_write = is_wanted() || (state.opened_a_gap() && matches!(step, Step::Assign(_)));
            step = match step {
                Step::End(end) => break end,
                Step::Wait(error) if is_wanted() || course.must_go_on() => {
                    debug!(%error, "waits, then looks again");
                    sleep(course.pause(&error)).await;
                    Step::Read
                }
                Step::Wait(error) => Step::End(End::GaveUp(error)),
                Step::Remove(_) | Step::Reassign(_) | Step::Assign(_) if !may_write => {
                    Step::End(End::GaveUp(left("nobody waits for it any more")))
                }
                step => self.take(step, &wish, &mut state, &mut course).await,
            };
        };
        if state.gave_back() && matches!(end, End::Refused(_)) {
            self.set_bar(&wish.to, &end);
        }
        self.tell(&wish, &state, &course, &end);
        course.result(end, wish.to)
    }

    /// Takes one step that calls the cloud.
    async fn take(&self, step: Step, wish: &Wish, state: &mut Move, course: &mut Course) -> Step {
        course.calls += 1;
        match step {
            Step::Remove(id) => {
                let sent = Instant::now();
                let work = self.ips().unassign(&id);
                let result = self
                    .call(EndpointCall::Remove, "remove the assignment", work)
                    .await;
                let since = if result.is_ok() { Instant::now() } else { sent };
                let next = state.removed(result);
                if state.opened_a_gap() {
                    course.open_since.get_or_insert(since);
                }
                next
            }
            Step::Assign(machine) => {
                let work = self.ips().assign(wish.address, &machine);
                let result = self.call(EndpointCall::Assign, "assign the address", work).await;
                if result.is_ok() {
                    course.close_gap();
                }
                state.assigned(result)
            }
            Step::Reassign(machine) => {
                let work = self.ips().reassign(wish.address, &machine);
                let result = self.call(EndpointCall::Reassign, "move the address", work).await;
                state.reassigned(result)
            }
            Step::Read | Step::Wait(_) | Step::End(_) => {
                let result = self.read().await;
                if let Ok(seen) = &result {
                    course.saw(seen, wish, state);
                }
                state.read(result)
            }
        }
    }

    fn bar(&self, machine: &ProviderId) -> Option<CloudError> {
        let bar = self.bar.lock();
        let bar = bar
            .as_ref()
            .filter(|bar| bar.machine == *machine && Instant::now() < bar.until);
        bar.map(|bar| bar.error.clone())
    }

    fn set_bar(&self, machine: &ProviderId, end: &End) {
        if let End::Refused(error) = end {
            *self.bar.lock() = Some(Bar {
                machine: machine.clone(),
                until: Instant::now() + BAR,
                error: error.clone(),
            });
        }
    }

    /// One line a move, and its counters.
    fn tell(&self, wish: &Wish, state: &Move, course: &Course, end: &End) {
        let took = course.began.elapsed();
        let outcome = match end {
            End::Moved(_) => MoveOutcome::Moved,
            End::There(_) => MoveOutcome::Unchanged,
            End::Changed(_) => MoveOutcome::Changed,
            End::Shared(_) => MoveOutcome::Shared,
            End::Refused(_) | End::Kept(_) => MoveOutcome::Refused,
            End::Unreadable(_) | End::GaveUp(_) => MoveOutcome::Failed,
        };
        self.metrics.ended(outcome, took, course.gap);
        let (address, to, calls) = (wish.address, &wish.to, course.calls);
        let from = state
            .from()
            .map_or_else(|| "nobody".to_owned(), ToString::to_string);
        match end {
            End::Moved(assignment) => {
                info!(%address, from, %to, assignment, calls, took = ?took, gap = ?course.gap, "API endpoint moved");
            }
            End::There(assignment) => debug!(%address, %to, assignment, "API endpoint is there already"),
            End::Changed(why) => {
                info!(%address, %to, calls, why, "API endpoint not moved: decided on what is past");
            }
            End::Shared(holders) => {
                warn!(%address, %to, ?holders, "API endpoint not moved: several machines hold it");
            }
            End::Unreadable(error) | End::Refused(error) | End::Kept(error) | End::GaveUp(error) => {
                if course.is_open() {
                    error!(%address, from, %to, calls, took = ?took, %error, "API endpoint was taken away, and perhaps nobody has it");
                } else {
                    warn!(%address, from, %to, calls, took = ?took, gap = ?course.gap, %error, "API endpoint not moved");
                }
            }
        }
    }
}

impl Course {
    /// Somebody has it again, or a removal without an answer has not happened so far.
    fn saw(&mut self, seen: &Endpoint, wish: &Wish, state: &Move) {
        let is_old = |one: &EndpointAssignment| Some(&one.id) == wish.decided_on.as_ref();
        if seen.assignments.is_empty() {
            return;
        }
        if !seen.assignments.iter().any(is_old) {
            self.close_gap();
        } else if !state.removed_for_sure() {
            self.open_since = None;
        }
    }

    /// May it be that nobody holds it, because of this move?
    fn is_open(&self) -> bool {
        self.open_since.is_some() && self.gap.is_none()
    }

    fn result(&self, end: End, to: ProviderId) -> Result<Moved, EndpointError> {
        let moved = |assignment, unchanged| Moved {
            assignment,
            gap: self.gap,
            calls: self.calls,
            unchanged,
        };
        Err(match end {
            End::Moved(assignment) => return Ok(moved(assignment, false)),
            End::There(assignment) => return Ok(moved(assignment, true)),
            End::Changed(why) => EndpointError::Changed(why),
            End::Shared(assignments) => EndpointError::Shared(assignments),
            End::Unreadable(error) => EndpointError::unreadable(error),
            End::Refused(error) if error.is(CloudErrorKind::NotFound) => {
                EndpointError::MachineNotFound { machine: to, error }
            }
            End::Refused(error) | End::Kept(error) => EndpointError::Refused(error),
            End::GaveUp(error) => EndpointError::Unanswered(error),
        })
    }
}

#[cfg(test)]
mod tests;
