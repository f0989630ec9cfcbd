//! Announcers whose backend has to be told of an address before a Service asks it for one: MetalLB.

use std::net::IpAddr;

use super::{ServiceController, Stop};
use crate::announcers::StatusWriter;
use crate::announcers::metallb::{Seat, Trouble, board};
use crate::cluster::objects::ServiceObject;
use crate::config::Announcer;
use crate::controllers::metallb;
use crate::domain::service::{Desired, Refusal};

impl ServiceController {
    /// Does the backend write the status?
    pub(super) fn by_backend(&self) -> bool {
        self.announcer.status_writer() == StatusWriter::Backend
    }

    /// Has the backend the addresses? If not, the Service is woken when it has.
    pub(super) fn placed(&self, service: &ServiceObject, desired: &Desired) -> Result<bool, Stop> {
        if !self.by_backend() {
            return Ok(true);
        }
        let refused = |trouble: Trouble| Err(Stop::Refused(Refusal::new(trouble.reason, trouble.message)));
        let config = &self.gateway.config;
        let by_config_map = config.announcer == Announcer::MetallbConfigmap;
        let settings = metallb::settings(config);
        if let Some(trouble) = board::refused(&desired.addresses, &settings, by_config_map) {
            return refused(trouble);
        }
        let term = self.gateway.cluster.leader.term();
        let board = &self.gateway.metallb;
        let (seat, news) = board.place(&service.key, &service.uid, &desired.addresses, term);
        if news {
            metallb::wake(&self.gateway);
        }
        match seat {
            Seat::Placed => Ok(true),
            Seat::Waits => Ok(false),
            Seat::Trouble(trouble) => refused(trouble),
        }
    }

    /// Has the backend these addresses of the Service, by what is known?
    pub(super) fn is_placed(&self, service: &ServiceObject, addresses: &[IpAddr]) -> bool {
        let term = self.gateway.cluster.leader.term();
        !self.by_backend()
            || self
                .gateway
                .metallb
                .is_placed(&service.key, &service.uid, addresses, term)
    }

    /// Has the backend nothing more of what the Service had? If not, the Service is woken when that is so.
    pub(super) fn withdrawn(&self, service: &ServiceObject) -> bool {
        if !self.by_backend() {
            return true;
        }
        let term = self.gateway.cluster.leader.term();
        let gone = self.gateway.metallb.withdraw(&service.key, &service.uid, term);
        if !gone {
            metallb::wake(&self.gateway);
        }
        gone
    }
}
