//! What is to be done next to move the API endpoint, given what the cloud said so far.
//!
//! ```text
//!            ┌────────────────────────────── no answer: wait ───────────────────────────────┐
//!            ▼                                                                               │
//!   ───► Read ─┬─ on the target: End (Moved, There)                                          │
//!              ├─ as decided on ─┬─ Remove, by its id ─┬─ done ──────────► Assign ─┬─ done ──┼─► End (Moved)
//!              │                 │                     └─ gone: End (Changed)      ├─ held: wait, Read
//!              │                 └─ Reassign, in one step ─ done ─► Read           └─ never possible:
//!              ├─ nobody ──────────────────────────────────────────► Assign          Assign to whom it was taken from
//!              └─ another, or several: End (Changed, Shared)
//! ```
//!
//! Invariants. Nothing is taken away but the assignment that the caller decided on, by its id, which never comes back: of several who
//! decided on the same one, one removes it. Nothing is assigned but after a read or a removal that says that nobody holds it; the
//! cloud refuses a second one. So at any instant one machine at most holds the address, and a step that is repeated, by this process
//! or by another, finds what became of the one before.
//!
//! A removal is not preceded by a look at the target: that would cost every move a call, to save the rare one, whose target the cloud
//! refuses, from a gap. There the address goes back to the machine that it was taken from, and the caller is told why.

use std::net::IpAddr;

use groundplane_cloud::{CloudError, CloudErrorKind, Endpoint, EndpointAssignment};
use groundplane_core::ProviderId;

/// What a caller decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    /// The address that is the endpoint.
    pub(crate) address: IpAddr,
    /// Who shall hold it, as assignments name machines.
    pub(crate) to: ProviderId,
    /// The assignment that the decision was taken on; `None`: nobody held it.
    pub(crate) decided_on: Option<String>,
}

/// What to do next.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Read the endpoint.
    Read,
    /// Take away the assignment with this id.
    Remove(String),
    /// Give the address to this machine.
    Assign(ProviderId),
    /// Move the address to this machine, whoever has it.
    Reassign(ProviderId),
    /// Wait a little because of this, then read.
    Wait(CloudError),
    /// Nothing more.
    End(End),
}

/// How it ended.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// The target holds it, by this assignment, and this move brought it there, or may have.
    Moved(String),
    /// The target held it already, by this assignment.
    There(String),
    /// It is not where the caller decided on.
    Changed(String),
    /// Several machines hold it. Nothing was done.
    Shared(Vec<EndpointAssignment>),
    /// The endpoint cannot be read.
    Unreadable(CloudError),
    /// The cloud does not give it to the target. Where it was taken away for that, it was given back, if nobody was quicker.
    Refused(CloudError),
    /// The cloud does not take it away.
    Kept(CloudError),
    /// No answer, and no more time; or the caller left before anything was done.
    GaveUp(CloudError),
}

/// What became of the removal.
#[derive(Clone, Debug)]
enum Removal {
    NotTried,
    /// It may have happened.
    Unanswered(EndpointAssignment),
    Accepted(EndpointAssignment),
}

/// A move under way.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    wish: Wish,
    /// The cloud moves it in one step.
    atomic: bool,
    /// The target was refused a moment ago, with this error.
    barred: Option<CloudError>,
    /// The holder that is being replaced.
    holder: Option<EndpointAssignment>,
    removal: Removal,
    /// An assignment to the target may have happened.
    unanswered: bool,
    /// An assignment to the target was accepted, and has to be seen.
    accepted: bool,
    /// It goes back to whom it was taken from, because of this.
    returning: Option<CloudError>,
}

impl Move {
    /// A move that begins with [`Step::Read`]. `barred`: why the target was refused a moment ago.
    pub(crate) fn new(wish: Wish, atomic: bool, barred: Option<CloudError>) -> Self {
        Self {
            wish,
            atomic,
            barred,
            holder: None,
            removal: Removal::NotTried,
            unanswered: false,
            accepted: false,
            returning: None,
        }
    }

    /// Did it take the address away, or may it have? Then it has to be finished, whoever waits for it or not.
    pub(crate) fn opened_a_gap(&self) -> bool {
        !matches!(self.removal, Removal::NotTried)
    }

    /// Did the cloud say that it took the address away?
    pub(crate) fn removed_for_sure(&self) -> bool {
        matches!(self.removal, Removal::Accepted(_))
    }

    /// The machine that held it when this move found it elsewhere.
    pub(crate) fn from(&self) -> Option<&ProviderId> {
        self.holder.as_ref().map(|holder| &holder.machine)
    }

    /// Was the target refused after the address had been taken away?
    pub(crate) fn gave_back(&self) -> bool {
        self.returning.is_some()
    }

    /// After [`Step::Read`].
    pub(crate) fn read(&mut self, result: Result<Endpoint, CloudError>) -> Step {
        let endpoint = match result {
            Ok(endpoint) => endpoint,
            Err(error) if self.has_written() && may_pass(&error) => return Step::Wait(error),
            Err(error) => return Step::End(End::Unreadable(error)),
        };
        if endpoint.address != self.wish.address {
            let now = endpoint.address;
            return Step::End(End::Changed(format!(
                "the endpoint is {now} now, not {}",
                self.wish.address
            )));
        }
        match <[_; 1]>::try_from(endpoint.assignments) {
            Ok([one]) => self.found(one),
            Err(none) if none.is_empty() => self.found_nobody(),
            Err(several) => Step::End(End::Shared(several)),
        }
    }

