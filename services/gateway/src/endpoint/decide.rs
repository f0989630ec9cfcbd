//! What one agent does next, given what it was told so far. Pure: time is an argument, and what is to be done is a value.
//!
//! ```text
//!             verdict                  rank × step is over              it is as it was
//!   Idle ───────────────► Waiting ───────────────────────► Reading ───────────────────────► Moving ──┬─ done, ABORTED: read ──► Idle
//!    ▲                      │  ▲                              │                                       │
//!    └─ withdrawn, cut off ─┘  └───────── no answer: soon ────┴──────── no answer: soon ◄─────────────┘
//! ```
//!
//! Invariants, each after every step: nothing is moved but by a verdict that stands, told by a stream that is live, about the assignment
//! that was read last, after the wait was over; never while the holder was seen ready and is to stay, and never to a machine that was
//! seen not to be; nothing while several machines hold the endpoint, or while an older controller, which moves it too,
//! is known to run. One call at a time. A move that takes its time is abandoned where its verdict is withdrawn meanwhile.
//!
//! Who holds the endpoint is read seldom where nothing happens (`refresh`), and at once where an address begins to miss its probes, or
//! answers again: it may have moved meanwhile, and misses of a machine that nobody takes for the holder lead nowhere. Such looks follow
//! each other, and any other read, no sooner than [`LOOK`], and less and less often while they find nothing new.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::candidate::{self, Candidate};
use super::rank::rank;
use super::refused::Refused;
use super::values::{Effect, Failure, Holding, Order, Question, Record, Report, Settings, Why};

/// First pause after a call without an answer. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause while a verdict stands: nobody may hold the endpoint.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// From one read to the next that is made only because of what probes say. It doubles with each that finds nothing new.
const LOOK: Duration = Duration::from_secs(1);

/// A verdict that is acted on.
#[derive(Clone, Debug)]
struct Verdict {
    number: u64,
    to: Candidate,
    why: Option<Why>,
    reason: String,
    detected_after: Duration,
    at: Instant,
    from: String,
    /// The assignment that it is about.
    about: Option<String>,
    failures: u32,
    /// A move was sent that ended without an answer: nobody may hold the endpoint, because of us.
    open: bool,
}

#[derive(Clone, Debug)]
enum Phase {
    Idle,
    Waiting(Instant, Verdict),
    /// A read is on its way that began after the wait.
    Reading(Verdict),
    Moving(Verdict),
}

/// One agent's decisions.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and any of them may hold"
)]
pub(super) struct Decider {
    settings: Settings,
    candidates: Vec<Candidate>,
    holding: Option<Holding>,
    /// The address, before it was ever read.
    address: Option<IpAddr>,
    revision: u64,
    /// Of the request that told of the holder that is now.
    holder_revision: u64,
    asked: Option<Question>,
    live: bool,
    /// The number of the last verdict of this stream that was taken up.
    taken: Option<u64>,
    report: Option<Report>,
    phase: Phase,
    /// A read is on its way.
    reading: bool,
    /// Another one is wanted after it.
    again: bool,
    /// What missed its probes when it was told of last: nodes, and the endpoint by an empty name.
    missing: BTreeSet<String>,
    /// When a read is due because of what probes say.
    look: Option<Instant>,
    /// Of those, how many in a row found nothing new.
    fruitless: u32,
    /// When the last read began.
    looked: Option<Instant>,
    failures: u32,
    next_read: Instant,
    problem: Option<String>,
    refused: Refused,
    /// An older controller runs: in words.
    rival: Option<String>,
}

impl Decider {
    /// Knows nothing yet, but maybe the endpoint's address.
    pub(super) fn new(settings: Settings, address: Option<IpAddr>, now: Instant) -> Self {
        Self {
            settings,
            candidates: Vec::new(),
            holding: None,
            address,
            revision: 0,
            holder_revision: 0,
            asked: None,
            live: false,
            taken: None,
            report: None,
            phase: Phase::Idle,
            reading: false,
            again: false,
            missing: BTreeSet::new(),
            look: None,
            fruitless: 0,
            looked: None,
            failures: 0,
            next_read: now,
            problem: None,
            refused: Refused::default(),
            rival: None,
        }
    }

