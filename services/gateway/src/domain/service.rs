//! What a Service of type `LoadBalancer` wants, whether it is ours, and what it is told.
//!
//! ```text
//! Scope: is it ours? ──► Plan: what has to be done ──► Wish: addresses, pool, place
//!                                │                        └──► Desired: what it holds then, and shall say
//!                                └──► Refusal: why not    ──► Condition: how it is told
//! ```

pub(crate) mod condition;
mod desired;
mod plan;
mod scope;
pub(crate) mod sharing;
mod wish;

pub(crate) use condition::{Condition, Refusal, is_ours};
pub(crate) use desired::{Desired, status_says};
pub(crate) use plan::{Plan, Wish, addresses, has_finalizer, plan};
pub(crate) use scope::Scope;
pub(crate) use wish::{Want, mentioned, requests};

use std::net::IpAddr;

use crate::cluster::objects::ServiceObject;

/// Every address that a Service has, by its status, or asks for, whoever wrote it there: by these it is found.
pub(crate) fn named(service: &ServiceObject) -> Vec<IpAddr> {
    addresses(service).chain(mentioned(service)).collect()
}
