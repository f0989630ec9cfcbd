//! The Helm chart, as Helm renders it.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::kube_api::GATEWAY_NAMESPACE;
use crate::scratch::workspace_root;
use crate::tools::{Tool, ensure as tool};

/// Where the chart is.
pub fn folder() -> PathBuf {
    workspace_root().join("charts/groundplane")
}

/// Runs Helm with these arguments.
///
/// # Errors
/// When Helm cannot be had, or says no; with its words.
pub async fn helm(arguments: &[&str]) -> Result<String> {
    let output = tokio::process::Command::new(tool(Tool::Helm).await?)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .await
        .context("run helm")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "helm {arguments:?}: {said}");
    Ok(String::from_utf8(output.stdout)?)
}

/// The objects that the chart makes of these arguments (`--set mode=services`).
///
/// # Errors
/// As [`helm`].
pub async fn render(arguments: &[&str]) -> Result<Vec<Value>> {
    let chart = folder();
    let chart = chart.to_str().context("the path of the chart is no text")?;
    let fixed = ["template", "groundplane", chart, "--namespace", GATEWAY_NAMESPACE];
    let text = helm(&[&fixed, arguments].concat()).await?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    Ok(objects.into_iter().filter(|object| !object.is_null()).collect())
}

/// The objects of one kind in what [`render`] gave.
///
/// # Errors
/// When one is not what its kind says.
pub fn of_kind<K: Resource<DynamicType = ()> + DeserializeOwned>(objects: &[Value]) -> Result<Vec<K>> {
    let wanted = objects.iter().filter(|object| object["kind"] == *K::kind(&()));
    wanted
        .map(|object| Ok(serde_json::from_value(object.clone())?))
        .collect()
}

/// Gives the gateway's account what the chart gives it, and no more: cluster-wide, and in `namespace` what it has in its own
/// (its lease is there).
///
/// # Errors
/// Helm's and the API's.
pub async fn grant(client: &Client, namespace: &str) -> Result<()> {
    static RENDERED: OnceCell<Vec<Value>> = OnceCell::const_new();
    let objects = RENDERED.get_or_try_init(|| render(&[])).await?;
    for role in of_kind::<ClusterRole>(objects)? {
        apply(Api::all(client.clone()), role).await?;
    }
    for binding in of_kind::<ClusterRoleBinding>(objects)? {
        apply(Api::all(client.clone()), binding).await?;
    }
    let own = |object_namespace: &Option<String>| object_namespace.as_deref() == Some(GATEWAY_NAMESPACE);
    for mut role in of_kind::<Role>(objects)?
        .into_iter()
        .filter(|role: &Role| own(&role.metadata.namespace))
    {
        role.metadata.namespace = Some(namespace.to_owned());
        apply(Api::namespaced(client.clone(), namespace), role).await?;
    }
    grant_in(client, objects, "kube-system").await?;
    let bindings = of_kind::<RoleBinding>(objects)?;
    for mut binding in bindings
        .into_iter()
        .filter(|binding: &RoleBinding| own(&binding.metadata.namespace))
    {
        binding.metadata.namespace = Some(namespace.to_owned());
        apply(Api::namespaced(client.clone(), namespace), binding).await?;
    }
    Ok(())
}

/// Gives the gateway's account what the chart gives it for this announcer (`metallb`, `metallb-configmap`) in MetalLB's `namespace`.
///
/// # Errors
/// Helm's and the API's.
pub async fn grant_metallb(client: &Client, announcer: &str, namespace: &str) -> Result<()> {
    let announcer = format!("config.gateway.announcer={announcer}");
    let at = format!("config.gateway.metallb.namespace={namespace}");
    let objects = render(&["--set", &announcer, "--set", &at]).await?;
    grant_in(client, &objects, namespace).await
}

/// Gives the gateway's account what the chart gives it in MetalLB's `namespace` by the commands of the guides: for the Secret of an older
/// controller, without a word about who announces.
///
/// # Errors
/// Helm's and the API's.
pub async fn grant_older(client: &Client, secret: &str, namespace: &str) -> Result<()> {
    let secret = format!("cloudConfig.existingSecret={secret}");
    let at = format!("cloudConfig.metallb.namespace={namespace}");
    let objects = render(&["--set", &secret, "--set", &at]).await?;
    grant_in(client, &objects, namespace).await
}

/// Applies what `objects` allow in this namespace, where it is not the gateway's own.
async fn grant_in(client: &Client, objects: &[Value], namespace: &str) -> Result<()> {
    let there = |found: &Option<String>| found.as_deref() == Some(namespace);
    let roles = of_kind::<Role>(objects)?;
    for role in roles.into_iter().filter(|role| there(&role.metadata.namespace)) {
        apply(Api::namespaced(client.clone(), namespace), role).await?;
    }
    let bindings = of_kind::<RoleBinding>(objects)?;
    for binding in bindings
        .into_iter()
        .filter(|binding| there(&binding.metadata.namespace))
    {
        apply(Api::namespaced(client.clone(), namespace), binding).await?;
    }
    Ok(())
}

async fn apply<K>(api: Api<K>, object: K) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let name = object.meta().name.clone().context("an object without a name")?;
    let applied = api
        .patch(
            &name,
            &PatchParams::apply("chart").force(),
            &Patch::Apply(&object),
        )
        .await;
    applied
        .map(drop)
        .with_context(|| format!("apply {} {name}", K::kind(&())))
}
