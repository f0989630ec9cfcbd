//! An API endpoint in memory, whose cloud answers late, wrongly, or not at all, as told.
//!
//! It keeps what real clouds keep, and no more: ids of assignments never come back, and an address that is held is refused to others.
//! What was asked may take effect when nobody waits for it any more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use groundplane_core::ProviderId;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::{
    CloudError, CloudErrorKind, ConfiguredEndpoint, Endpoint, EndpointAssignment, EndpointIps,
    EndpointSelector,
};

/// A call of [`EndpointIps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EndpointCall {
    /// `endpoint`.
    Read,
    /// `assign`.
    Assign,
    /// `unassign`.
    Unassign,
    /// `reassign`.
    Reassign,
}

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointFault {
    /// Time until it takes effect.
    pub wait: Duration,
    /// What becomes of it.
    pub effect: EndpointEffect,
    /// What the caller is told.
    pub answer: EndpointAnswer,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointEffect {
    /// It is done.
    Done,
    /// It never happens.
    Lost,
    /// It is done this much later, whatever its caller was told, if it can be done then.
    Late(Duration),
}

/// What a caller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointAnswer {
    /// What happened.
    Honest,
    /// An error.
    Error(CloudErrorKind),
    /// Nothing.
    Never,
}

impl EndpointFault {
    /// An error, and nothing done.
    pub fn before(kind: CloudErrorKind) -> Self {
        Self::of(EndpointEffect::Lost, EndpointAnswer::Error(kind))
    }

    /// Done, and told as an error.
    pub fn after(kind: CloudErrorKind) -> Self {
        Self::of(EndpointEffect::Done, EndpointAnswer::Error(kind))
    }

    /// Nothing done and nothing told.
    pub fn hang() -> Self {
        Self::of(EndpointEffect::Lost, EndpointAnswer::Never)
    }

    /// Done, and nothing told.
    pub fn hang_after() -> Self {
        Self::of(EndpointEffect::Done, EndpointAnswer::Never)
    }

    /// Told as an error, and done later.
    pub fn late(kind: CloudErrorKind, by: Duration) -> Self {
        Self::of(EndpointEffect::Late(by), EndpointAnswer::Error(kind))
    }

    /// Done, slowly.
    pub fn slow(wait: Duration) -> Self {
        Self {
            wait,
            ..Self::of(EndpointEffect::Done, EndpointAnswer::Honest)
        }
    }

    fn of(effect: EndpointEffect, answer: EndpointAnswer) -> Self {
        Self {
            wait: Duration::ZERO,
            effect,
            answer,
        }
    }
}

/// A change of what holds the endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointChange {
    /// When.
    pub at: Instant,
    /// Who holds it from then on.
    pub assignments: Vec<EndpointAssignment>,
}

/// What is to be done with the address.
#[derive(Clone, Debug)]
enum Deed {
    Assign(ProviderId),
    Unassign(String),
    Reassign(ProviderId),
}

/// Chooses the fault of each call.
type Chooser = Box<dyn FnMut(EndpointCall) -> Option<EndpointFault> + Send>;

struct State {
    machines: BTreeSet<ProviderId>,
    assignments: Vec<EndpointAssignment>,
    /// `Some`: the read is refused with this.
    unreadable: Option<(CloudErrorKind, String)>,
    next: u32,
    faults: VecDeque<(EndpointCall, EndpointFault)>,
    chooser: Option<Chooser>,
    late: Vec<(Instant, Deed)>,
    calls: BTreeMap<EndpointCall, usize>,
    history: Vec<EndpointChange>,
}

/// The endpoint. Clones are the same endpoint.
#[derive(Clone)]
pub struct FakeEndpoint {
    address: IpAddr,
    atomic: bool,
    state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for FakeEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeEndpoint")
            .field("address", &self.address)
            .field("assignments", &self.state.lock().assignments)
            .finish_non_exhaustive()
    }
}

