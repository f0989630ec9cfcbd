//! The gateway: what Kubernetes wants, and telling it what it got. The only part that talks to the cluster's API.
//!
//! ```text
//!            watch                         wake              next
//! API server ─────► cluster::Index ──────────────► queue ──────────► controllers ──► clients (instances, bgp, eip, ipam)
//!      ▲                  ▲                          ▲                    │
//!      │                  └── fold ──────────────────┼────────┐           │ plan (pure)
//!      └───────────────────────── cluster::Writer ◄──┼────────┴───────────┘
//!                                 (gate: do we lead?)└── resync: what the cache says would act
//! ```
//!
//! Who knows whom, and never the other way:
//!
//! ```text
//! cluster::objects ◄── announcers ◄── domain ◄── clients ◄── gateway (state that is shared) ◄── controllers, adoption, grpc ◄── start
//! ```
//!
//! Invariants:
//! - Nothing durable: everything is read from Kubernetes and from the services.
//! - Every write passes one gate, which asks right before whether this replica leads. Two replicas never both act.
//! - Level-triggered: a reconcile recomputes one object's whole desired state, and writes only what differs.
//! - Nothing is deleted unless a fresh and complete answer proves that it should be.
//! - An API server or a service that is away, at the start or later, is waited for.

mod adoption;
mod announcers;
mod clients;
mod cluster;
mod config;
mod controllers;
mod domain;
pub mod endpoint;
mod failpoint;
mod gateway;
mod grpc;
mod metrics;
mod queue;
mod readiness;
mod selector;
mod start;
mod takeover;
#[cfg(test)]
mod testing;

pub use clients::Channels;
pub use cluster::{ConnectError, SecretError, Secrets, StoredSecret};
pub use config::{
    Advertisement, AnnotationFormat, Annotations, Announcer, Config, Controllers, Empty, ExternalService,
    IpMode, Lease, Lifecycle, Metallb, PeerMode, Reclaim, ReclaimMode, RivalPolicy,
};
pub use start::{StartError, start, start_with};
