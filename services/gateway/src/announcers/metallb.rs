//! MetalLB, in two forms: `metallb` (custom resources, 0.13 and later) and `metallb-configmap` (the `ConfigMap` of before).
//!
//! ```text
//! Service controller ──place / withdraw──► Board ◄──learn── BGP controller
//!                    ◄──wake when placed──   │
//!                                            ▼
//!        controller `metallb`: World (what there should be) + Present (what there is) ──plan (pure)──► writes
//! ```
//!
//! Order: Secrets, peers, pools, advertisement; only then does the Service ask MetalLB for its address, and MetalLB writes the
//! status. Back: the Service asks no more, its address leaves the pool, and then the address is given back.
//!
//! Whose an entry is:
//! - Objects with [`MANAGED_BY`] are ours. Those with [`LEGACY_LABEL`] were written by the older controllers, and are taken over where
//!   they stand: they are changed only if they must say something else. In MetalLB a pool cannot overlap another, and a peer that
//!   changes, if only by its name or its selectors, loses its session; so neither can be replaced without a gap.
//! - All else is the user's: never changed. What it covers already (an address in a pool, a peer of a node, an advertisement of our
//!   pools) is not written a second time.
//!
//! Nothing is removed on doubt: an address only if no Service names it, by watches that work; a peer only by an answer to what its
//! node's peers are, or when the node is gone.

pub(crate) mod advertisement;
pub(crate) mod board;
pub(crate) mod config_map;
pub(crate) mod coverage;
pub(crate) mod document;
pub(crate) mod peers;
pub(crate) mod pools;
pub(crate) mod resources;
pub(crate) mod world;

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{Announcer, Field, Otherwise, Record, StatusWriter, Told};
use crate::cluster::objects::ServiceObject;

pub(crate) use board::{Board, Round};
pub(crate) use groundplane_core::older::METALLB_LABEL as LEGACY_LABEL;

/// The annotation in which MetalLB looks for the addresses that a Service wants.
const ADDRESSES: &str = "metallb.io/loadBalancerIPs";
/// The same, as it was called before.
const OLD_ADDRESSES: &str = "metallb.universe.tf/loadBalancerIPs";

/// Label of what is ours, and its value.
pub(crate) const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "groundplane");

/// The name of the label by which MetalLB's peers select nodes.
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";

/// MetalLB by custom resources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metallb;

impl Announcer for Metallb {
    fn name(&self) -> &'static str {
        "metallb"
    }

    fn status_writer(&self) -> StatusWriter {
        StatusWriter::Backend
    }

    /// MetalLB refuses a Service that asks both by the annotation and by `spec.loadBalancerIP`. Where the user asks, by either and
    /// for the right address, that is enough.
    fn fields(&self, service: &ServiceObject, addresses: &[IpAddr]) -> Vec<Told> {
        let record = Record::of(service);
        let told = |field: Field, value: String| {
            vec![Told {
                field,
                value,
                otherwise: Otherwise::Refuse,
            }]
        };
        let text: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        let says = Field::LoadBalancerIp.of(service);
        if let Some(says) = says.filter(|says| !record.wrote(&Field::LoadBalancerIp, Some(says))) {
            let value = if same(says, addresses) {
                says.to_owned()
            } else {
                text.join(",")
            };
            return told(Field::LoadBalancerIp, value);
        }
        for key in [ADDRESSES, OLD_ADDRESSES] {
            let field = Field::Annotation(key.into());
            if let Some(says) = field.of(service).filter(|says| same(says, addresses)) {
                let says = says.to_owned();
                return told(field, says);
            }
        }
        told(Field::Annotation(ADDRESSES.into()), text.join(","))
    }
}

/// MetalLB by its `ConfigMap`. Such an old one reads no annotation for addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MetallbConfigMap;

impl Announcer for MetallbConfigMap {
    fn name(&self) -> &'static str {
        "metallb-configmap"
    }

    fn status_writer(&self) -> StatusWriter {
        StatusWriter::Backend
    }

    fn fields(&self, _: &ServiceObject, addresses: &[IpAddr]) -> Vec<Told> {
        // More than one is refused before it comes to this: `Board::place`.
        let only = addresses.first().filter(|_| addresses.len() == 1);
        only.map(|address| Told {
            field: Field::LoadBalancerIp,
            value: address.to_string(),
            otherwise: Otherwise::Refuse,
        })
        .into_iter()
        .collect()
    }
}

/// Does the text name exactly these addresses?
fn same(text: &str, addresses: &[IpAddr]) -> bool {
    let named: BTreeSet<Option<IpAddr>> = text
        .split(',')
        .map(|address| address.trim().parse().ok())
        .collect();
    named == addresses.iter().copied().map(Some).collect()
}

#[cfg(test)]
mod tests;
