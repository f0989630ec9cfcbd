//! The loop of one agent: what happens goes into the [`Decider`], and what it says is carried out.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use groundplane_core::Clock;
use groundplane_runtime::health::Component;
use groundplane_runtime::{Backoff, Context, Tasks};
use jiff::Timestamp;
use parking_lot::RwLock;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::candidate;
use super::decide::Decider;
use super::file::Remembered;
use super::metrics::AgentMetrics;
use super::ports::{EndpointWatch, Reports};
use super::status::{Moves, Ranked, Status};
use super::values::{Effect, Failure, Holding, Question, Record, Report};
use super::{AgentConfig, AgentPorts};

/// Pauses before the stream to `health` is opened again.
const PAUSES: Backoff = Backoff {
    first: Duration::from_millis(50),
    longest: Duration::from_secs(1),
};
/// Reports on their way: the next is about the same.
const QUEUE: usize = 8;
/// Moves that are remembered.
const MOVES: usize = 16;

/// Why an agent is not ready that knows no candidate.
const UNKNOWN: &str = "neither the cluster nor a file has told who could hold the API endpoint";

/// How a move ends that is no longer wanted.
const WITHDRAWN: &str = "the verdict was withdrawn while the cloud took its time";

/// What happened.
enum Input {
    Read(Result<Holding, Failure>),
    Moved(Result<(), Failure>),
}

/// What the stream's task tells.
enum Heard {
    Live,
    Report(Report),
    Lost,
}

pub(super) struct Agent {
    config: AgentConfig,
    ports: AgentPorts,
    decider: Decider,
    questions: watch::Sender<Option<Question>>,
    working: FuturesUnordered<BoxFuture<'static, Input>>,
    /// Ends the wait for the last move.
    abandon: CancellationToken,
    status: Arc<RwLock<Status>>,
    metrics: AgentMetrics,
    component: Component,
    clock: Arc<dyn Clock>,
    tasks: Tasks,
    read_at: Option<Timestamp>,
    /// Why the last read failed; `None`: it did not.
    unread: Option<Failure>,
    moves: Moves,
    from_file: bool,
    problem: Option<String>,
    /// Number of the last write of the file that was begun; held while it runs.
    writing: Arc<Mutex<u64>>,
    written: u64,
}

impl Agent {
    pub(super) fn new(config: AgentConfig, ports: AgentPorts, context: &Context) -> Self {
        let now = Instant::now().into_std();
        let remembered = config.candidates_file.as_deref().and_then(Remembered::load);
        let known = config
            .address
            .or_else(|| remembered.as_ref().map(|known| known.endpoint));
        let mut agent = Self {
            decider: Decider::new(config.settings(), known, now),
            config,
            ports,
            questions: watch::Sender::new(None),
            working: FuturesUnordered::new(),
            abandon: CancellationToken::new(),
            status: Arc::default(),
            metrics: AgentMetrics::register(&context.metrics),
            component: context.health.component(super::COMPONENT),
            clock: Arc::clone(&context.clock),
            tasks: context.tasks.clone(),
            read_at: None,
            unread: None,
            moves: VecDeque::new(),
            from_file: false,
            problem: None,
            writing: Arc::default(),
            written: 0,
        };
        agent.component.not_ready(UNKNOWN);
        if let Some(remembered) = remembered.filter(|remembered| Some(remembered.endpoint) == known) {
            info!(
                candidates = remembered.candidates.len(),
                "candidates from the file, until the API server answers"
            );
            agent.from_file = true;
            let effects = agent.decider.set_candidates(remembered.candidates);
            // It is in the file already.
            let effects = effects.into_iter().filter(|effect| *effect != Effect::Remember);
            agent.carry_out(effects.collect());
        }
        agent.publish();
        agent
    }

    pub(super) fn status(&self) -> Arc<RwLock<Status>> {
        Arc::clone(&self.status)
    }

