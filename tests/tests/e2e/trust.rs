//! Processes that trust each other by certificates: who may call what, what is said when they do not, and how certificates
//! and the authority are renewed while everybody is at work.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context as _, Result, ensure};
use groundplane_core::{Clock as _, ErrorKind, SystemClock};
use groundplane_proto::FILE_DESCRIPTOR_SET;
use groundplane_proto::bgp::v1::ListPeersRequest;
use groundplane_proto::bgp::v1::bgp_service_client::BgpServiceClient;
use groundplane_proto::gateway::v1::OverviewRequest;
use groundplane_proto::gateway::v1::gateway_service_client::GatewayServiceClient;
use groundplane_proto::ipam::v1::ipam_service_client::IpamServiceClient;
use groundplane_proto::ipam::v1::{AdoptRequest, ListAllocationsRequest, ListPoolsRequest};
use groundplane_runtime::grpc::{Channel, RpcError, channel, channel_with};
use groundplane_runtime::tls::identity::Validity;
use groundplane_runtime::tls::{Caller, ClientCredentials, ClientTls};
use groundplane_tests::certs::{Certs, calling};
use groundplane_tests::scratch::Scratch;
use groundplane_tests::{KubeApi, User, World, WorldOptions, certs, eventually, tls};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::DeleteParams;
use pretty_assertions::assert_eq;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

const SERVERS: [&str; 5] = ["ipam", "eip", "bgp", "instances", "gateway"];

async fn start(name: &str) -> Result<World> {
    tls::install();
    WorldOptions::fixed().tls().start(name).await
}

/// A channel to a role of this world, with these files.
fn reach(world: &World, role: &str, files: &ClientTls) -> Result<Channel> {
    let target = world.secure(role)?.parse()?;
    Ok(channel(&target, Some(files))?.describe(FILE_DESCRIPTOR_SET)?)
}

/// How a call fails.
fn failure<T, E: Into<RpcError>>(result: Result<T, E>) -> Result<RpcError> {
    let failed = result.err().context("it was answered")?;
    Ok(failed.into())
}

/// `groundplane ctl overview` over TLS, with the files of this folder and further arguments.
async fn ctl(world: &World, flags: &[String]) -> Result<(bool, String)> {
    let output = tokio::process::Command::new(groundplane_tests::groundplane::program()?)
        .args(["ctl", "--gateway", world.secure("gateway")?])
        .args(flags)
        .arg("overview")
        .output()
        .await?;
    let said = [output.stdout, output.stderr].concat();
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    ))
}

/// Waits until the log of a role has a line with this reason.
async fn logged(world: &World, role: &str, message: &str, reason: &str) -> Result<Value> {
    let what = format!("{role} logs {reason}");
    eventually(&what, async || {
        let logs = world.logs()?;
        let (_, lines) = logs
            .iter()
            .find(|(name, _)| *name == role)
            .context("no such role")?;
        let found = lines.iter().find(|line| {
            line["reason"] == reason
                && line["message"]
                    .as_str()
                    .is_some_and(|text| text.starts_with(message))
        });
        found.cloned().context("it has not")
    })
    .await
}

/// How long the certificate in a file is good.
fn expires(file: &Path) -> Result<Timestamp> {
    let certificate = CertificateDer::from_pem_file(file)?;
    Ok(Validity::of(&certificate)?.expires)
}

