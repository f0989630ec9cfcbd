//! The chart: it lints, refuses nonsense, asks for no right that the gateway does not use, and the real API server takes every
//! object of it. The compose file is held to the same names.
//!
//! A new key of the configuration is added to `EVERY_KEY` in `configuration.rs`.

mod certificates;
mod configuration;
mod guides;
mod names;
mod pods;
mod rendered;
mod rights;

use anyhow::{Context as _, Result, ensure};
use groundplane_tests::kube_api::{GATEWAY_NAMESPACE, User};
use groundplane_tests::{KubeApi, chart};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use pretty_assertions::assert_eq;
use serde_json::json;

use rendered::{objects, text, values};

#[tokio::test]
async fn the_chart_lints_with_every_set_of_values() -> Result<()> {
    let folder = chart::folder().display().to_string();
    for values in values() {
        let mut arguments = vec!["lint", &folder, "--strict", "--namespace", GATEWAY_NAMESPACE];
        arguments.extend(values.iter().map(String::as_str));
        let said = chart::helm(&arguments).await?;
        assert!(said.contains("0 chart(s) failed"), "{values:?}: {said}");
    }
    Ok(())
}

#[tokio::test]
async fn the_api_server_accepts_every_object() -> Result<()> {
    let api = KubeApi::shared().await?;
    let client = api.client(User::Admin)?;
    let namespace = json!({ "metadata": { "name": GATEWAY_NAMESPACE } });
    let namespace: Namespace = serde_json::from_value(namespace)?;
    // Another test of this process may have made it.
    let made = Api::<Namespace>::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await;
    if let Err(error) = made {
        ensure!(
            matches!(&error, kube::Error::Api(status) if status.code == 409),
            "{error}"
        );
    }
    let parameters = PatchParams::apply("chart").dry_run().validation_strict();
    for values in values() {
        for object in objects(&values).await? {
            let (group, version) = text(&object["apiVersion"])
                .split_once('/')
                .unwrap_or_else(|| ("", text(&object["apiVersion"])));
            // Its definitions are cert-manager's own, and not here.
            if group == "cert-manager.io" {
                continue;
            }
            let kind = GroupVersionKind::gvk(group, version, text(&object["kind"]));
            let (resource, capabilities) = pinned_kind(&client, &kind).await?;
            let objects: Api<DynamicObject> = match capabilities.scope {
                Scope::Cluster => Api::all_with(client.clone(), &resource),
                Scope::Namespaced => {
                    // Older controllers are looked for where they run; all else is in the release's own namespace.
                    let own = if text(&object["metadata"]["name"]).ends_with("-gateway-rivals") {
                        "kube-system"
                    } else {
                        GATEWAY_NAMESPACE
                    };
                    assert_eq!(object["metadata"]["namespace"], own, "{kind:?}");
                    Api::namespaced_with(client.clone(), own, &resource)
                }
            };
            let name = text(&object["metadata"]["name"]);
            let applied = objects.patch(name, &parameters, &Patch::Apply(&object)).await;
            applied.with_context(|| format!("{values:?}: {} {name}: {object}", kind.kind))?;
        }
    }
    Ok(())
}
