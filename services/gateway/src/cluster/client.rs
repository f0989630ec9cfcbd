//! The one client of the Kubernetes API.

use std::path::Path;
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::layer::layer_fn;

use super::promptly::Promptly;

/// A read that stays silent for longer is broken. Longer than the API server keeps a watch, so that a quiet watch is not.
const READ_TIMEOUT: Duration = Duration::from_secs(150);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there can be no client. That the API server is away is no reason.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// Neither a kubeconfig nor the surroundings of a pod.
    #[error("there is no kubeconfig, and this is no pod; name one by `gateway.kubeconfig` or KUBECONFIG")]
    Nowhere(#[from] kube::config::InferConfigError),
    /// What the kubeconfig says makes no client.
    #[error("the Kubernetes client cannot be set up")]
    Client(#[from] kube::Error),
}

/// A client, and the namespace that it is at home in. Asks nothing of the API server yet.
pub(crate) async fn connect(kubeconfig: Option<&Path>) -> Result<(Client, String), ConnectError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
        }
        None => Config::infer().await?,
    };
    // A call that repeats itself for minutes would outlive the leadership that it was made under.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    config.write_timeout = Some(WRITE_TIMEOUT);
    let agent = concat!("groundplane/", env!("CARGO_PKG_VERSION"), " (gateway)");
    config.headers.push((USER_AGENT, HeaderValue::from_static(agent)));
    let namespace = config.default_namespace.clone();
    let client = ClientBuilder::try_from(config)?
        .with_layer(&layer_fn(Promptly))
        .build();
    Ok((client, namespace))
}
