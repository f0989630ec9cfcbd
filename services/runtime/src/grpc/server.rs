//! A gRPC server as every groundplane process runs it.
//!
//! ```text
//! Server ──bind()──► BoundServer (addresses known, nothing answered) ──routes(), serve()──► tasks
//! ```
//!
//! One critical task per listener. When the process stops: no new connections, streams end with UNAVAILABLE, calls in
//! flight are finished, connections that never spoke are closed, and after [`Limits::drain`] every connection is cut.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;
use tracing::{info, warn};

use super::callers::Gatekeeper;
use super::handshake::{Greeter, connections};
use super::health::HealthRpc;
use super::layer::{RpcLayer, Shared};
use super::listen::{BindError, BoundAddress, Listen, Listener, Proof};
use super::methods::Methods;
use crate::args::ListenArgs;
use crate::tls::{RELOAD_INTERVAL, ServerCredentials, ServerTls, TRUST_DOMAIN};
use crate::{Context, Health};

/// A ping this often to a silent client, and this long for its answer.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// What one server bears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Calls being worked on at once; more are refused as UNAVAILABLE. Streams count until they are accepted.
    pub calls: usize,
    /// Streams at once on one connection.
    pub streams: u32,
    /// Bytes of a request's headers.
    pub headers: u32,
    /// How long calls may take to end when the process stops.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            calls: 1024,
            streams: 1024,
            headers: 16 * 1024,
            // Leaves the tasks behind the server 5 s of the process's own 25 s.
            drain: Duration::from_secs(20),
        }
    }
}

/// A server to be. Builder.
#[derive(Debug)]
#[must_use]
pub struct Server {
    name: &'static str,
    context: Context,
    listen: Vec<Listen>,
    tls: Option<ServerTls>,
    trust_domain: Arc<str>,
    reload: Duration,
    insecure: bool,
    limits: Limits,
    content: Content,
}

/// What is served.
#[derive(Debug, Default)]
struct Content {
    routes: Option<Routes>,
    methods: Methods,
    reflected: Vec<&'static [u8]>,
}

impl Content {
    fn add(&mut self, routes: Routes) {
        self.routes = Some(match self.routes.take() {
            None => routes,
            // Each brings the same fallback (UNIMPLEMENTED), and axum merges only where one side has none.
            Some(before) => {
                let added = routes.into_axum_router().reset_fallback();
                before.into_axum_router().merge(added).into()
            }
        });
    }

    fn describe(&mut self, descriptor_set: &[u8]) {
        if let Err(error) = self.methods.describe(descriptor_set) {
            warn!(%error, "descriptor set cannot be read; its methods are counted as `unknown`");
        }
    }
}

impl Server {
    /// A server named after its service (`ipam`), in `context`.
    pub fn new(name: &'static str, context: &Context) -> Self {
        Self {
            name,
            context: context.clone(),
            listen: Vec::new(),
            tls: None,
            trust_domain: TRUST_DOMAIN.into(),
            reload: RELOAD_INTERVAL,
            insecure: false,
            limits: Limits::default(),
            content: Content::default(),
        }
    }

    /// Listens here, too.
    pub fn listen(mut self, listen: Listen) -> Self {
        self.listen.push(listen);
        self
    }

    /// Listens where the arguments say, protected as they say. (Reflection is [`Server::reflection`]'s.)
    pub fn args(mut self, args: &ListenArgs) -> Self {
        self.listen.extend(args.listen.iter().cloned());
        self.tls = args.tls();
        if let Some(domain) = &args.trust_domain {
            self.trust_domain = domain.as_str().into();
        }
        self.insecure = args.insecure;
        self
    }

    /// Serves TLS on TCP. Unix sockets and memory stay plain.
    pub fn tls(mut self, tls: Option<ServerTls>) -> Self {
        self.tls = tls;
        self
    }

    /// Looks this often for renewed certificates.
    pub fn reload_every(mut self, interval: Duration) -> Self {
        self.reload = interval;
        self
    }

    /// Allows callers beyond loopback who do not prove who they are.
    pub fn insecure(mut self, insecure: bool) -> Self {
        self.insecure = insecure;
        self
    }

    /// Other limits than the default ones.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Adds services.
    ///
    /// # Panics
    ///
    /// If a service is added twice.
    pub fn routes(mut self, routes: Routes) -> Self {
        self.content.add(routes);
        self
    }

    /// Describes the served methods: metrics and spans name only what is described, and only described unary methods
    /// have their deadline capped. If `enabled`, the description is offered to clients, too.
    pub fn reflection(mut self, enabled: bool, descriptor_set: &'static [u8]) -> Self {
        self.content.describe(descriptor_set);
        if enabled {
            self.content.reflected.push(descriptor_set);
        }
        self
    }

