//! The API endpoint: one elastic IP that moves between machines.

use std::net::IpAddr;

use async_trait::async_trait;
use groundplane_core::ProviderId;

use crate::CloudError;

/// Which elastic IP is the endpoint, as configured. The operator reserved it; nobody here makes or deletes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EndpointSelector {
    /// The one reservation that carries this tag.
    Tag(String),
    /// The reservation that has this address.
    Address(IpAddr),
}

/// The endpoint, as the cloud has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// Machines that hold it: none, one, or, where someone meddled, several.
    pub assignments: Vec<EndpointAssignment>,
}

/// The endpoint on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointAssignment {
    /// The cloud's id of the assignment. Another assignment, of the same address to the same machine even, has another one; unless the
    /// cloud moves the address in one step: it may have no ids of assignments, and then each time on the same machine has the same.
    pub id: String,
    /// The machine.
    pub machine: ProviderId,
}

/// A cloud that can give an address to a machine and take it away.
///
/// Of two callers at most one succeeds: an assignment is taken away by its own id, and an address that is held cannot be assigned. Of
/// two who move it in one step the later one prevails, and one machine holds it all the time.
#[async_trait]
pub trait EndpointIps: Send + Sync + 'static {
    /// How many calls a move takes where nothing goes wrong.
    fn calls_per_move(&self) -> u32;

    /// Does [`EndpointIps::reassign`] move it in one step? Else it is taken away first, then assigned.
    fn moves_atomically(&self) -> bool;

    /// The machine, by the id that [`EndpointAssignment::machine`] has for it; `None`: not a machine of this cloud. A cloud that knows a
    /// machine by several ids says which one is meant, so that it is not taken for another one.
    fn machine(&self, id: &ProviderId) -> Option<ProviderId> {
        Some(id.clone())
    }

    /// The endpoint, read now.
    ///
    /// # Errors
    /// `NotFound`: a complete list has no such reservation. `Refused`: several reservations match, or the one that does has no address
    /// or is a block.
    async fn endpoint(&self, selector: &EndpointSelector) -> Result<Endpoint, CloudError>;

    /// Gives an address that nobody holds to a machine.
    ///
    /// # Errors
    /// `AlreadyExists`: somebody holds it. `NotFound`: no such machine. `Timeout` and `Unavailable`: it may have happened; read before trying
    /// again.
    async fn assign(&self, address: IpAddr, machine: &ProviderId) -> Result<EndpointAssignment, CloudError>;

    /// Takes an assignment away, by its id. Asks the cloud once: after a call without an answer the next may find its own deed.
    ///
    /// # Errors
    /// `NotFound`: it was gone before; somebody else was quicker. `Timeout` and `Unavailable`: it may have happened; read.
    async fn unassign(&self, assignment_id: &str) -> Result<(), CloudError>;

    /// Moves the address to a machine, whoever holds it, in one step.
    ///
    /// # Errors
    /// `Refused` where the cloud cannot. Else as [`EndpointIps::assign`].
    async fn reassign(&self, address: IpAddr, machine: &ProviderId)
    -> Result<EndpointAssignment, CloudError>;
}
