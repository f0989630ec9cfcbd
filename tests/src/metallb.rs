//! The real MetalLB: its custom resources in a test's API server, and its own programs beside it.
//!
//! MetalLB's controller and speaker serve health and metrics on all interfaces, at ports that the system chooses: they know no other
//! way. Its webhooks are off, but for tests of theirs: [`Webhooks`].

mod webhooks;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::eventually::eventually;
use crate::kube_api::{Corner, User};
use crate::processes::Child;
use crate::scratch::Scratch;
use crate::tools::{self, Tool};

pub use webhooks::Webhooks;

/// The module that the manifest requires.
const MODULE: &str = "go.universe.tf/metallb";

/// The kind of speaker that needs nothing beside itself.
const NATIVE: &str = "native";

/// Says whose Services it serves; unless said, those of the corner's class.
const CLASS: &str = "--lb-class";

/// A part of MetalLB at work. Dropping it ends it.
#[derive(Debug)]
pub struct Metallb {
    child: Child,
    _folder: Scratch,
}

impl Metallb {
    /// Starts MetalLB's controller in `namespace`, for the Services of the corner's class, and waits until it has read its configuration
    /// for the first time.
    ///
    /// # Errors
    /// What the machine lacks, or the end of its log.
    pub async fn controller(corner: &Corner, namespace: &str) -> Result<Self> {
        let mut command = Command::new(tools::ensure(Tool::MetallbController).await?);
        command.args(["--webhook-mode", "disabled"]);
        let metallb = Self::start(corner, namespace, "controller", command, NATIVE).await?;
        metallb.until(corner, namespace, "controller").await?;
        Ok(metallb)
    }

    /// As [`Metallb::controller`], as it runs by default: for all Services of the cluster that have no class. In an API server of one's own,
    /// since it writes to the Services of other corners, too.
    ///
    /// # Errors
    /// What the machine lacks, or the end of its log.
    pub async fn controller_of_all(corner: &Corner, namespace: &str) -> Result<Self> {
        let mut command = Command::new(tools::ensure(Tool::MetallbController).await?);
        command.args(["--webhook-mode", "disabled", CLASS, ""]);
        let metallb = Self::start(corner, namespace, "controller", command, NATIVE).await?;
        metallb.until(corner, namespace, "controller").await?;
        Ok(metallb)
    }

    /// Starts MetalLB's speaker in its `native` mode, on the corner's node `suffix`.
    ///
    /// # Errors
    /// What the machine lacks, or the end of its log.
    pub async fn speaker(corner: &Corner, namespace: &str, suffix: &str) -> Result<Self> {
        let node = corner.node_name(suffix);
        let mut command = Command::new(tools::ensure(Tool::MetallbSpeaker).await?);
        command.arg("--node-name").arg(&node);
        let metallb = Self::start(corner, namespace, "speaker", command, NATIVE).await?;
        metallb
            .until(corner, namespace, &format!("speaker-{node}"))
            .await?;
        Ok(metallb)
    }

    /// Starts a part of it, where speakers are of this kind.
    async fn start(
        corner: &Corner,
        namespace: &str,
        name: &str,
        mut command: Command,
        speaker: &str,
    ) -> Result<Self> {
        // It looks for its own pod, to own what it writes.
        add_pod(corner, namespace, name).await?;
        let folder = Scratch::new(&format!("metallb-{name}"))?;
        if !command.get_args().any(|argument| argument == CLASS) {
            command.args([CLASS, &corner.class()]);
        }
        command
            .args(["--namespace", namespace])
            .args(["--pod-name", name])
            .args(["--port", "0"])
            .args(["--health-probe-port", "0"])
            .args(["--log-level", "debug"])
            .env("KUBECONFIG", corner.kubeconfig(User::Admin))
            .env("METALLB_BGP_TYPE", speaker);
        let log = folder.join(&format!("{name}.log"));
        let child = Child::spawn(format!("metallb {name}"), command, log)?;
        Ok(Self {
            child,
            _folder: folder,
        })
    }

    /// Waits until it says what it thinks of its configuration.
    async fn until(&self, corner: &Corner, namespace: &str, state: &str) -> Result<()> {
        crate::processes::until(
            &[&self.child],
            format_args!("MetalLB's {state} has begun"),
            async || configuration(corner, namespace, state).await.map(drop),
        )
        .await
    }

    /// All that it has said.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn log(&self) -> Result<String> {
        std::fs::read_to_string(self.child.log()).context("read MetalLB's log")
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        self.child.log_tail()
    }
}

/// What a part of MetalLB (`controller`, `speaker-<node>`) says of its configuration: `Valid`, `Invalid` or `Unknown`, and why.
///
/// # Errors
/// When it has not said anything yet.
pub async fn configuration(corner: &Corner, namespace: &str, state: &str) -> Result<(String, String)> {
    let api = api_of(corner, namespace, "v1beta1", "ConfigurationState");
    let object = api.get(state).await?;
    let said = |field: &str| object.data["status"][field].as_str().map(str::to_owned);
    Ok((
        said("result").context("no result yet")?,
        said("errorSummary").unwrap_or_default(),
    ))
}

