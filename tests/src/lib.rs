//! The world that the end-to-end scenarios, the demo and the benchmarks run in.
//!
//! ```text
//!   tools       builds etcd, kube-apiserver, helm and Jaeger, once
//!   kube_api    a real Kubernetes API; every test gets a Corner of it
//!   fabric      the network between machines, whose packets can be dropped
//!   jaeger      a real Jaeger, which is asked for the spans it got
//!   demo        the story that `make demo` tells
//!   bench       what `make bench` measures
//!   groundplane the binary under test, as a process
//!   certs       certificates for it
//!   chart       the Helm chart, rendered, and its roles granted
//!   metallb     a real MetalLB
//!   bgp_daemon  a real BGP daemon, from Debian's packages
//!   providers   the example providers, built and run as an outsider runs them
//!   world       a corner of a cluster with groundplane at work in it
//!   processes   what all of these are: process groups that cannot outlive us
//!   scratch     folders that cannot outlive us either
//!   tls         the one TLS provider of this process
//!   eventually  awaits a condition, and says what it was when it does not come
//! ```
//!
//! Everything here returns `anyhow::Result` rather than panic, since the demo and the benchmarks are programs, not tests.
//! Nothing depends on the async runtime that it was started from: a test process runs one runtime per test, and shares
//! one API server among them.

pub mod bench;
pub mod bgp_daemon;
pub mod certs;
pub mod chaos;
pub mod chart;
pub mod demo;
pub mod eventually;
pub mod fabric;
pub mod groundplane;
pub mod jaeger;
pub mod kube_api;
pub mod metallb;
pub mod processes;
pub mod providers;
pub mod scratch;
pub mod tls;
pub mod tools;
pub mod world;

pub use eventually::{eventually, eventually_within, throughout};
pub use kube_api::{Corner, KubeApi, User};
pub use world::{CloudApi, Mode, World, WorldOptions};
