//! Who may call what: the one table, and how it is held to.
//!
//! It holds for callers who prove who they are by a certificate. On a unix socket, within the process and in plaintext on
//! loopback, the operating system has decided who gets that far; with `--insecure`, nobody has. What is not in the table may
//! not be called; health checks and, where it is offered, reflection are for everybody.

use std::sync::Arc;
use std::time::Duration;

use groundplane_core::{Clock, ErrorKind, Kinded};
use tonic::Status;
use tracing::warn;

use super::connection::{Peer, Standing};
use super::methods::Method;
use super::status::{Details, status};
use crate::Context;
use crate::telemetry::seldom::Seldom;
use crate::tls::Caller::{self, Agent, All, Bgp, Ctl, Eip, Gateway, Instances};
use crate::tls::metrics::TlsMetrics;

/// The same refusal is logged so often.
const LOG_EVERY: Duration = Duration::from_secs(30);

/// A method, and who may call it.
type Row = (&'static str, &'static [Caller]);

/// Each service, by its full name, with its methods. Those that nobody of ours calls are there for the provider contract:
/// its server is somebody else's, save in tests.
pub(crate) const TABLE: &[(&str, &[Row])] = &[
    (
        "groundplane.ipam.v1.IpamService",
        &[
            ("Allocate", &[Gateway, Eip]),
            ("Release", &[Gateway, Eip]),
            ("Move", &[Gateway]),
            ("Lookup", &[Gateway, Eip]),
            ("ListAllocations", &[Gateway, Eip]),
            ("PutPools", &[Gateway]),
            ("ListPools", &[Gateway]),
            ("SyncNodes", &[Gateway]),
            ("Filter", &[Gateway]),
            ("Bind", &[Gateway]),
            ("Adopt", &[Gateway]),
            ("Watch", &[Gateway]),
            ("Explain", &[Gateway]),
            ("GetStore", &[Gateway]),
        ],
    ),
    (
        "groundplane.eip.v1.EipService",
        &[
            ("EnsureAddress", &[Gateway]),
            ("ReleaseAddress", &[Gateway]),
            ("ListAddresses", &[Gateway]),
            ("AuditAddresses", &[Gateway]),
            ("ReclaimAddresses", &[Gateway]),
            ("EnsureLoadBalancer", &[Gateway]),
            ("DeleteLoadBalancer", &[Gateway]),
            ("GetEndpoint", &[Gateway, Agent]),
            ("MoveEndpoint", &[Agent]),
        ],
    ),
    (
        "groundplane.bgp.v1.BgpService",
        &[
            ("EnsureProject", &[Gateway]),
            ("EnsureMachine", &[Gateway]),
            ("ListPeers", &[Gateway]),
        ],
    ),
    (
        "groundplane.health.v1.HealthService",
        &[("WatchEndpoint", &[Gateway, Agent]), ("Probe", &[Gateway, Agent])],
    ),
    (
        "groundplane.instances.v1.InstancesService",
        &[
            ("Resolve", &[Gateway]),
            ("ListMachines", &[Gateway]),
            ("EnsureRoute", &[Gateway]),
            ("DeleteRoute", &[Gateway]),
            ("ListRoutes", &[Gateway]),
        ],
    ),
    (
        "groundplane.gateway.v1.GatewayService",
        &[
            ("ExplainObject", &[Ctl]),
            ("GetEndpointStatus", &[Ctl]),
            ("Overview", &[Ctl]),
            ("ListPools", &[Ctl]),
            ("ListAddresses", &[Ctl]),
            ("ListMachines", &[Ctl]),
            ("ListPeers", &[Ctl]),
            ("AcceptStore", &[Ctl]),
            ("PlanTakeover", &[Ctl]),
            ("ApplyTakeover", &[Ctl]),
        ],
    ),
    (
        "groundplane.provider.v1.CapabilityService",
        &[("GetCapabilities", &[All, Eip, Bgp, Instances, Agent])],
    ),
    (
        "groundplane.provider.v1.MachineService",
        &[
            ("ListMachines", &[All, Instances]),
            ("GetMachine", &[All, Instances]),
        ],
    ),
    (
        "groundplane.provider.v1.AddressService",
        &[
            ("ListReservations", &[All, Eip]),
            ("CreateReservation", &[All, Eip]),
            ("DeleteReservation", &[All, Eip]),
            ("ReplaceTags", &[All, Eip]),
            ("Assign", &[All, Eip, Agent]),
            ("Unassign", &[All, Eip, Agent]),
            ("GetEndpoint", &[All, Eip, Agent]),
            ("Reassign", &[All, Eip, Agent]),
        ],
    ),
    (
        "groundplane.provider.v1.BgpFabricService",
        &[
            ("GetProject", &[All, Bgp]),
            ("EnableProject", &[All, Bgp]),
            ("ListSessions", &[All, Bgp]),
            ("CreateSession", &[All, Bgp]),
            ("ListNeighbors", &[All, Bgp]),
        ],
    ),
    (
        "rpc.IPProviderService",
        &[("AssignIP", &[All, Eip]), ("UnAssignIP", &[All, Eip])],
    ),
    #[cfg(test)]
    (
        "test.v1.TestService",
        &[("Echo", &[Gateway, Ctl]), ("Watch", &[Gateway])],
    ),
];

