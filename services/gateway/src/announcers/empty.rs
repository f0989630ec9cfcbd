//! `empty`: tells nobody.

use std::net::IpAddr;

use super::{Announcer, StatusWriter, Told};
use crate::cluster::objects::ServiceObject;

/// For those who announce addresses by themselves, from `status.loadBalancer`. Writes nothing to the Service, so that
/// one needs two patches in all: the finalizer and the status.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Empty;

impl Announcer for Empty {
    fn name(&self) -> &'static str {
        "empty"
    }

    fn status_writer(&self) -> StatusWriter {
        StatusWriter::Us
    }

    fn fields(&self, _: &ServiceObject, _: &[IpAddr]) -> Vec<Told> {
        Vec::new()
    }
}