    pub(super) async fn run(mut self) {
        let stopping = self.tasks.token();
        let (tell, mut heard) = mpsc::channel(QUEUE);
        let stream = listen(
            Arc::clone(&self.ports.health),
            self.questions.subscribe(),
            tell,
            stopping.clone(),
        );
        self.tasks.spawn("endpoint watch", stream);
        let mut cluster = Some(self.ports.cluster.clone());
        let mut rivals = Some(self.ports.rivals.changes());
        self.look();
        loop {
            let deadline = self.decider.deadline().map(Instant::from_std);
            let effects = tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                Some(input) = self.working.next() => self.take(input),
                Some(heard) = heard.recv() => self.hear(heard),
                known = changed(&mut cluster) => {
                    if known {
                        self.look();
                    } else {
                        cluster = None;
                    }
                    Vec::new()
                }
                known = changed(&mut rivals) => {
                    if known {
                        self.meet()
                    } else {
                        rivals = None;
                        Vec::new()
                    }
                }
                () = until(deadline) => self.decider.tick(Instant::now().into_std()),
            };
            self.carry_out(effects);
            self.publish();
        }
    }

    fn take(&mut self, input: Input) -> Vec<Effect> {
        let now = Instant::now().into_std();
        match input {
            Input::Read(answer) => {
                self.note(&answer);
                let effects = self.decider.was_read(answer, now);
                self.carry_out(effects);
                // Its address may have become known, and a holder that is none any more is no candidate.
                self.look();
                Vec::new()
            }
            Input::Moved(outcome) => self.decider.was_moved(&outcome, now),
        }
    }

    /// Takes note of how a read ended. While they fail, nothing could be moved: told, but no reason to be replaced.
    fn note(&mut self, answer: &Result<Holding, Failure>) {
        self.metrics.read(answer.is_ok());
        match answer {
            Ok(_) => {
                self.read_at = Some(self.clock.now());
                if self.unread.take().is_some() {
                    info!("the API endpoint can be read again");
                }
            }
            Err(failure) => {
                warn!(
                    error = failure.text(),
                    "the API endpoint cannot be read, and could not be moved"
                );
                self.unread = Some(failure.clone());
            }
        }
    }

    fn hear(&mut self, heard: Heard) -> Vec<Effect> {
        match heard {
            Heard::Live => self.decider.stream(true),
            Heard::Lost => self.decider.stream(false),
            Heard::Report(report) => return self.decider.hear(report, Instant::now().into_std()),
        }
        Vec::new()
    }

    /// Takes note of whether an older controller is known to run.
    fn meet(&mut self) -> Vec<Effect> {
        let rival = self.ports.rivals.proven();
        let rival = rival.map(|who| format!("the API endpoint is not moved by this agent: {who}"));
        self.decider.set_rival(rival, Instant::now().into_std())
    }

    /// Takes the candidates from what is known of the cluster.
    fn look(&mut self) {
        let Some(endpoint) = self.decider.address() else {
            return;
        };
        let view = self.ports.cluster.borrow().clone();
        let Some(view) = view else { return };
        let found = candidate::candidates(&view, endpoint, self.config.node_port);
        self.problem = found.is_empty().then(|| {
            "the cluster has no control-plane node with a provider id and an address of the endpoint's family".to_owned()
        });
        if !found.is_empty() {
            self.from_file = false;
        }
        let effects = self.decider.set_candidates(found);
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Ask(question) => {
                    debug!(?question, "asking health");
                    self.questions.send_replace(Some(question));
                }
                Effect::Read => {
                    let eip = Arc::clone(&self.ports.eip);
                    self.working
                        .push(Box::pin(async move { Input::Read(eip.read().await) }));
                }
                Effect::Move(order) => {
                    warn!(to = order.to, address = %order.address, "moving the API endpoint");
                    let eip = Arc::clone(&self.ports.eip);
                    self.abandon = CancellationToken::new();
                    let abandoned = self.abandon.clone();
                    self.working.push(Box::pin(async move {
                        let moved = tokio::select! {
                            biased;
                            moved = eip.transfer(order) => moved,
                            () = abandoned.cancelled() => Err(Failure::Unanswered(WITHDRAWN.to_owned())),
                        };
                        Input::Moved(moved)
                    }));
                }
                Effect::Abandon => self.abandon.cancel(),
                Effect::Remember => self.remember(),
                Effect::Judged => self.metrics.judged(),
                Effect::Tell(record) => self.tell(record),
            }
        }
    }

    fn tell(&mut self, record: Record) {
        self.metrics.moved(&record);
        let Record {
            from,
            to,
            reason,
            outcome,
            detection,
            took,
            moved,
        } = &record;
        if *moved {
            info!(from, to, reason, ?detection, ?took, "the API endpoint was moved");
        } else {
            warn!(
                from,
                to,
                reason,
                outcome,
                ?detection,
                ?took,
                "the API endpoint was not moved"
            );
        }
        self.ports.witness.moved(&record);
        self.moves.push_front((self.clock.now(), record));
        self.moves.truncate(MOVES);
    }

    /// Writes the file, beside the loop: a disk that hangs is in nobody's way.
    fn remember(&mut self) {
        let (Some(path), Some(endpoint)) = (self.config.candidates_file.clone(), self.decider.address())
        else {
            return;
        };
        if self.decider.candidates().is_empty() {
            return;
        }
        let remembered = Remembered::new(endpoint, self.decider.candidates().to_vec());
        self.written += 1;
        let turn = (Arc::clone(&self.writing), self.written);
        self.tasks.spawn("candidates file", store(turn, path, remembered));
    }

    /// Why this agent is of no use, where that is so for a reason that lies with it, and not with a cloud that is away: agents are
    /// replaced one by one, and each waits until the one before it is ready, which must not take until the end of an outage.
    ///
    /// Of use is who knows the machines that could hold the endpoint. Where its address is not known yet, which only the cloud could
    /// tell, any machine of the cluster will do. Whom the cloud refuses from the beginning has a wrong tag or token, and is not: those
    /// that are not replaced yet may have better ones.
    fn unready(&self) -> Option<String> {
        if let (None, Some(Failure::Refused(why))) = (self.read_at, &self.unread) {
            return Some(format!("the cloud refuses to tell of the API endpoint: {why}"));
        }
        let told = self.ports.cluster.borrow();
        let waits =
            self.decider.address().is_none() && told.as_ref().is_some_and(|view| !view.machines.is_empty());
        (self.decider.candidates().is_empty() && !waits).then(|| UNKNOWN.to_owned())
    }

    fn publish(&self) {
        match self.unready() {
            Some(why) => self.component.not_ready(why),
            None => self.component.ready(),
        }
        let ranks = self.decider.candidates().iter();
        let status = Status {
            node: self.config.node.clone(),
            endpoint: self.decider.endpoint(),
            address: self.decider.address(),
            holding: self.decider.holding().cloned(),
            holder: self.decider.holder().map(|holder| holder.node.clone()),
            read_at: self.read_at,
            candidates: ranks
                .map(|one| Ranked {
                    candidate: one.clone(),
                    rank: self.decider.rank(&one.node).unwrap_or_default(),
                    refused: self.decider.was_refused(one),
                })
                .collect(),
            report: self.decider.report().cloned(),
            told_at: Some(Instant::now()),
            moves: self.moves.clone(),
            from_file: self.from_file,
            problem: self
                .decider
                .problem()
                .map(str::to_owned)
                .or_else(|| self.problem.clone()),
        };
        *self.status.write() = status;
    }
}

