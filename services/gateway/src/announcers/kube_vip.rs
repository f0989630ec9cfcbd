//! `kube-vip`: reads the addresses of a Service from an annotation.

use std::net::IpAddr;

use super::{Announcer, Field, Otherwise, StatusWriter, Told};
use crate::cluster::objects::ServiceObject;

/// The annotation in which kube-vip looks first: addresses, comma separated.
pub(crate) const ADDRESSES: &str = "kube-vip.io/loadbalancerIPs";

/// Tells kube-vip by its annotation, and by `spec.loadBalancerIP` where there is just one address: that is where the
/// Equinix controllers wrote it, and where other programs look. It holds one address, so with two families it stays empty.
///
/// The status is written by us. kube-vip writes it, too, with ports beside the same addresses, and that is left alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KubeVip;

impl Announcer for KubeVip {
    fn name(&self) -> &'static str {
        "kube-vip"
    }

    fn status_writer(&self) -> StatusWriter {
        StatusWriter::Us
    }

    fn fields(&self, _: &ServiceObject, addresses: &[IpAddr]) -> Vec<Told> {
        let text: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        let mut told = vec![Told {
            field: Field::Annotation(ADDRESSES.into()),
            value: text.join(","),
            otherwise: Otherwise::Refuse,
        }];
        if let [only] = &*text {
            told.push(Told {
                field: Field::LoadBalancerIp,
                value: only.clone(),
                // kube-vip reads its annotation first.
                otherwise: Otherwise::Leave,
            });
        }
        told
    }
}