    fn found_nobody(&mut self) -> Step {
        match (&self.returning, &self.removal) {
            (Some(_), Removal::Accepted(old) | Removal::Unanswered(old)) => Step::Assign(old.machine.clone()),
            _ if self.accepted => Step::End(End::Changed(
                "it was taken away again right after it had been moved".to_owned(),
            )),
            _ => Step::Assign(self.wish.to.clone()),
        }
    }

    fn found(&mut self, holder: EndpointAssignment) -> Step {
        if holder.machine == self.wish.to {
            return Step::End(if self.has_written() {
                End::Moved(holder.id)
            } else {
                End::There(holder.id)
            });
        }
        if let Some(error) = &self.returning {
            return Step::End(End::Refused(error.clone()));
        }
        if self.wish.decided_on.as_ref() != Some(&holder.id) {
            return Step::End(End::Changed(format!(
                "{} holds it now (assignment {})",
                holder.machine, holder.id
            )));
        }
        if self.accepted || matches!(self.removal, Removal::Accepted(_)) {
            // Its id never comes back: the cloud shows what was.
            return Step::Wait(CloudError::new(
                CloudErrorKind::Unavailable,
                "read the API endpoint",
                "the cloud still shows what was before",
            ));
        }
        if let Some(error) = self.barred.take() {
            return Step::End(End::Refused(error));
        }
        let id = holder.id.clone();
        self.holder = Some(holder);
        if self.atomic {
            Step::Reassign(self.wish.to.clone())
        } else {
            Step::Remove(id)
        }
    }

    /// After [`Step::Remove`].
    pub(crate) fn removed(&mut self, result: Result<(), CloudError>) -> Step {
        let Some(holder) = self.holder.clone() else {
            return Step::Read;
        };
        match result {
            Ok(()) => {
                self.removal = Removal::Accepted(holder);
                Step::Assign(self.wish.to.clone())
            }
            // This move's own removal, perhaps, whose answer was lost.
            Err(error) if error.is(CloudErrorKind::NotFound) && self.opened_a_gap() => Step::Read,
            Err(error) if error.is(CloudErrorKind::NotFound) => Step::End(End::Changed(format!(
                "assignment {} was taken away by somebody else",
                holder.id
            ))),
            Err(error) if may_pass(&error) => {
                self.removal = Removal::Unanswered(holder);
                Step::Wait(error)
            }
            Err(error) => Step::End(End::Kept(error)),
        }
    }

    /// After [`Step::Assign`].
    pub(crate) fn assigned(&mut self, result: Result<EndpointAssignment, CloudError>) -> Step {
        let error = match (result, &self.returning) {
            (Ok(_), Some(refusal)) => return Step::End(End::Refused(refusal.clone())),
            // Where the cloud can move it, others may have moved it on in the same moment.
            (Ok(_), None) if self.atomic => {
                self.accepted = true;
                return Step::Read;
            }
            (Ok(assignment), None) => return Step::End(End::Moved(assignment.id)),
            (Err(error), _) => error,
        };
        if error.is(CloudErrorKind::AlreadyExists) {
            return Step::Wait(error);
        }
        if self.is_open(&error) {
            self.unanswered |= self.returning.is_none();
            return Step::Wait(error);
        }
        match (&self.returning, &self.removal) {
            (Some(refusal), _) => Step::End(End::Refused(refusal.clone())),
            (None, Removal::Accepted(old) | Removal::Unanswered(old)) => {
                self.returning = Some(error);
                Step::Assign(old.machine.clone())
            }
            (None, Removal::NotTried) => Step::End(End::Refused(error)),
        }
    }

    /// After [`Step::Reassign`].
    pub(crate) fn reassigned(&mut self, result: Result<EndpointAssignment, CloudError>) -> Step {
        match result {
            Ok(_) => {
                self.accepted = true;
                Step::Read
            }
            Err(error) if may_pass(&error) => {
                self.unanswered = true;
                Step::Wait(error)
            }
            Err(error) if error.is(CloudErrorKind::AlreadyExists) => Step::Wait(error),
            Err(error) => Step::End(End::Refused(error)),
        }
    }

    fn has_written(&self) -> bool {
        self.opened_a_gap() || self.unanswered || self.accepted
    }

    /// May the assignment have happened, or happen if it is asked for again? In a gap a token that is being renewed is waited for, too.
    fn is_open(&self, error: &CloudError) -> bool {
        may_pass(error) || (self.opened_a_gap() && error.is(CloudErrorKind::Unauthenticated))
    }
}

/// No answer, or one that says nothing of the next.
fn may_pass(error: &CloudError) -> bool {
    matches!(
        error.kind,
        CloudErrorKind::Timeout | CloudErrorKind::Unavailable | CloudErrorKind::RateLimited
    )
}

#[cfg(test)]
mod tests;