impl FakeEndpoint {
    /// The endpoint at `address`, which nobody holds. `atomic`: the cloud moves it in one step.
    pub fn new(address: IpAddr, atomic: bool) -> Self {
        let state = State {
            machines: BTreeSet::new(),
            assignments: Vec::new(),
            unreadable: None,
            next: 1,
            faults: VecDeque::new(),
            chooser: None,
            late: Vec::new(),
            calls: BTreeMap::new(),
            history: Vec::new(),
        };
        Self {
            address,
            atomic,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// This endpoint, as services are given it.
    pub fn configured(&self) -> ConfiguredEndpoint {
        ConfiguredEndpoint {
            selector: EndpointSelector::Address(self.address),
            ips: Arc::new(self.clone()),
        }
    }

    /// Its address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Adds a machine that can hold it.
    pub fn add_machine(&self, id: &ProviderId) {
        self.state.lock().machines.insert(id.clone());
    }

    /// Takes a machine away, and the address from it.
    pub fn remove_machine(&self, id: &ProviderId) {
        let mut state = self.settled();
        state.machines.remove(id);
        state.change(Instant::now(), |assignments| {
            assignments.retain(|one| one.machine != *id);
        });
    }

    /// Gives it to a machine by hand, whoever has it: a second assignment where somebody does.
    pub fn assign_by_hand(&self, machine: &ProviderId) -> EndpointAssignment {
        let mut state = self.settled();
        state.give(Instant::now(), machine)
    }

    /// Takes it from all by hand.
    pub fn unassign_by_hand(&self) {
        self.settled().change(Instant::now(), Vec::clear);
    }

    /// Reads are refused with this error from now on, or no longer.
    pub fn set_unreadable(&self, error: Option<(CloudErrorKind, &str)>) {
        self.state.lock().unreadable = error.map(|(kind, message)| (kind, message.to_owned()));
    }

    /// The next such call that meets no other fault meets this one.
    pub fn fault(&self, call: EndpointCall, fault: EndpointFault) {
        self.state.lock().faults.push_back((call, fault));
    }

    /// From now on this chooses the faults of calls for which none is in store; `None`: no more faults.
    pub fn choose_faults(
        &self,
        chooser: Option<impl FnMut(EndpointCall) -> Option<EndpointFault> + Send + 'static>,
    ) {
        self.state.lock().chooser = chooser.map(|chooser| -> Chooser { Box::new(chooser) });
    }

    /// How often it was called so.
    pub fn calls(&self, call: EndpointCall) -> usize {
        self.state.lock().calls.get(&call).copied().unwrap_or_default()
    }

    /// Who holds it now.
    pub fn assignments(&self) -> Vec<EndpointAssignment> {
        self.settled().assignments.clone()
    }

    /// Every change since it was made, in order.
    pub fn history(&self) -> Vec<EndpointChange> {
        self.settled().history.clone()
    }

    /// The state, once all that is due has taken effect.
    fn settled(&self) -> parking_lot::MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.settle(Instant::now());
        state
    }

    async fn call<T>(
        &self,
        call: EndpointCall,
        deed: Option<Deed>,
        read: impl FnOnce(&State, Option<EndpointAssignment>) -> Result<T, CloudError> + Send,
    ) -> Result<T, CloudError> {
        let fault = self.state.lock().draw(call);
        let fault = fault.unwrap_or_else(|| EndpointFault::slow(Duration::ZERO));
        if !fault.wait.is_zero() {
            sleep(fault.wait).await;
        }
        let result = {
            let now = Instant::now();
            let mut state = self.settled();
            match (fault.effect, deed) {
                (EndpointEffect::Done, Some(deed)) => {
                    state.carry_out(now, deed).and_then(|made| read(&state, made))
                }
                (EndpointEffect::Late(by), Some(deed)) => {
                    state.late.push((now + by, deed));
                    Err(failed(call, CloudErrorKind::Timeout))
                }
                (EndpointEffect::Lost, Some(_)) => Err(failed(call, CloudErrorKind::Timeout)),
                (_, None) => read(&state, None),
            }
        };
        match fault.answer {
            EndpointAnswer::Honest => result,
            EndpointAnswer::Error(kind) => Err(failed(call, kind)),
            EndpointAnswer::Never => std::future::pending().await,
        }
    }
}

fn failed(call: EndpointCall, kind: CloudErrorKind) -> CloudError {
    CloudError::new(kind, format!("{call:?}"), "as told")
}

impl State {
    fn draw(&mut self, call: EndpointCall) -> Option<EndpointFault> {
        *self.calls.entry(call).or_default() += 1;
        if let Some(position) = self.faults.iter().position(|(of, _)| *of == call) {
            return self.faults.remove(position).map(|(_, fault)| fault);
        }
        self.chooser.as_mut().and_then(|choose| choose(call))
    }

    /// Lets everything that is due by now take effect, in the order in which it is due.
    fn settle(&mut self, now: Instant) {
        self.late.sort_by_key(|(due, _)| *due);
        while self.late.first().is_some_and(|(due, _)| *due <= now) {
            let (due, deed) = self.late.remove(0);
            // Whoever asked for it has gone: nobody learns that it could not be done.
            self.carry_out(due, deed).ok();
        }
    }

    fn carry_out(&mut self, at: Instant, deed: Deed) -> Result<Option<EndpointAssignment>, CloudError> {
        match deed {
            Deed::Assign(machine) => {
                self.need(&machine)?;
                if !self.assignments.is_empty() {
                    return Err(failed(EndpointCall::Assign, CloudErrorKind::AlreadyExists));
                }
                Ok(Some(self.give(at, &machine)))
            }
            Deed::Unassign(id) => {
                if !self.assignments.iter().any(|one| one.id == id) {
                    return Err(failed(EndpointCall::Unassign, CloudErrorKind::NotFound));
                }
                self.change(at, |assignments| assignments.retain(|one| one.id != id));
                Ok(None)
            }
            Deed::Reassign(machine) => {
                self.need(&machine)?;
                let made = self.new_assignment(&machine);
                self.change(at, |assignments| *assignments = vec![made.clone()]);
                Ok(Some(made))
            }
        }
    }