/// Writes of one file follow each other, and never an older one a newer.
async fn store((gate, number): (Arc<Mutex<u64>>, u64), path: PathBuf, remembered: Remembered) {
    let mut last = gate.lock().await;
    if *last >= number {
        return;
    }
    *last = number;
    let shown = path.display().to_string();
    #[allow(clippy::disallowed_methods, reason = "awaited here, within a task of its own")]
    let written = tokio::task::spawn_blocking(move || remembered.store(&path)).await;
    match written {
        Ok(Ok(())) => debug!(path = shown, "candidates stored"),
        Ok(Err(error)) => {
            warn!(path = shown, %error, "candidates cannot be stored; a restart without an API server will know none");
        }
        Err(error) => warn!(path = shown, %error, "candidates cannot be stored"),
    }
}

/// Waits for news; false where there will be none.
async fn changed<T>(known: &mut Option<watch::Receiver<T>>) -> bool {
    match known {
        Some(known) => known.changed().await.is_ok(),
        None => std::future::pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Keeps a stream to `health` open, and tells of it.
async fn listen(
    health: Arc<dyn EndpointWatch>,
    mut questions: watch::Receiver<Option<Question>>,
    tell: mpsc::Sender<Heard>,
    stopping: CancellationToken,
) {
    let mut failures = 0;
    loop {
        let once = once(&*health, &mut questions, &tell, &mut failures);
        tokio::select! {
            () = stopping.cancelled() => return,
            ended = once => if ended.is_none() { return },
        }
        if tell.send(Heard::Lost).await.is_err() {
            return;
        }
        tokio::select! {
            () = stopping.cancelled() => return,
            () = tokio::time::sleep(PAUSES.pause(failures)) => {}
        }
        failures = failures.saturating_add(1);
    }
}

/// One stream, until it ends; `None`: nobody is there to hear it.
async fn once(
    health: &dyn EndpointWatch,
    questions: &mut watch::Receiver<Option<Question>>,
    tell: &mpsc::Sender<Heard>,
    failures: &mut u32,
) -> Option<()> {
    let first = questions.wait_for(Option::is_some).await.ok()?.clone()?;
    let (ask, asked) = mpsc::channel(QUEUE);
    ask.send(first).await.ok()?;
    let mut reports: Reports = match health.open(asked).await {
        Ok(reports) => reports,
        Err(error) => {
            warn!(error, "health cannot be asked");
            return Some(());
        }
    };
    tell.send(Heard::Live).await.ok()?;
    loop {
        tokio::select! {
            changed = questions.changed() => {
                changed.ok()?;
                let question = questions.borrow_and_update().clone();
                if let Some(question) = question
                    && ask.send(question).await.is_err()
                {
                    return Some(());
                }
            }
            report = reports.next() => match report {
                Some(Ok(report)) => {
                    *failures = 0;
                    tell.send(Heard::Report(report)).await.ok()?;
                }
                Some(Err(error)) => {
                    warn!(error, "health says no more");
                    return Some(());
                }
                None => return Some(()),
            },
        }
    }
}
