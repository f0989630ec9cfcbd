//! `empty`: tells nobody in particular.

use std::net::IpAddr;

use super::{Announcer, Field, LOAD_BALANCER_IP, Otherwise, StatusWriter, Told};
use crate::cluster::objects::ServiceObject;
use crate::config;

/// For those who announce addresses by themselves. The status says them, and the fields of the Service that were configured
/// (`gateway.empty.tell`): an older controller wrote them there, and its user's own program reads them. Where none are, a Service needs
/// two patches in all: the finalizer and the status.
#[derive(Clone, Debug, Default)]
pub(crate) struct Empty {
    fields: Vec<Field>,
}

impl Empty {
    /// As the section says.
    pub(crate) fn new(config: &config::Empty) -> Self {
        let fields = config.tell.iter().map(|field| match field.as_str() {
            LOAD_BALANCER_IP => Field::LoadBalancerIp,
            key => Field::Annotation(key.into()),
        });
        Self {
            fields: fields.collect(),
        }
    }
}

impl Announcer for Empty {
    fn name(&self) -> &'static str {
        "empty"
    }

    fn status_writer(&self) -> StatusWriter {
        StatusWriter::Us
    }

    /// `spec.loadBalancerIP` holds one address, so with two families it stays empty. Which of several fields is read first, only their
    /// reader knows: none may say anything else.
    fn fields(&self, _: &ServiceObject, addresses: &[IpAddr]) -> Vec<Told> {
        let fits = |field: &&Field| **field != Field::LoadBalancerIp || addresses.len() == 1;
        let text: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        let told = self.fields.iter().filter(fits).map(|field| Told {
            field: field.clone(),
            value: text.join(","),
            otherwise: Otherwise::Refuse,
        });
        told.collect()
    }
}