    fn need(&self, machine: &ProviderId) -> Result<(), CloudError> {
        if self.machines.contains(machine) {
            return Ok(());
        }
        Err(failed(EndpointCall::Assign, CloudErrorKind::NotFound))
    }

    fn give(&mut self, at: Instant, machine: &ProviderId) -> EndpointAssignment {
        let made = self.new_assignment(machine);
        self.change(at, |assignments| assignments.push(made.clone()));
        made
    }

    fn new_assignment(&mut self, machine: &ProviderId) -> EndpointAssignment {
        let id = format!("a{}", self.next);
        self.next += 1;
        EndpointAssignment {
            id,
            machine: machine.clone(),
        }
    }

    fn change(&mut self, at: Instant, change: impl FnOnce(&mut Vec<EndpointAssignment>)) {
        change(&mut self.assignments);
        self.history.push(EndpointChange {
            at,
            assignments: self.assignments.clone(),
        });
    }
}

fn made(made: Option<EndpointAssignment>, call: EndpointCall) -> Result<EndpointAssignment, CloudError> {
    made.ok_or_else(|| failed(call, CloudErrorKind::Unavailable))
}

#[async_trait]
impl EndpointIps for FakeEndpoint {
    fn calls_per_move(&self) -> u32 {
        3
    }

    fn moves_atomically(&self) -> bool {
        self.atomic
    }

    /// `fake://a` is also known as `old://a`.
    fn machine(&self, id: &ProviderId) -> Option<ProviderId> {
        match id.scheme() {
            Some("fake") => Some(id.clone()),
            Some("old") => format!("fake://{}", id.id()).parse().ok(),
            _ => None,
        }
    }

    async fn endpoint(&self, selector: &EndpointSelector) -> Result<Endpoint, CloudError> {
        let address = self.address;
        self.call(EndpointCall::Read, None, move |state, _| {
            if *selector != EndpointSelector::Address(address) {
                return Err(failed(EndpointCall::Read, CloudErrorKind::NotFound));
            }
            if let Some((kind, message)) = &state.unreadable {
                return Err(CloudError::new(*kind, "Read", message));
            }
            Ok(Endpoint {
                address,
                assignments: state.assignments.clone(),
            })
        })
        .await
    }

    async fn assign(&self, _address: IpAddr, machine: &ProviderId) -> Result<EndpointAssignment, CloudError> {
        let (call, deed) = (EndpointCall::Assign, Deed::Assign(machine.clone()));
        self.call(call, Some(deed), move |_, assignment| made(assignment, call))
            .await
    }

    async fn unassign(&self, assignment_id: &str) -> Result<(), CloudError> {
        let deed = Deed::Unassign(assignment_id.to_owned());
        self.call(EndpointCall::Unassign, Some(deed), |_, _| Ok(())).await
    }

    async fn reassign(
        &self,
        _address: IpAddr,
        machine: &ProviderId,
    ) -> Result<EndpointAssignment, CloudError> {
        let (call, deed) = (EndpointCall::Reassign, Deed::Reassign(machine.clone()));
        if !self.atomic {
            return Err(failed(call, CloudErrorKind::Refused));
        }
        self.call(call, Some(deed), move |_, assignment| made(assignment, call))
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench() -> (FakeEndpoint, ProviderId, ProviderId) {
        let fake = FakeEndpoint::new("203.0.113.9".parse().unwrap(), false);
        let (a, b) = ("fake://a".parse().unwrap(), "fake://b".parse().unwrap());
        fake.add_machine(&a);
        fake.add_machine(&b);
        (fake, a, b)
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_deed_is_done_when_it_is_due_and_only_if_it_can_be() {
        let (fake, a, b) = bench();
        let by = Duration::from_secs(3);
        for _ in 0..2 {
            fake.fault(
                EndpointCall::Assign,
                EndpointFault::late(CloudErrorKind::Timeout, by),
            );
        }
        let start = Instant::now();
        for machine in [&a, &b] {
            assert!(fake.assign(fake.address(), machine).await.is_err());
        }
        assert_eq!(fake.assignments(), []);
        tokio::time::advance(by * 2).await;
        let [held] = &fake.assignments()[..] else {
            panic!("one")
        };
        assert_eq!(held.machine, a);
        assert_eq!(fake.history().len(), 1, "the second was refused");
        assert_eq!(fake.history()[0].at, start + by);
    }

    #[tokio::test(start_paused = true)]
    async fn faults_are_before_or_after_the_deed() {
        let (fake, a, _) = bench();
        fake.fault(
            EndpointCall::Assign,
            EndpointFault::before(CloudErrorKind::Unavailable),
        );
        assert!(fake.assign(fake.address(), &a).await.is_err());
        assert_eq!(fake.assignments(), []);
        fake.fault(
            EndpointCall::Assign,
            EndpointFault::after(CloudErrorKind::Unavailable),
        );
        assert!(fake.assign(fake.address(), &a).await.is_err());
        assert_eq!(fake.assignments().len(), 1);
        assert_eq!(fake.calls(EndpointCall::Assign), 2);
    }
}
