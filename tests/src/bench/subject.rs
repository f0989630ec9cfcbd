//! groundplane as it is measured: one process, with its own defaults, on a file system and an API server that are real.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use groundplane_proto::FILE_DESCRIPTOR_SET;
use groundplane_proto::gateway::v1::gateway_service_client::GatewayServiceClient;
use groundplane_proto::gateway::v1::{OverviewRequest, OverviewResponse};
use groundplane_runtime::grpc::{Channel, Target, channel};
use tempfile::TempDir;

use crate::groundplane::{Launch, Process};
use crate::kube_api::{Corner, KubeApi, User};
use crate::{chart, eventually};

/// An API server with nothing in it but a namespace, and the gateway's roles.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) corner: Corner,
    pub(super) api: KubeApi,
}

impl Cluster {
    pub(super) async fn start() -> Result<Self> {
        let api = KubeApi::start().await?;
        let corner = api.corner("bench").await?;
        chart::grant(&corner.client(), corner.namespace()).await?;
        Ok(Self { corner, api })
    }

    /// The configuration of driver `static`, with more addresses than any measure takes.
    pub(super) fn fixed(&self, state: &Path) -> String {
        format!(
            "cluster: bench\ndriver: static\npools:\n  - {{name: bench, addresses: [\"10.64.0.0/12\"]}}\n{}",
            self.sections(state)
        )
    }

    /// What every driver needs: where state is kept, and which cluster is served.
    pub(super) fn sections(&self, state: &Path) -> String {
        format!(
            "ipam:\n  store: {{kind: redb, path: {}}}\ngateway:\n  kubeconfig: {}\n  namespace: {:?}\n",
            quoted(&state.join("ipam.redb")),
            quoted(&self.corner.kubeconfig(User::Gateway)),
            self.corner.namespace(),
        )
    }
}

/// A path as YAML writes it.
pub(super) fn quoted(path: &Path) -> String {
    format!("{:?}", path.display().to_string())
}

/// A running groundplane.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) process: Process,
    target: Target,
    http: reqwest::Client,
    _sockets: TempDir,
}

impl Subject {
    /// Starts a role with the configuration that `config` makes for its folder, and waits until it is ready.
    pub(super) async fn start(role: &str, config: impl FnOnce(&Path) -> Result<String>) -> Result<Self> {
        crate::tls::install();
        let launch = super::image::environment()?
            .into_iter()
            .fold(Launch::new(role)?, |launch, (name, value)| {
                launch.env(&name, value)
            });
        // Unix sockets need short paths.
        let sockets = tempfile::tempdir().context("a folder for a socket")?;
        let target = format!("unix:{}", sockets.path().join("grpc").display());
        let yaml = config(launch.folder())?;
        let process = launch.config(yaml).arg("--listen").arg(&target).start()?;
        let http = reqwest::Client::builder().no_proxy().build()?;
        let subject = Self {
            process,
            target: target.parse()?,
            http,
            _sockets: sockets,
        };
        subject.process.ready().await?;
        Ok(subject)
    }

    /// A connection of its own to the process.
    pub(super) fn channel(&self) -> Result<Channel> {
        Ok(channel(&self.target, None)?.describe(FILE_DESCRIPTOR_SET)?)
    }

    /// Leader, counts and queues, as `groundplane ctl overview` shows them.
    pub(super) async fn overview(&self) -> Result<OverviewResponse> {
        let answer = GatewayServiceClient::new(self.channel()?)
            .overview(OverviewRequest {})
            .await?;
        Ok(answer.into_inner())
    }

    /// Waits until it leads.
    pub(super) async fn leads(&self) -> Result<()> {
        eventually("groundplane leads", async || {
            let overview = self.overview().await?;
            ensure!(overview.leader, "the leader is {:?}", overview.leader_identity);
            Ok(())
        })
        .await
    }

    /// How many writes to Kubernetes it has counted, other than those that keep its lease.
    pub(super) async fn writes(&self) -> Result<f64> {
        let url = format!("http://{}/metrics", self.process.address("admin").await?);
        let text = self
            .http
            .get(url)
            .send()
            .await?
            .error_for_status()?
            .text()
            .await?;
        Ok(sum_of(&text, "groundplane_gateway_writes_total"))
    }
}

/// The sum of a counter over all its labels, without leases.
fn sum_of(metrics: &str, name: &str) -> f64 {
    let rows = metrics
        .lines()
        .filter_map(|line| line.strip_prefix(name))
        .filter(|rest| !rest.contains("\"leases\""));
    rows.filter_map(|rest| rest.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_summed_over_its_labels() {
        let text = "# HELP a_total b.\n# TYPE a counter\na_total{verb=\"Patch\",result=\"OK\"} 12\na_total{verb=\"Create\"} 3\na_total{resource=\"leases\"} 9\nb_total 5\n";
        assert!((sum_of(text, "a_total") - 15.0).abs() < f64::EPSILON);
        assert!(sum_of(text, "c_total").abs() < f64::EPSILON);
    }
}
