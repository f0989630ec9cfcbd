//! Puts the gateway together.

use std::sync::Arc;

use groundplane_core::DriverName;
use groundplane_runtime::Context;
use groundplane_runtime::lease::LeaseConfig;
use kube::{Api, Client};
use tonic::service::Routes;
use tracing::info;

use crate::clients::{Channels, Services};
use crate::cluster::objects::{Key, NodeObject, ServiceObject, Slim};
use crate::cluster::{
    Change, Cluster, ClusterIdentity, ConnectError, Events, Index, Leader, Objects, OnChange, Rivals, Scope,
    Tracks, WriteMetrics, Writer, connect, follow, identity,
};
use crate::config::{Announcer, Config, RivalPolicy};
use crate::gateway::{Gateway, Queues};
use crate::metrics::Readings;
use crate::queue::Queue;
use crate::{adoption, controllers, domain, grpc, readiness};

/// The full name of what we serve.
const SERVICE: &str = "groundplane.gateway.v1.GatewayService";

/// Why the gateway cannot start. That the API server or a service is away is no reason.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no way to the Kubernetes API.
    #[error("no way to the Kubernetes API")]
    Connect(#[from] ConnectError),
    /// The configuration cannot be used; [`Config::validate`] says more.
    #[error("gateway.{path}: {message}")]
    Config {
        /// Which value.
        path: String,
        /// What is wrong with it.
        message: String,
    },
}

/// Starts the gateway, and returns what it serves.
pub async fn start(config: Config, services: Channels, context: &Context) -> Result<Routes, StartError> {
    check(&config)?;
    let (client, home) = connect(config.kubeconfig.as_deref()).await?;
    start_with(client, home, config, services, context)
}

/// As [`start`], for those who have a way to the API server: a simulation, whose API server is in memory. `home` is the namespace of
/// the lease where the configuration names none.
///
/// # Errors
/// The configuration cannot be used.
pub fn start_with(
    client: Client,
    home: String,
    config: Config,
    services: Channels,
    context: &Context,
) -> Result<Routes, StartError> {
    check(&config)?;
    let namespace = if config.namespace.is_empty() {
        home
    } else {
        config.namespace.clone()
    };
    let tasks = &context.tasks;
    let lease = LeaseConfig {
        duration: config.lease.duration.0,
        retry: config.lease.retry.0,
        ..LeaseConfig::new(namespace, config.lease.name.clone(), identity())
    };
    let nodes = Index::new(1);
    let services_index = Index::marked(service_scopes(&config).len(), domain::service::named);
    let tracks = tracks(&config, &nodes, &services_index);
    let rivals = rivals(&client, &config, tracks, context);
    let leader = Leader::elect(client.clone(), lease, rivals, tasks);
    let writer = Writer::new(
        client.clone(),
        leader.clone(),
        config.write_timeout.0,
        WriteMetrics::register(&context.metrics),
    );
    let clock = Arc::clone(&context.clock);
    let events = Events::start(client.clone(), writer.clone(), clock, tasks, &context.metrics);
    let cluster = Cluster {
        nodes: Objects::new(nodes, client.clone(), writer.clone()),
        services: Objects::new(services_index, client.clone(), writer.clone()),
        identity: ClusterIdentity::new(config.cluster.clone()),
        client,
        leader,
        events,
    };
    let (queues, backend) = (Queues::new(), controllers::backend(&config));
    register_readings(&cluster, &queues, backend.queue(), context);
    let gateway = Arc::new(Gateway::new(
        config,
        cluster,
        Services::over(services),
        queues,
        backend,
        context,
    ));
    begin(&gateway, context);
    controllers::endpoint::start(&gateway, writer, context);
    Ok(grpc::routes(&gateway))
}

/// Older controllers that still run, on the clouds that have had any.
fn rivals(client: &Client, config: &Config, tracks: Tracks, context: &Context) -> Rivals {
    match config.driver {
        DriverName::Equinix | DriverName::Cherry => {
            let refuse = config.rivals == RivalPolicy::Refuse;
            Rivals::watch(client.clone(), config.driver, refuse, tracks, context)
        }
        _ => Rivals::none(),
    }
}

/// Where they would be seen writing.
fn tracks(config: &Config, nodes: &Index<NodeObject>, services: &Index<ServiceObject>) -> Tracks {
    let metallb = &config.metallb;
    let ours = config.announcer == Announcer::MetallbConfigmap;
    Tracks {
        nodes: nodes.clone(),
        services: services.clone(),
        config_map: ours.then(|| (metallb.namespace.clone(), metallb.config_map.clone())),
    }
}

