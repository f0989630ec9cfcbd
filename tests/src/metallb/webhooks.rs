//! MetalLB's validating webhooks, served by its own controller, and asked by the API server about one namespace.
//!
//! The controller serves them at a port that nothing can change, on all interfaces. So one at a time on a machine: a lock keeps other tests
//! and other test processes waiting.

use std::fs::File;
use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{Metallb, api_of, module};
use crate::eventually::eventually;
use crate::kube_api::Corner;
use crate::scratch::{Scratch, build_folder};
use crate::tools::{self, Tool};

/// Where MetalLB's controller serves its webhooks.
const PORT: u16 = 9443;

/// In the module's folder: which objects they are asked about, and at which paths.
const MANIFEST: &str = "config/webhook/manifests.yaml";

/// Under the folder for temporary files, which is all that can be chosen: where the controller looks for its certificate.
const CERTIFICATES: &str = "k8s-webhook-server/serving-certs";

/// MetalLB's controller, with its webhooks. Dropping it ends it; until [`Webhooks::forget`], the API server goes on asking, and refuses
/// every write.
#[derive(Debug)]
pub struct Webhooks {
    metallb: Metallb,
    name: String,
    _folder: Scratch,
    _alone: File,
}

impl Webhooks {
    /// Starts MetalLB's controller in `namespace` for a speaker of this kind (`native`, `frr`, `frr-k8s`), and waits until the API server
    /// asks it before it accepts MetalLB's objects there.
    ///
    /// # Errors
    /// What the machine lacks, or the end of its log.
    pub async fn start(corner: &Corner, namespace: &str, speaker: &str) -> Result<Self> {
        let program = tools::ensure(Tool::MetallbController).await?;
        let alone = alone().await?;
        let folder = Scratch::new("metallb-webhooks")?;
        let own = rcgen::generate_simple_self_signed([Ipv4Addr::LOCALHOST.to_string()])
            .context("make a certificate")?;
        std::fs::create_dir_all(folder.join(CERTIFICATES)).context("a folder for the certificate")?;
        folder.write(&format!("{CERTIFICATES}/tls.crt"), own.cert.pem())?;
        folder.write(
            &format!("{CERTIFICATES}/tls.key"),
            own.signing_key.serialize_pem(),
        )?;
        let mut command = Command::new(program);
        command
            .args(["--webhook-mode", "enabled", "--disable-cert-rotation"])
            .env("TMPDIR", folder.path());
        let metallb = Metallb::start(corner, namespace, "controller", command, speaker).await?;
        metallb.until(corner, namespace, "controller").await?;
        let name = format!("metallb-{namespace}");
        configure(corner, namespace, &name, &own.cert.pem()).await?;
        let webhooks = Self {
            metallb,
            name,
            _folder: folder,
            _alone: alone,
        };
        asked(corner, namespace)
            .await
            .with_context(|| webhooks.metallb.log_tail())?;
        Ok(webhooks)
    }

    /// The end of the controller's log.
    pub fn log_tail(&self) -> String {
        self.metallb.log_tail()
    }

    /// Ends the controller, and has the API server ask nobody any more.
    ///
    /// # Errors
    /// The API's.
    pub async fn forget(self, corner: &Corner) -> Result<()> {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(corner.client());
        let deleted = api.delete(&self.name, &DeleteParams::default()).await;
        deleted.map(drop).context("delete the configuration of webhooks")
    }
}

/// Waits until nobody else on this machine serves MetalLB's webhooks.
async fn alone() -> Result<File> {
    let path = build_folder().join("metallb-webhooks.lock");
    let lock = tokio::task::spawn_blocking(move || -> Result<File> {
        let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        file.lock().context("wait for MetalLB's webhooks")?;
        Ok(file)
    });
    lock.await?
}

/// Has the API server ask about the objects of this namespace, as MetalLB's own manifest has it, but at loopback.
async fn configure(corner: &Corner, namespace: &str, name: &str, certificate: &str) -> Result<()> {
    let file = module().await?.join(MANIFEST);
    let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let mut configuration: Value = serde_saphyr::from_str(&text)?;
    configuration["metadata"] = json!({ "name": name });
    let hooks = configuration["webhooks"].as_array_mut().context("no webhooks")?;
    ensure!(hooks.len() >= 6, "{} webhooks", hooks.len());
    for hook in hooks {
        let path = hook["clientConfig"]["service"]["path"]
            .as_str()
            .context("no path")?;
        hook["clientConfig"] = json!({
            "url": format!("https://{}:{PORT}{path}", Ipv4Addr::LOCALHOST),
            "caBundle": BASE64.encode(certificate),
        });
        hook["namespaceSelector"] = json!({ "matchLabels": { "kubernetes.io/metadata.name": namespace } });
    }
    let api: Api<ValidatingWebhookConfiguration> = Api::all(corner.client());
    let parameters = PatchParams::apply("tests").force();
    let applied = api.patch(name, &parameters, &Patch::Apply(&configuration)).await;
    applied.map(drop).context("configure MetalLB's webhooks")
}

/// Waits until a pool that no schema refuses is refused by MetalLB.
async fn asked(corner: &Corner, namespace: &str) -> Result<()> {
    let api = api_of(corner, namespace, "v1beta1", "IPAddressPool");
    let wrong = serde_json::from_value(json!({
        "apiVersion": "metallb.io/v1beta1",
        "kind": "IPAddressPool",
        "metadata": { "name": "wrong" },
        "spec": { "addresses": ["nowhere"] },
    }))?;
    let parameters = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    eventually("MetalLB is asked", async || {
        match api.create(&parameters, &wrong).await {
            Err(kube::Error::Api(status)) if status.message.contains("denied the request") => Ok(()),
            answer => anyhow::bail!("it is not: {answer:?}"),
        }
    })
    .await
}