    /// The endpoint's address, where it is known.
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.holding
            .as_ref()
            .map(|holding| holding.address)
            .or(self.address)
    }

    /// The candidates, by name.
    pub(super) fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// The endpoint, as it was read last.
    pub(super) fn holding(&self) -> Option<&Holding> {
        self.holding.as_ref()
    }

    /// What `health` said last, while the stream is live.
    pub(super) fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }

    /// What is wrong, for people.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref().or(self.rival.as_deref())
    }

    /// The endpoint's address and port, where both are known.
    pub(super) fn endpoint(&self) -> Option<SocketAddr> {
        let own = || candidate::usual(self.candidates.iter().map(|candidate| candidate.address.port()));
        Some(SocketAddr::new(self.address()?, self.settings.port.or_else(own)?))
    }

    /// Did the cloud not give it to this machine a while ago?
    pub(super) fn was_refused(&self, candidate: &Candidate) -> bool {
        self.refused.has(candidate)
    }

    /// The candidate that holds the endpoint.
    pub(super) fn holder(&self) -> Option<&Candidate> {
        let (id, _) = self.holding.as_ref()?.held.as_ref()?;
        candidate::holder(&self.candidates, id)
    }

    /// The rank of the agent on this node.
    pub(super) fn rank(&self, node: &str) -> Option<u32> {
        let names = self.candidates.iter().map(|candidate| candidate.node.as_str());
        let holder = self.holder().map(|candidate| candidate.node.as_str());
        Some(rank(self.address()?, names, holder, node))
    }

    /// When [`Decider::tick`] has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let wait = match &self.phase {
            Phase::Waiting(until, _) => Some(*until),
            _ => None,
        };
        let next = self.look.map_or(self.next_read, |look| look.min(self.next_read));
        let read = (!self.reading && !matches!(self.phase, Phase::Moving(_))).then_some(next);
        wait.into_iter().chain(read).min()
    }

    /// Other candidates. A holder that is among them no more is on its way out, and stays one for as long as it holds the endpoint. That
    /// nobody is a candidate is not believed: at least one API server has just said so.
    pub(super) fn set_candidates(&mut self, mut fresh: Vec<Candidate>) -> Vec<Effect> {
        if fresh.is_empty() && !self.candidates.is_empty() {
            return Vec::new();
        }
        if let Some(holder) = self.holder()
            && candidate::holder(&fresh, &holder.provider_id).is_none()
            && fresh.iter().all(|candidate| candidate.node != holder.node)
        {
            fresh.push(Candidate {
                deleting: true,
                ..holder.clone()
            });
        }
        fresh.sort_by(|one, other| one.node.cmp(&other.node));
        if fresh == self.candidates {
            return Vec::new();
        }
        self.candidates = fresh;
        let mut effects = vec![Effect::Remember];
        effects.extend(self.ask());
        effects
    }

    /// The stream to `health` is there, or is not.
    pub(super) fn stream(&mut self, live: bool) {
        self.live = live;
        self.taken = None;
        if !live {
            self.report = None;
            self.stand_down();
        }
    }

    /// `health` said something.
    pub(super) fn hear(&mut self, report: Report, now: Instant) -> Vec<Effect> {
        if !self.live {
            return Vec::new();
        }
        let mut effects = Vec::new();
        let missing = report.observations.iter().filter(|seen| seen.misses > 0);
        let missing: BTreeSet<String> = missing.map(|seen| seen.node.clone()).collect();
        if missing != self.missing && matches!(self.phase, Phase::Idle) {
            effects.extend(self.look(now));
        }
        self.missing = missing;
        self.report = Some(report);
        effects.extend(self.heed(now));
        effects
    }

    /// An older controller is known to run, and which; or none is. It moves the endpoint, too, and by other rules: one of both has to wait.
    pub(super) fn set_rival(&mut self, rival: Option<String>, now: Instant) -> Vec<Effect> {
        self.rival = rival;
        self.heed(now)
    }

    /// Does what was said last.
    fn heed(&mut self, now: Instant) -> Vec<Effect> {
        let Some(report) = &self.report else {
            return Vec::new();
        };
        let number = report.verdict;
        let mut effects = Vec::new();
        if report.revision < self.holder_revision {
            // Said before it heard who holds the endpoint now.
            self.stand_down();
            return effects;
        }
        if self.target().is_none() {
            if matches!(self.phase, Phase::Moving(_)) {
                effects.push(Effect::Abandon);
            }
            self.stand_down();
        } else if self.taken != Some(number) && !matches!(self.phase, Phase::Moving(_)) {
            self.taken = Some(number);
            effects.extend(self.take(number, now));
        }
        effects
    }

    /// Who should hold the endpoint by what was said last, where we may give it to anybody.
    fn target(&self) -> Option<&Candidate> {
        if self.rival.is_some() {
            return None;
        }
        let node = self.report.as_ref()?.move_to.as_deref()?;
        self.candidates.iter().find(|candidate| candidate.node == node)
    }

    fn take(&mut self, number: u64, now: Instant) -> Vec<Effect> {
        let (Some(report), Some(to)) = (self.report.clone(), self.target().cloned()) else {
            return Vec::new();
        };
        let rank = self.rank(&self.settings.node).unwrap_or_default();
        let held = self.holding.as_ref().and_then(|holding| holding.held.clone());
        let from = self.holder().map_or_else(
            || {
                held.as_ref()
                    .map(|(machine, _)| machine.clone())
                    .unwrap_or_default()
            },
            |holder| holder.node.clone(),
        );
        let verdict = Verdict {
            number,
            to,
            why: report.why,
            reason: report.reason,
            detected_after: report.detected_after,
            at: now,
            from,
            about: held.map(|(_, assignment)| assignment),
            failures: 0,
            open: false,
        };
        self.phase = Phase::Waiting(now + self.settings.step.saturating_mul(rank), verdict);
        let mut effects = vec![Effect::Judged];
        effects.extend(self.tick(now));
        effects
    }

    /// Nothing is to be done any more; what is on its way is waited for.
    fn stand_down(&mut self) {
        if matches!(self.phase, Phase::Moving(_)) {
            return;
        }
        if let Phase::Waiting(_, verdict) | Phase::Reading(verdict) = &self.phase
            && verdict.open
        {
            // Nobody may hold the endpoint, because of us: `health` has to hear of it now.
            self.next_read = verdict.at;
        }
        self.phase = Phase::Idle;
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now: Instant) -> Vec<Effect> {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Waiting(until, verdict) if until <= now => {
                self.phase = Phase::Reading(verdict);
                return self.read(now);
            }
            phase => self.phase = phase,
        }
        if self.reading || matches!(self.phase, Phase::Moving(_)) {
            return Vec::new();
        }
        if self.look.is_some_and(|due| due <= now) {
            self.fruitless = self.fruitless.saturating_add(1);
            return self.read(now);
        }
        if self.next_read <= now {
            self.fruitless = 0;
            return self.read(now);
        }
        Vec::new()
    }

    /// What probes say may mean that the endpoint has moved: it is read as soon as that is allowed.
    fn look(&mut self, now: Instant) -> Vec<Effect> {
        let pause = LOOK.saturating_mul(2_u32.saturating_pow(self.fruitless));
        let pause = pause.min(self.settings.refresh);
        self.look = Some(self.looked.map_or(now, |looked| looked + pause));
        self.tick(now)
    }

    fn read(&mut self, now: Instant) -> Vec<Effect> {
        if self.reading {
            // Its answer may be older than the question.
            self.again = true;
            return Vec::new();
        }
        self.reading = true;
        self.look = None;
        self.looked = Some(now);
        vec![Effect::Read]
    }

    /// A read ended.
    pub(super) fn was_read(&mut self, answer: Result<Holding, Failure>, now: Instant) -> Vec<Effect> {
        self.reading = false;
        if std::mem::take(&mut self.again) {
            return self.read(now);
        }
        match answer {
            Ok(holding) => {
                self.failures = 0;
                self.next_read = now + self.settings.refresh;
                self.problem = problem_of(&holding);
                let mut effects = self.learn(holding);
                if self.refused.forgive(now) {
                    effects.extend(self.ask());
                }
                effects.extend(self.act(now));
                effects
            }
            Err(failure) => {
                self.problem = Some(format!("the endpoint cannot be read: {}", failure.text()));
                let pause = pause(self.failures);
                self.failures = self.failures.saturating_add(1);
                match (failure, std::mem::replace(&mut self.phase, Phase::Idle)) {
                    (Failure::Refused(_), _) => self.next_read = now + self.settings.refresh,
                    (_, Phase::Reading(verdict)) => {
                        self.next_read = now + self.settings.refresh;
                        self.phase = Phase::Waiting(now + pause, verdict);
                    }
                    (_, phase) => {
                        self.phase = phase;
                        self.next_read = now + pause.saturating_mul(5).min(self.settings.refresh);
                    }
                }
                Vec::new()
            }
        }
    }

    /// Takes note of who holds the endpoint.
    fn learn(&mut self, holding: Holding) -> Vec<Effect> {
        let changed = self.holding.as_ref() != Some(&holding);
        let moved = self.holding.as_ref().map(|known| known.address) != Some(holding.address);
        self.holding = Some(holding);
        if !changed {
            return Vec::new();
        }
        self.fruitless = 0;
        if let Some(holder) = self.holder().map(|holder| holder.provider_id.clone()) {
            self.refused.holds(&holder);
        }
        let mut effects = if moved { vec![Effect::Remember] } else { Vec::new() };
        // The machine of a node that is gone was a candidate for as long as it held the endpoint only; the next look at the cluster
        // leaves it out.
        effects.extend(self.ask());
        self.holder_revision = self.revision;
        effects
    }

    fn ask(&mut self) -> Option<Effect> {
        let holding = self.holding.as_ref();
        let held = holding.is_some_and(|holding| holding.held.is_some());
        let endpoint = self.endpoint()?;
        let holder = self.holder().map(|holder| holder.node.clone());
        let question = Question {
            endpoint,
            // Before the first answer of the cloud, somebody holds it, and who is not known.
            holder_unknown: holder.is_none() && (held || holding.is_none()),
            candidates: self.candidates.clone(),
            refused: self.refused.nodes(&self.candidates),
            holder,
            own_addresses_only: self.settings.own_addresses_only,
            revision: self.revision,
        };
        if self.candidates.is_empty() || self.asked.as_ref() == Some(&question) {
            return None;
        }
        self.revision += 1;
        let question = Question {
            revision: self.revision,
            ..question
        };
        self.asked = Some(question.clone());
        Some(Effect::Ask(question))
    }

    /// The endpoint was read after the wait: move it, where all is as it was.
    fn act(&mut self, now: Instant) -> Vec<Effect> {
        let mut verdict = match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Reading(verdict) => verdict,
            phase => {
                self.phase = phase;
                return Vec::new();
            }
        };
        let Some(holding) = self.holding.clone().filter(|holding| holding.others.is_empty()) else {
            return Vec::new();
        };
        let assignment = holding.held.map(|(_, assignment)| assignment);
        if assignment != verdict.about {
            if assignment.is_some()
                && verdict.about.is_some()
                && self.holder().is_some_and(|one| one.node == verdict.from)
            {
                // Taken from the holder, and given back to it: another agent has tried the same, and was refused.
                self.refused.note(&verdict.to.provider_id, now);
                return self.ask().into_iter().collect();
            }
            // Where a move of ours has taken it away, and nobody has it, it is still for us to give; but not to a machine that has died
            // meanwhile: `health` hears by now that nobody has it, and names another.
            if !(verdict.open && assignment.is_none() && self.was_ready(&verdict.to.node)) {
                return Vec::new();
            }
            verdict.about = None;
        } else if !self.stands(&verdict) {
            return Vec::new();
        }
        if self
            .candidates
            .iter()
            .all(|known| *known != verdict.to || known.deleting)
            || !self.live
            || self.rival.is_some()
        {
            return Vec::new();
        }
        let order = Order {
            address: holding.address,
            to: verdict.to.provider_id.clone(),
            assignment: verdict.about.clone(),
        };
        self.phase = Phase::Moving(verdict);
        vec![Effect::Move(order)]
    }

    /// Was it ready, or not probed yet, when it was told of last?
    fn was_ready(&self, node: &str) -> bool {
        let report = self.report.as_ref();
        let seen = report.and_then(|report| report.observations.iter().find(|seen| seen.node == node));
        seen.is_none_or(|seen| seen.ready)
    }

    /// Is the verdict still what is said, and does nothing that was seen speak against it?
    fn stands(&self, verdict: &Verdict) -> bool {
        let Some(report) = self.report.as_ref().filter(|_| self.live) else {
            return false;
        };
        let seen = |node: &str| report.observations.iter().find(|seen| seen.node == node);
        let holder = self.holder().and_then(|holder| seen(&holder.node));
        report.verdict == verdict.number
            && report.revision >= self.holder_revision
            && report.move_to.as_deref() == Some(verdict.to.node.as_str())
            && self.was_ready(&verdict.to.node)
            && (verdict.why != Some(Why::Dead) || !holder.is_some_and(|seen| seen.ready))
    }

    /// A move ended.
    pub(super) fn was_moved(&mut self, outcome: &Result<(), Failure>, now: Instant) -> Vec<Effect> {
        let mut verdict = match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Moving(verdict) => verdict,
            phase => {
                self.phase = phase;
                return Vec::new();
            }
        };
        let record = Record {
            from: verdict.from.clone(),
            to: verdict.to.node.clone(),
            reason: verdict.reason.clone(),
            outcome: match outcome {
                Ok(()) => "moved".to_owned(),
                Err(Failure::Changed(_)) => "lost the race".to_owned(),
                Err(failure) => failure.text().to_owned(),
            },
            moved: outcome.is_ok(),
            detection: verdict.detected_after,
            took: now.saturating_duration_since(verdict.at),
        };
        let first = verdict.failures == 0;
        if !matches!(outcome, Err(Failure::Unanswered(_))) {
            let mut effects = vec![Effect::Tell(record)];
            if matches!(outcome, Err(Failure::Unfit(_))) {
                self.refused.note(&verdict.to.provider_id, now);
                effects.extend(self.ask());
            }
            effects.extend(self.read(now));
            return effects;
        }
        let wait = pause(verdict.failures);
        verdict.failures = verdict.failures.saturating_add(1);
        verdict.open = true;
        self.phase = Phase::Waiting(now + wait, verdict);
        if first {
            vec![Effect::Tell(record)]
        } else {
            Vec::new()
        }
    }
}

fn pause(failures: u32) -> Duration {
    FIRST_PAUSE
        .saturating_mul(2_u32.saturating_pow(failures))
        .min(LONGEST_PAUSE)
}

fn problem_of(holding: &Holding) -> Option<String> {
    let (first, _) = holding.held.as_ref()?;
    if holding.others.is_empty() {
        return None;
    }
    Some(format!(
        "several machines hold the endpoint ({first}, {}); nothing is moved until all but one are taken away",
        holding.others.join(", ")
    ))
}

#[cfg(test)]
mod tests;