fn check(config: &Config) -> Result<(), StartError> {
    match config.validate().into_iter().next() {
        None => Ok(()),
        Some(problem) => Err(StartError::Config {
            path: problem.path,
            message: problem.message,
        }),
    }
}

/// Starts everything that runs.
fn begin(gateway: &Arc<Gateway>, context: &Context) {
    let tasks = &context.tasks;
    let identity = gateway.cluster.identity.clone();
    tasks.spawn(
        "cluster",
        identity.learn(gateway.cluster.client.clone(), tasks.token()),
    );
    readiness::start(gateway, context);
    context.health.serves(SERVICE, &[]);
    follow_nodes(gateway, context);
    follow_services(gateway, context);
    adoption::start(gateway, context);
    controllers::node::start(gateway, context);
    controllers::bgp::start(gateway, context);
    controllers::service::start(gateway, context);
    controllers::reclaim::start(gateway, context);
    Arc::clone(&gateway.backend).start(gateway, context);
    let config = &gateway.config;
    info!(
        announcer = ?config.announcer,
        namespaces = ?config.namespaces,
        node = config.controllers.node,
        lifecycle = config.controllers.lifecycle,
        bgp = config.controllers.bgp,
        service = config.controllers.service,
        "gateway started"
    );
}

/// Namespaces whose Services are followed, each by a watch of its own; an empty one stands for all.
fn service_scopes(config: &Config) -> Vec<Arc<str>> {
    if config.namespaces.is_empty() {
        return vec!["".into()];
    }
    let mut scopes: Vec<Arc<str>> = config
        .namespaces
        .iter()
        .map(|namespace| namespace.as_str().into())
        .collect();
    scopes.sort_unstable();
    scopes.dedup();
    scopes
}

fn follow_nodes(gateway: &Arc<Gateway>, context: &Context) {
    let scope = Scope {
        api: Api::all(gateway.cluster.client.clone()),
        namespace: "".into(),
        selector: gateway.config.node_selector.clone(),
        wanted: |prefix: &str, key: &Key| key.name.starts_with(prefix),
        prefix: gateway.config.node_prefix.clone(),
    };
    let woken = Arc::clone(gateway);
    let on_change: OnChange<NodeObject> = Arc::new(move |change: &Change<NodeObject>| {
        controllers::node::changed(&woken, change);
        controllers::bgp::changed(&woken, change);
        woken.backend.node_changed(change);
    });
    spawn(
        gateway,
        context,
        scope,
        gateway.cluster.nodes.index.clone(),
        on_change,
    );
}

fn follow_services(gateway: &Arc<Gateway>, context: &Context) {
    let client: &Client = &gateway.cluster.client;
    for namespace in service_scopes(&gateway.config) {
        let scope = Scope {
            api: if namespace.is_empty() {
                Api::all(client.clone())
            } else {
                Api::namespaced(client.clone(), &namespace)
            },
            namespace,
            selector: String::new(),
            wanted: |_, _| true,
            prefix: String::new(),
        };
        let woken = Arc::clone(gateway);
        let on_change: OnChange<ServiceObject> =
            Arc::new(move |change: &Change<ServiceObject>| controllers::service::changed(&woken, change));
        spawn(
            gateway,
            context,
            scope,
            gateway.cluster.services.index.clone(),
            on_change,
        );
    }
}

fn spawn<T: Slim>(
    gateway: &Gateway,
    context: &Context,
    scope: Scope<T>,
    index: Index<T>,
    on_change: OnChange<T>,
) {
    context
        .tasks
        .spawn("watch", follow(scope, index, on_change, gateway.stopping.clone()));
}

fn register_readings(cluster: &Cluster, queues: &Queues, backend: Option<&Queue>, context: &Context) {
    let (nodes, services) = (cluster.nodes.index.clone(), cluster.services.index.clone());
    let leader = cluster.leader.clone();
    Readings::register(
        &context.metrics,
        [&queues.nodes, &queues.bgp, &queues.services]
            .into_iter()
            .chain(backend)
            .cloned()
            .collect(),
        vec![
            ("Node", Box::new(move || (nodes.len(), nodes.age()))),
            ("Service", Box::new(move || (services.len(), services.age()))),
        ],
        Box::new(move || leader.is_leader()),
    );
}