/// By role and side: how often certificates were renewed, and until when the last ones are good.
type Renewals = BTreeMap<(&'static str, String), (usize, Timestamp)>;

/// What every log says of renewals.
fn renewals(world: &World) -> Result<Renewals> {
    let mut renewals = BTreeMap::new();
    for (role, lines) in world.logs()? {
        for line in lines
            .iter()
            .filter(|line| line["message"] == "certificates were renewed")
        {
            let (side, until) = (text(&line["side"]), text(&line["expires"]).parse()?);
            let (count, last) = renewals.entry((role, side.to_owned())).or_insert((0, until));
            (*count, *last) = (*count + 1, until);
        }
    }
    Ok(renewals)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Journey 1, with every call between processes over mutual TLS.
#[tokio::test]
async fn a_service_gets_its_address_over_mutual_tls() -> Result<()> {
    let world = start("trust-journey").await?;
    world.corner.add_service("web").await?;
    let addresses = world.corner.addresses_of("web", 1).await?;
    ensure!(addresses[0].starts_with("192.0.2."), "{addresses:?}");
    // The socket needs no certificate; over TLS, ctl has one of its own.
    assert_eq!(
        world.ctl(&["addresses"]).await?[0]["address"],
        format!("{}/32", addresses[0])
    );
    let (ok, said) = ctl(&world, &calling(&world.certs()?.of("ctl"))).await?;
    ensure!(ok, "{said}");
    let logs = world.logs()?;
    assert_eq!(logs.len(), SERVERS.len());
    for (role, logs) in logs {
        let secure = logs
            .iter()
            .any(|line| line["message"] == "listening" && line["server"] == role && line["tls"] == true);
        ensure!(secure, "{role} does not listen with TLS");
        let unheard = logs.iter().find(|line| line["reason"] == "CALLER_NOT_ALLOWED");
        ensure!(unheard.is_none(), "{role} refused one of us: {unheard:?}");
    }
    world.corner.delete_service("web").await?;
    world.corner.service_gone("web").await?;
    assert_eq!(world.ctl(&["addresses"]).await?, json!([]));
    Ok(())
}

/// eip may ask ipam for addresses, and nothing else of anybody.
#[tokio::test]
async fn a_caller_that_may_not_call_is_refused() -> Result<()> {
    let world = start("trust-callers").await?;
    let eip = world.certs()?.client(Caller::Eip);
    let mut ipam = IpamServiceClient::new(reach(&world, "ipam", &eip)?);
    ipam.list_allocations(ListAllocationsRequest::default()).await?;
    let adopt = failure(ipam.adopt(AdoptRequest::default()).await)?;
    let mut gateway = GatewayServiceClient::new(reach(&world, "gateway", &eip)?);
    let overview = failure(gateway.overview(OverviewRequest {}).await)?;
    let mut bgp = BgpServiceClient::new(reach(&world, "bgp", &eip)?);
    let peers = failure(bgp.list_peers(ListPeersRequest::default()).await)?;
    for (role, error, method) in [
        ("ipam", adopt, "groundplane.ipam.v1.IpamService/Adopt"),
        (
            "gateway",
            overview,
            "groundplane.gateway.v1.GatewayService/Overview",
        ),
        ("bgp", peers, "groundplane.bgp.v1.BgpService/ListPeers"),
    ] {
        assert_eq!(error.kind, ErrorKind::Denied, "{role}: {error}");
        assert_eq!(error.reason, "CALLER_NOT_ALLOWED", "{role}");
        assert_eq!(
            (
                error.metadata["caller"].as_str(),
                error.metadata["method"].as_str()
            ),
            ("eip", method)
        );
        let line = logged(&world, role, "a call is refused", "CALLER_NOT_ALLOWED").await?;
        assert_eq!(line["caller"], "eip");
    }
    let (ok, said) = ctl(&world, &calling(&world.certs()?.of("eip"))).await?;
    ensure!(!ok && said.contains("`eip` may not call"), "{said}");
    Ok(())
}

/// Certificates that are expired, of somebody else, or missing: both ends say so, and what would help.
#[tokio::test]
async fn bad_certificates_are_explained_at_both_ends() -> Result<()> {
    let world = start("trust-bad").await?;
    let folder = Scratch::new("trust-bad")?;
    let foreign = Certs::make(folder.join("foreign")).await?;
    let ours = world.certs()?.clone();
    // Of our authority, and good for seconds only.
    let short = folder.join("short");
    for file in ["tls.crt", "tls.key"] {
        std::fs::create_dir_all(short.join("ca"))?;
        std::fs::copy(ours.of("ca").join(file), short.join("ca").join(file))?;
    }
    let expired = Certs::at(short);
    let term = ["--service", "ctl", "--validity", "2s", "--renew-before", "1s"];
    expired.run(&term).await?;
    let until = expires(&expired.of("ctl").join("tls.crt"))?;
    eventually("it has expired", async || {
        // Certificates count in whole seconds.
        ensure!(
            SystemClock.now() > until + SignedDuration::from_secs(1),
            "it has not"
        );
        Ok(())
    })
    .await?;
    let mixed = |ca: &Path, own: &Path| {
        let file = |flag: &str, path: std::path::PathBuf| [flag.to_owned(), path.display().to_string()];
        [
            file("--client-ca", ca.join("ca.crt")),
            file("--client-cert", own.join("tls.crt")),
            file("--client-key", own.join("tls.key")),
        ]
        .concat()
    };
    let missing = calling(&ours.of("ctl"))[..2].to_vec();
    let cases = [
        (
            "CLIENT_CERTIFICATE_EXPIRED",
            mixed(&ours.of("ctl"), &expired.of("ctl")),
            "--client-cert",
        ),
        (
            "CLIENT_AUTHORITY_UNKNOWN",
            mixed(&ours.of("ctl"), &foreign.of("ctl")),
            "--tls-client-ca",
        ),
        ("CLIENT_CERTIFICATE_MISSING", missing, "--client-cert"),
        (
            "SERVER_AUTHORITY_UNKNOWN",
            mixed(&foreign.of("ctl"), &ours.of("ctl")),
            "--client-ca",
        ),
    ];
    for (reason, flags, help) in cases {
        let (ok, said) = ctl(&world, &flags).await?;
        ensure!(
            !ok && said.contains("certificate") && said.contains(help),
            "{reason}: {said}"
        );
        ensure!(!said.contains("transport error"), "{reason}: {said}");
        let line = logged(&world, "gateway", "a connection is refused", reason).await?;
        ensure!(line["peer"].is_string() && line["help"].is_string(), "{line}");
    }
    Ok(())
}

/// Waits until every process, on both sides, has renewed since and has what is in the files.
async fn all_renewed(world: &World, before: &Renewals) -> Result<()> {
    let until = expires(&world.certs()?.of("ipam").join("tls.crt"))?;
    eventually("every process has renewed", async || {
        let now = renewals(world)?;
        ensure!(now.len() == 2 * SERVERS.len(), "{now:?}");
        for (key, (count, last)) in &now {
            let seen = before.get(key).map_or(0, |(seen, _)| *seen);
            ensure!(*count > seen, "{key:?}: no more than {seen}");
            // Each leaf is made in its own moment.
            let apart = last.duration_since(until).abs();
            ensure!(
                apart < SignedDuration::from_hours(1),
                "{key:?} is good until {last}"
            );
        }
        Ok(())
    })
    .await
}

/// Calls ipam again and again, four at a time, until it is told to stop. The first failure ends it.
#[derive(Default)]
struct Load {
    done: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
    tasks: tokio::task::JoinSet<Result<()>>,
}

impl Load {
    fn start(channel: &Channel) -> Self {
        let mut load = Self::default();
        for _ in 0..4 {
            let mut client = IpamServiceClient::new(channel.clone());
            let (done, stopped) = (Arc::clone(&load.done), Arc::clone(&load.stopped));
            load.tasks.spawn(async move {
                while !stopped.load(Ordering::Relaxed) {
                    client.list_pools(ListPoolsRequest::default()).await?;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
        }
        load
    }

    /// Waits until there were a hundred more calls.
    async fn goes_on(&self) -> Result<()> {
        let calls = self.done.load(Ordering::Relaxed);
        eventually("calls go on", async || {
            ensure!(self.done.load(Ordering::Relaxed) > calls + 100, "none since");
            Ok(())
        })
        .await
    }

    async fn stop(mut self) -> Result<()> {
        self.stopped.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended?.context("a call failed")?;
        }
        Ok(())
    }
}

/// Leaves and then the authority are renewed while calls and Services go on: none of the calls fails.
#[tokio::test]
async fn certificates_and_authority_are_renewed_under_load() -> Result<()> {
    let world = start("trust-renewal").await?;
    let ours = world.certs()?.clone();
    let context = groundplane_runtime::Context::new();
    let credentials = ClientCredentials::load(&ours.client(Caller::Gateway))?;
    credentials.watch(&context);
    let target = world.secure("ipam")?.parse()?;
    let channel = channel_with(&target, Some(&credentials))?.describe(FILE_DESCRIPTOR_SET)?;
    let load = Load::start(&channel);
    let steps: [(&str, &[&str]); 4] = [
        ("leaves", &["--validity", "4000h", "--renew-before", "3000h"]),
        (
            "announce",
            &["--validity", "4000h", "--renew-before", "3000h", "--rotate-ca"],
        ),
        (
            "use",
            &[
                "--validity",
                "5000h",
                "--renew-before",
                "3000h",
                "--overlap",
                "1s",
            ],
        ),
        (
            "forget",
            &[
                "--validity",
                "5000h",
                "--renew-before",
                "3000h",
                "--overlap",
                "1s",
            ],
        ),
    ];
    for (number, (step, arguments)) in steps.into_iter().enumerate() {
        let before = renewals(&world)?;
        // A step that is not due yet changes nothing.
        eventually(&format!("step {step} is taken"), async || {
            let said = ours.run(arguments).await?;
            ensure!(
                said.contains("issued") || said.contains("told whom to trust"),
                "{said}"
            );
            Ok(())
        })
        .await?;
        all_renewed(&world, &before).await?;
        load.goes_on().await?;
        let name = format!("web-{number}");
        world.corner.add_service(&name).await?;
        world.corner.addresses_of(&name, 1).await?;
    }
    load.stop().await?;
    for (role, lines) in world.logs()? {
        for line in lines {
            let refused = [
                "a connection is refused",
                "no connection",
                "changed certificates cannot be used",
            ]
            .into_iter()
            .find(|message| text(&line["message"]).starts_with(message));
            ensure!(refused.is_none(), "{role}: {line}");
        }
    }
    // Who has nothing but the old authority is out.
    let trusted = std::fs::read_to_string(ours.of("ipam").join("ca.crt"))?;
    assert_eq!(trusted.matches("BEGIN CERTIFICATE").count(), 1);
    context.tasks.token().cancel();
    Ok(())
}

/// `groundplane certs` in the cluster, as the chart's Job runs it: Secrets that mount as files, the same after a second run,
/// and no key in what it says.
#[tokio::test]
async fn certificates_are_kept_in_secrets() -> Result<()> {
    let corner = KubeApi::shared().await?.corner("trust-secrets").await?;
    let kubeconfig = corner.kubeconfig(User::Admin);
    let kubeconfig = kubeconfig.to_str().context("no text")?;
    let arguments = [
        "--prefix",
        "groundplane",
        "--namespace",
        corner.namespace(),
        "--kubeconfig",
        kubeconfig,
        "--service",
        "ipam,gateway",
        "--host",
        "groundplane-{service}.ns.svc",
    ];
    let said = certs::run(&arguments).await?;
    ensure!(said.contains("ipam: issued") && !said.contains("KEY"), "{said}");
    let api: Api<Secret> = Api::namespaced(corner.client(), corner.namespace());
    let stored = || async {
        let mut found = BTreeMap::new();
        for name in ["ca", "ipam", "gateway"] {
            let secret = api.get(&format!("groundplane-{name}-tls")).await?;
            assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"), "{name}");
            found.insert(name, secret.data.context("it is empty")?);
        }
        anyhow::Ok(found)
    };
    let first = stored().await?;
    assert_eq!(
        first["ipam"].keys().collect::<Vec<_>>(),
        ["ca.crt", "tls.crt", "tls.key"]
    );
    assert_eq!(first["ipam"]["ca.crt"], first["ca"]["tls.crt"]);
    ensure!(
        first["ipam"]["tls.key"] != first["gateway"]["tls.key"],
        "each has its own"
    );
    let said = certs::run(&arguments).await?;
    ensure!(
        said.contains("ipam: good") && said.contains("gateway: good"),
        "{said}"
    );
    assert_eq!(stored().await?, first);
    // One that somebody deleted is made again, and the others stay.
    api.delete("groundplane-ipam-tls", &DeleteParams::default())
        .await?;
    certs::run(&arguments).await?;
    let again = stored().await?;
    assert_eq!(
        (&again["ca"], &again["gateway"]),
        (&first["ca"], &first["gateway"])
    );
    ensure!(
        again["ipam"]["tls.crt"] != first["ipam"]["tls.crt"],
        "it is another one"
    );
    Ok(())
}
