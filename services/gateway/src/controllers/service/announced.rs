//! Announcers whose backend has to be told of an address before a Service asks it for that one.

use std::net::IpAddr;

use super::{ServiceController, Stop};
use crate::announcers::{Seat, StatusWriter, Trouble};
use crate::cluster::objects::ServiceObject;
use crate::domain::service::{Desired, Refusal};

impl ServiceController {
    /// Does the backend write the status?
    pub(super) fn by_backend(&self) -> bool {
        self.announcer.status_writer() == StatusWriter::Backend
    }

    /// Has the backend the addresses? If not, the Service is woken when it has.
    pub(super) fn placed(&self, service: &ServiceObject, desired: &Desired) -> Result<bool, Stop> {
        let term = self.gateway.cluster.leader.term();
        match self.gateway.backend.place(service, &desired.addresses, term) {
            Seat::Placed => Ok(true),
            Seat::Waits => Ok(false),
            Seat::Trouble(Trouble { reason, message }) => Err(Stop::Refused(Refusal::new(reason, message))),
        }
    }

    /// Has the backend these addresses of the Service, by what is known?
    pub(super) fn is_placed(&self, service: &ServiceObject, addresses: &[IpAddr]) -> bool {
        let term = self.gateway.cluster.leader.term();
        self.gateway.backend.is_placed(service, addresses, term)
    }

    /// Has the backend nothing more of what the Service had? If not, the Service is woken when that is so.
    pub(super) fn withdrawn(&self, service: &ServiceObject) -> bool {
        let term = self.gateway.cluster.leader.term();
        self.gateway.backend.withdrawn(service, term)
    }
}
