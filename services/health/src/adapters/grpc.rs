//! gRPC's own health check.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::credentials::{Credentials, Loaded};
use super::detail::Failure;
use super::dial::{Attempt, dial};
use super::{Answer, KEPT_FOR};

/// Stands for the address where a server wants to see one.
const AUTHORITY: &str = "http://health.invalid";

struct Kept {
    channel: Channel,
    since: Instant,
    with: Arc<Loaded>,
}

/// Asks by gRPC.
pub(super) struct GrpcProbe {
    service: String,
    credentials: Arc<Credentials>,
    /// One an address. Held to take and to put back.
    kept: Mutex<BTreeMap<SocketAddr, Kept>>,
}

impl std::fmt::Debug for GrpcProbe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrpcProbe")
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

impl GrpcProbe {
    pub(super) fn new(service: String, credentials: Arc<Credentials>) -> Self {
        Self {
            service,
            credentials,
            kept: Mutex::default(),
        }
    }

    pub(super) async fn ask(&self, address: SocketAddr, attempt: &Attempt) -> Answer {
        let with = self.credentials.current();
        if let Some(kept) = self.take(address, &with) {
            let answer = self.check(&kept.channel).await;
            // Where the server closed it since, a fresh one tells whether it lives.
            if !answer
                .as_ref()
                .is_err_and(|status| status.code() == Code::Unavailable)
            {
                return self.judge(answer, address, kept);
            }
        }
        let wire = dial(address, &with, attempt).await?;
        let channel = channel(wire, self.credentials.speaks_tls()).await?;
        let kept = Kept {
            channel,
            since: Instant::now(),
            with,
        };
        let answer = self.check(&kept.channel).await;
        self.judge(answer, address, kept)
    }

    async fn check(&self, channel: &Channel) -> Result<ServingStatus, Status> {
        let request = HealthCheckRequest {
            service: self.service.clone(),
        };
        let answer = HealthClient::new(channel.clone()).check(request).await?;
        Ok(answer.into_inner().status())
    }

    fn judge(&self, answer: Result<ServingStatus, Status>, address: SocketAddr, kept: Kept) -> Answer {
        match answer {
            Ok(status) => {
                self.kept.lock().insert(address, kept);
                match status {
                    ServingStatus::Serving => Ok(String::new()),
                    other => Err(Failure::alive(other.as_str_name())),
                }
            }
            Err(status) => match status.code() {
                Code::Unauthenticated | Code::PermissionDenied => Ok(format!(
                    "alive, but our credentials are not accepted ({:?})",
                    status.code()
                )),
                Code::NotFound => Err(Failure::alive(format!("it knows no service `{}`", self.service))),
                Code::Unimplemented => Err(Failure::alive("it has no health check")),
                _ => Err(Failure::of_request(&status)),
            },
        }
    }

    fn take(&self, address: SocketAddr, with: &Arc<Loaded>) -> Option<Kept> {
        let mut kept = self.kept.lock();
        kept.retain(|_, kept| kept.since.elapsed() < KEPT_FOR && Arc::ptr_eq(&kept.with, with));
        kept.remove(&address)
    }
}

/// HTTP/2 over a connection that is there already; it is not made again.
async fn channel(wire: Box<dyn super::dial::Wire>, tls: bool) -> Result<Channel, Failure> {
    let wire = Arc::new(Mutex::new(Some(wire)));
    let connector = tower::service_fn(move |_: Uri| {
        let wire = wire.lock().take();
        async move {
            wire.map(TokioIo::new)
                .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::ConnectionAborted))
        }
    });
    let scheme = if tls { "https" } else { "http" };
    let origin = AUTHORITY.replacen("http", scheme, 1);
    let endpoint = match origin.parse::<Uri>() {
        Ok(origin) => Endpoint::from_static(AUTHORITY).origin(origin),
        Err(_) => Endpoint::from_static(AUTHORITY),
    };
    let connected = endpoint.connect_with_connector(connector).await;
    connected.map_err(|error| Failure::of_request(&error))
}
