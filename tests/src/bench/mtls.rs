//! Calls with mutual TLS beside the same calls in plaintext: what trust costs.
//!
//! Two ipam of the same kind, one with certificates and one without, both over TCP on loopback. Rounds alternate, so that a
//! disturbance of the machine meets both.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use groundplane_proto::FILE_DESCRIPTOR_SET;
use groundplane_proto::ipam::v1::LookupRequest;
use groundplane_proto::ipam::v1::ipam_service_client::IpamServiceClient;
use groundplane_proto::ipam::v1::lookup_request::By;
use groundplane_runtime::grpc::{Channel, channel};
use groundplane_runtime::tls::Caller;
use tokio::task::JoinSet;

use super::load::{adopt, config, request};
use super::{Row, Target, median, number, progress};
use crate::certs::Certs;
use crate::groundplane::{Launch, Process};
use crate::scratch::Scratch;

/// The name of the measure.
pub(super) const MEASURE: &str = "mtls_calls";

/// Connections, each shared by [`CALLS`] callers: a gateway and its like share one among all that they do at once.
const CONNECTIONS: usize = 4;
/// Calls under way on each.
const CALLS: usize = 16;
/// Rounds of each kind.
const ROUNDS: usize = 9;
/// How long a round lasts.
const ROUND: Duration = Duration::from_secs(2);
/// How long connections and caches are warmed.
const WARM_UP: Duration = Duration::from_secs(1);

type Client = IpamServiceClient<Channel>;

/// An ipam that has given an address, and clients of it.
struct Side {
    clients: Vec<Client>,
    request: LookupRequest,
    _process: Process,
}

/// Runs the measure.
pub(super) async fn run() -> Result<Vec<Row>> {
    crate::tls::install();
    let folder = Scratch::new("mtls")?;
    let certs = Certs::make(folder.join("certs")).await?;
    let plain = Side::start(None).await?;
    let secure = Side::start(Some(&certs)).await?;
    for side in [&plain, &secure] {
        side.round(WARM_UP).await?;
    }
    let (mut ours, mut reference) = (Vec::new(), Vec::new());
    for turn in 1..=ROUNDS {
        // Whoever is second finds the machine as the first has left it.
        let (with, without) = if turn % 2 == 0 {
            let with = secure.round(ROUND).await?;
            (with, plain.round(ROUND).await?)
        } else {
            let without = plain.round(ROUND).await?;
            (secure.round(ROUND).await?, without)
        };
        progress(&format!(
            "{MEASURE} {turn}/{ROUNDS}: {with:.0}/s with mutual TLS, {without:.0}/s in plaintext"
        ));
        ours.push(with);
        reference.push(without);
    }
    let ratios = ours.iter().zip(&reference).map(|(with, without)| with / without);
    let ratio = median(ratios.collect());
    let row = Row::relative(
        MEASURE,
        (median(ours), median(reference)),
        "/s",
        ratio,
        Target::AtLeast(0.85),
    )
    .with("connections", CONNECTIONS)
    .with("calls_at_once", CONNECTIONS * CALLS);
    Ok(vec![row])
}

impl Side {
    async fn start(certs: Option<&Certs>) -> Result<Self> {
        let environment = super::image::environment()?;
        let launch = environment
            .into_iter()
            .fold(Launch::new("ipam")?, |launch, (name, value)| {
                launch.env(&name, value)
            });
        let yaml = config(launch.folder());
        let flags = certs.map(|certs| certs.flags("ipam")).unwrap_or_default();
        let process = launch
            .config(yaml)
            .args(["--listen", "127.0.0.1:0"])
            .args(flags)
            .start()?;
        process.ready().await?;
        let port = process.address("ipam").await?.port();
        let scheme = if certs.is_some() { "https" } else { "http" };
        let target = format!("{scheme}://localhost:{port}").parse()?;
        let files = certs.map(|certs| certs.client(Caller::Gateway));
        let connect = || {
            let channel = channel(&target, files.as_ref())?.describe(FILE_DESCRIPTOR_SET)?;
            Ok(IpamServiceClient::new(channel))
        };
        let clients: Vec<Client> = (0..CONNECTIONS).map(|_| connect()).collect::<Result<_>>()?;
        let first = clients.first().context("there is a client")?.clone();
        Ok(Self {
            request: given(first).await?,
            clients,
            _process: process,
        })
    }

    /// Every caller asks again and again for `span`; gives calls a second.
    async fn round(&self, span: Duration) -> Result<f64> {
        let begun = Instant::now();
        let mut tasks = JoinSet::new();
        for client in self
            .clients
            .iter()
            .flat_map(|client| std::iter::repeat_n(client, CALLS))
        {
            let (mut client, request) = (client.clone(), self.request.clone());
            tasks.spawn(async move {
                let mut done = 0_u64;
                while begun.elapsed() < span {
                    let answer = client.lookup(request.clone()).await?.into_inner();
                    ensure!(answer.allocations.len() == 1, "{answer:?}");
                    done += 1;
                }
                Ok(done)
            });
        }
        let mut done = 0;
        while let Some(ended) = tasks.join_next().await {
            done += ended??;
        }
        Ok(number(done) / begun.elapsed().as_secs_f64())
    }
}

/// Has an address given, and says how to look it up.
async fn given(mut client: Client) -> Result<LookupRequest> {
    adopt(client.clone()).await?;
    let allocate = request("held".to_owned());
    let owner = allocate.owner.clone().context("it names an owner")?;
    client.allocate(allocate).await.context("have an address given")?;
    Ok(LookupRequest {
        by: Some(By::Owner(owner)),
        ..LookupRequest::default()
    })
}