/// Services that everybody may call, who got as far as a connection.
const FOR_EVERYBODY: [&str; 2] = ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"];

/// Who may call a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Callers {
    /// Whoever has got as far as a connection.
    Everybody,
    /// These.
    These(&'static [Caller]),
}

impl Callers {
    /// Those of a method: nobody, if it is not in the table.
    pub(crate) fn of(service: &str, method: &str) -> Self {
        if FOR_EVERYBODY.contains(&service) {
            return Self::Everybody;
        }
        let methods = TABLE.iter().find(|(name, _)| *name == service);
        let row = methods.and_then(|(_, methods)| methods.iter().find(|(name, _)| *name == method));
        Self::These(row.map_or(&[], |(_, callers)| callers))
    }
}

/// Why a call is not let in.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("`{caller}` may not call {service}/{method}")]
    NotAllowed {
        caller: String,
        service: Arc<str>,
        method: Arc<str>,
    },
    #[error(
        "the certificate of `{caller}`, with which this connection was opened, has expired: connect again with a renewed one"
    )]
    Expired { caller: String },
}

impl Refusal {
    fn caller(&self) -> &str {
        match self {
            Self::NotAllowed { caller, .. } | Self::Expired { caller } => caller,
        }
    }
}

impl Kinded for Refusal {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotAllowed { .. } => ErrorKind::Denied,
            Self::Expired { .. } => ErrorKind::Unauthenticated,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NotAllowed { .. } => "CALLER_NOT_ALLOWED",
            Self::Expired { .. } => "CLIENT_CERTIFICATE_EXPIRED",
        }
    }
}

/// Holds the calls of one server to the table.
pub(crate) struct Gatekeeper {
    server: &'static str,
    metrics: TlsMetrics,
    clock: Arc<dyn Clock>,
    said: Seldom<(String, Arc<str>, Arc<str>)>,
}

impl std::fmt::Debug for Gatekeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gatekeeper")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

impl Gatekeeper {
    pub(crate) fn new(server: &'static str, context: &Context) -> Self {
        Self {
            server,
            metrics: context.metrics.tls().clone(),
            clock: Arc::clone(&context.clock),
            said: Seldom::every(LOG_EVERY),
        }
    }

    /// Lets a call in, or says with which status it is refused. A call of which nobody knows where it came from is refused.
    pub(crate) fn check(&self, peer: Option<&Peer>, method: &Method) -> Result<(), Status> {
        let identity = match peer.map(|peer| &peer.standing) {
            Some(Standing::Local | Standing::Anybody) => return Ok(()),
            Some(Standing::Certified(identity)) => Some(identity),
            None => None,
        };
        if method.callers == Callers::Everybody {
            return Ok(());
        }
        let caller = identity.map_or_else(|| "unknown".to_owned(), |identity| identity.name.clone());
        if let Some(identity) = identity {
            if identity.validity.expires <= self.clock.now() {
                return Err(self.refuse(peer, identity.caller, method, &Refusal::Expired { caller }));
            }
            if let (Some(caller), Callers::These(these)) = (identity.caller, method.callers)
                && these.contains(&caller)
            {
                return Ok(());
            }
        }
        let refusal = Refusal::NotAllowed {
            caller,
            service: Arc::clone(&method.service),
            method: Arc::clone(&method.name),
        };
        Err(self.refuse(
            peer,
            identity.and_then(|identity| identity.caller),
            method,
            &refusal,
        ))
    }

    fn refuse(
        &self,
        peer: Option<&Peer>,
        caller: Option<Caller>,
        method: &Method,
        refusal: &Refusal,
    ) -> Status {
        let label = caller.map_or("unknown", Caller::name);
        self.metrics.denied(label, &method.service, &method.name);
        let name = refusal.caller();
        let key = (
            name.to_owned(),
            Arc::clone(&method.service),
            Arc::clone(&method.name),
        );
        if let Some(kept_back) = self.said.now(key) {
            let address = peer
                .and_then(|peer| peer.address)
                .map(|address| address.to_string());
            warn!(
                server = self.server,
                caller = name,
                peer = address,
                rpc.service = &*method.service,
                rpc.method = &*method.name,
                reason = refusal.reason(),
                kept_back,
                "a call is refused: {refusal}"
            );
        }
        let details = Details {
            metadata: vec![
                ("caller".to_owned(), name.to_owned()),
                ("method".to_owned(), format!("{}/{}", method.service, method.name)),
            ],
            ..Details::default()
        };
        status(self.server, refusal, details)
    }
}

#[cfg(test)]
mod tests;