    /// Takes the addresses, without answering there yet.
    pub async fn bind(self) -> Result<BoundServer, BindError> {
        let Self {
            name,
            context,
            listen,
            tls,
            trust_domain,
            reload,
            insecure,
            limits,
            content,
        } = self;
        if listen.is_empty() {
            return Err(BindError::Nowhere(name));
        }
        let tls = tls.map(|tls| ServerCredentials::load(&tls)).transpose()?;
        let proof = match &tls {
            Some(tls) if tls.asks_clients() => Proof::Certificate,
            _ if insecure => Proof::NotAsked,
            Some(_) => Proof::None,
            None => Proof::Plaintext,
        };
        let mut listeners = Vec::with_capacity(listen.len());
        for listen in &listen {
            let (listener, address) = Listener::bind(listen, proof).await?;
            info!(server = name, %address, tls = tls.is_some() && listener.is_tcp(), "listening");
            listeners.push((listener, address));
        }
        Ok(BoundServer {
            name,
            context,
            listeners,
            tls,
            trust_domain,
            reload,
            limits,
            content,
        })
    }

    /// Binds and serves: [`Server::bind`], then [`BoundServer::serve`].
    pub async fn start(self) -> Result<Vec<BoundAddress>, BindError> {
        let bound = self.bind().await?;
        let addresses = bound.addresses();
        bound.serve()?;
        Ok(addresses)
    }
}

/// A server that has its addresses and answers nobody yet.
#[derive(Debug)]
#[must_use]
pub struct BoundServer {
    name: &'static str,
    context: Context,
    listeners: Vec<(Listener, BoundAddress)>,
    tls: Option<ServerCredentials>,
    trust_domain: Arc<str>,
    reload: Duration,
    limits: Limits,
    content: Content,
}

impl BoundServer {
    /// Where it listens, in the order in which it was asked to.
    pub fn addresses(&self) -> Vec<BoundAddress> {
        self.listeners
            .iter()
            .map(|(_, address)| address.clone())
            .collect()
    }

    /// Adds services.
    ///
    /// # Panics
    ///
    /// If a service is added twice.
    pub fn routes(mut self, routes: Routes) -> Self {
        self.content.add(routes);
        self
    }

    /// Answers, by tasks of the context, until the process stops.
    pub fn serve(self) -> Result<(), BindError> {
        let Self {
            name,
            context,
            listeners,
            tls,
            trust_domain,
            reload,
            limits,
            mut content,
        } = self;
        let stopping = context.tasks.token();
        let severed = CancellationToken::new();
        content.describe(tonic_health::pb::FILE_DESCRIPTOR_SET);
        let routes = with_infrastructure(&context.health, &mut content);
        let layer = RpcLayer(Arc::new(Shared {
            name,
            methods: content.methods,
            metrics: context.metrics.rpc().clone(),
            permits: Arc::new(Semaphore::new(limits.calls)),
            gatekeeper: Gatekeeper::new(name, &context),
            stopping: stopping.clone(),
        }));
        if let Some(tls) = &tls {
            tls.watch(&context, reload);
        }
        let greeter = Arc::new(Greeter::new(name, &context, tls, trust_domain, severed.clone()));
        for (listener, _) in listeners {
            let service = transport(limits).layer(layer.clone()).add_routes(routes.clone());
            let incoming = connections(listener, Arc::clone(&greeter));
            let serving = service.serve_with_incoming_shutdown(incoming, stopping.clone().cancelled_owned());
            context.tasks.spawn_critical(
                name,
                patient(serving, limits.drain, stopping.clone(), severed.clone()),
            );
        }
        Ok(())
    }
}

/// Serves; once the process stops, waits for at most `drain` until every connection is cut.
async fn patient<T>(
    serving: impl Future<Output = T>,
    drain: Duration,
    stopping: CancellationToken,
    severed: CancellationToken,
) -> T {
    let mut serving = std::pin::pin!(serving);
    let patience = async {
        stopping.cancelled().await;
        tokio::time::sleep(drain).await;
    };
    tokio::select! {
        ended = &mut serving => return ended,
        () = patience => severed.cancel(),
    }
    serving.await
}

fn transport(limits: Limits) -> tonic::transport::Server {
    tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(PING_INTERVAL))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
        .max_concurrent_streams(limits.streams)
        .http2_max_header_list_size(limits.headers)
}

/// The routes, with health and, where asked for, reflection.
fn with_infrastructure(health: &Health, content: &mut Content) -> Routes {
    let mut routes = content.routes.take().unwrap_or_default();
    routes = routes.add_service(HealthServer::new(HealthRpc(health.clone())));
    if !content.reflected.is_empty() {
        let mut builder = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
        for set in &content.reflected {
            builder = builder.register_encoded_file_descriptor_set(set);
        }
        content.describe(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET);
        match builder.build_v1() {
            Ok(reflection) => routes = routes.add_service(reflection),
            Err(error) => warn!(%error, "no reflection: the descriptor set cannot be read"),
        }
    }
    routes
}