/// Waits until a part of MetalLB finds its configuration valid.
///
/// # Errors
/// When it does not; with what it says is wrong.
pub async fn valid(corner: &Corner, namespace: &str, state: &str) -> Result<()> {
    eventually(format_args!("{state} accepts its configuration"), async || {
        let (result, why) = configuration(corner, namespace, state).await?;
        ensure!(result == "Valid", "{result}: {why}");
        Ok(())
    })
    .await
}

/// An API of MetalLB's objects.
pub fn api_of(corner: &Corner, namespace: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("metallb.io", version, kind);
    Api::namespaced_with(corner.client(), namespace, &ApiResource::from_gvk(&kind))
}

/// All objects of a kind by name, with what they say.
///
/// # Errors
/// The API's.
pub async fn objects(corner: &Corner, namespace: &str, kind: &str) -> Result<Vec<(String, Value)>> {
    let version = if kind == "BGPPeer" { "v1beta2" } else { "v1beta1" };
    let list = api_of(corner, namespace, version, kind)
        .list(&ListParams::default())
        .await
        .with_context(|| format!("list {kind}"))?;
    let mut objects: Vec<(String, Value)> = list
        .items
        .into_iter()
        .map(|object| {
            let name = object.metadata.name.unwrap_or_default();
            (name, object.data["spec"].clone())
        })
        .collect();
    objects.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(objects)
}

/// Creates an object of MetalLB's, as a user would.
///
/// # Errors
/// The API's.
pub async fn create(
    corner: &Corner,
    namespace: &str,
    kind: &str,
    name: &str,
    labels: Value,
    spec: Value,
) -> Result<()> {
    let version = if kind == "BGPPeer" { "v1beta2" } else { "v1beta1" };
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": format!("metallb.io/{version}"),
        "kind": kind,
        "metadata": { "name": name, "labels": labels },
        "spec": spec,
    }))?;
    let created = api_of(corner, namespace, version, kind)
        .create(&PostParams::default(), &object)
        .await;
    created.map(drop).with_context(|| format!("create {kind} {name}"))
}

/// Installs MetalLB's custom resources, once an API server.
///
/// # Errors
/// When its module cannot be had, and the API's.
pub async fn install(client: &Client) -> Result<()> {
    static FILES: OnceCell<Vec<CustomResourceDefinition>> = OnceCell::const_new();
    let definitions = FILES.get_or_try_init(read).await?;
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions {
        let name = definition
            .metadata
            .name
            .clone()
            .context("a definition has no name")?;
        api.patch(
            &name,
            &PatchParams::apply("tests").force(),
            &Patch::Apply(definition),
        )
        .await
        .with_context(|| format!("install {name}"))?;
    }
    for definition in definitions {
        let name = definition.metadata.name.clone().unwrap_or_default();
        eventually(format_args!("{name} is established"), async || {
            let found = api.get(&name).await?;
            let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
            let established =
                |c: &&k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionCondition| {
                    c.type_ == "Established" && c.status == "True"
                };
            conditions.iter().find(established).map(drop).context("not yet")
        })
        .await?;
    }
    Ok(())
}

/// The definitions of the module's folder. There, versions of an object are not converted by a webhook; ours differ in no field that
/// we write.
async fn read() -> Result<Vec<CustomResourceDefinition>> {
    let folder = module().await?.join("config/crd/bases");
    let mut definitions = Vec::new();
    for file in std::fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
        let text = std::fs::read_to_string(file?.path())?;
        definitions.push(serde_saphyr::from_str(&text)?);
    }
    ensure!(!definitions.is_empty(), "{} is empty", folder.display());
    Ok(definitions)
}

/// Where the sources of the module are.
async fn module() -> Result<PathBuf> {
    let manifest = crate::scratch::workspace_root().join("tests/tools/metallb");
    for arguments in [
        vec!["mod", "download", MODULE],
        vec!["list", "-m", "-f", "{{.Dir}}", MODULE],
    ] {
        let output = tokio::process::Command::new("go")
            .args(&arguments)
            .env("GOWORK", "off")
            .current_dir(&manifest)
            .output()
            .await
            .context("start go, which the sources of MetalLB are fetched with")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "go {arguments:?}: {said}");
        let folder = String::from_utf8(output.stdout)?;
        if arguments[0] == "list" {
            return Ok(PathBuf::from(folder.trim()));
        }
    }
    anyhow::bail!("go does not say where {MODULE} is")
}

async fn add_pod(corner: &Corner, namespace: &str, name: &str) -> Result<()> {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "containers": [{ "name": name, "image": "example.com/metallb" }] },
    }))?;
    let api: Api<Pod> = Api::namespaced(corner.client(), namespace);
    match api.create(&PostParams::default(), &pod).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(error).context("create MetalLB's pod"),
    }
}
