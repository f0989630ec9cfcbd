//! A cloud in a box: the HTTP APIs of Equinix Metal and of Cherry Servers, as far as a Kubernetes controller uses them, with faults on
//! demand and a journal of every call. In memory, on loopback, ids that repeat from run to run.
//!
//! ```text
//!   client ──HTTP──▶ http::intercept ──▶ equinix, cherry (one function a call) ──▶ cloud (state, one mutex)
//!                    │ journal, fault,
//!                    │ token, rate limit
//!                    ▼
//!                    http::spoil: what goes wrong on the way back
//!   test ──▶ Sandbox, Project, Faults, Journal        tool ──HTTP──▶ /sandbox/v1 (http::admin)
//! ```
//!
//! Each test takes a [`Project`] of its own: tokens, ids, addresses, faults and journal are apart, so tests
//! share a sandbox.
//!
//! Both APIs show the same world: a machine is a device here and a server there, a public reservation is a floating IP, a tag `k=v` is
//! the entry `k: v` of a map, a metro is a region. The rest of the tools (faults, journal, quota, holders) does not care which is spoken.
//!
//! What is emulated of Equinix Metal: devices, reservations and assignments, BGP configuration, sessions and neighbours, with
//! paging, `include` and `exclude`, quotas, asynchronous states, both shapes of error bodies and rate limits.
//! The real service closed in 2026, so what its documents do not say is a guess; each guess is written down
//! where it is made (`cloud::reservations`, `cloud::bgp`, `equinix::bgp`). Of Cherry Servers: projects, servers, IP addresses, regions
//! and plans, with `limit` and `offset`, BGP of project, server and region, and the move of an address in one call; its guesses are in
//! `cloud::cherry` and `cherry`. In general: an object of somebody else's
//! project answers 403, one that does not exist 404.
//!
//! ```no_run
//! # async fn example() {
//! use groundplane_sandbox::{Action, DeviceOptions, FaultRule, ProjectOptions, Sandbox};
//!
//! let sandbox = Sandbox::start().await;
//! let project = sandbox.project(ProjectOptions { quota: Some(5), ..ProjectOptions::default() });
//! let device = project.add_device(DeviceOptions::named("node-a"));
//! let rule = FaultRule::on("GET", "/devices/{id}", Action::status(500));
//! project.fault(rule.object(device.to_string()).first(3));
//! let mark = project.journal().mark();
//! // ... talk to project.base_url() with project.token() ...
//! assert_eq!(project.journal().calls(mark, "GET", "/devices/{id}").len(), 4);
//! # }
//! ```

mod addressing;
mod api;
mod cherry;
mod cloud;
mod equinix;
mod error;
mod fault;
mod holders;
mod http;
mod ident;
mod journal;
mod locations;
mod model;
mod options;
mod ordered;
mod project;
mod query;
mod regions;
mod sandbox;
mod test_cloud;

pub use cloud::SetupError;
pub use fault::{Action, FaultId, FaultRule, FaultStatus, Faults, RandomPlan, StatusFault, When};
pub use holders::{HolderChange, most_holders};
pub use ident::{AssignmentId, DeviceId, ProjectId, ReservationId, SessionId};
pub use journal::{Entry, Journal};
pub use model::{
    Assignment, BgpConfig, BgpStatus, DeploymentType, Device, DeviceState, Reservation, ReservationKind,
    ReservationState, Session,
};
pub use options::{
    Choice, Clouds, DeviceOptions, ProjectOptions, RateLimit, ReservationOptions, SandboxOptions,
};
pub use project::Project;
pub use regions::RegionBgp;
pub use sandbox::{Sandbox, StartError};
pub use test_cloud::TestCloud;
