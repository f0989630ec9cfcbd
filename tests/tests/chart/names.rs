//! Names that several places must agree on: of Services, of the program's variables, of what the compose file mounts.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use groundplane_tests::kube_api::GATEWAY_NAMESPACE;
use groundplane_tests::scratch::workspace_root;
use pretty_assertions::assert_eq;
use serde_json::Value;

use crate::rendered::{container, list, objects, of_kind, text, values, workloads};

/// The words of a text that are variables of ours.
fn variables(text: &str) -> BTreeSet<String> {
    let words = text.split(|character: char| !character.is_ascii_uppercase() && character != '_');
    words
        .filter(|word| word.starts_with("GROUNDPLANE_"))
        .map(str::to_owned)
        .collect()
}

/// An address that names a Service which is not there, or a Service that selects no pod, would only show in a cluster.
#[tokio::test]
async fn services_find_each_other() -> Result<()> {
    let [_, secrets, _, insecure, job, manager] = values();
    for (values, scheme) in [
        (secrets, "https"),
        (insecure, "http"),
        (job, "https"),
        (manager, "https"),
    ] {
        let objects = objects(&values).await?;
        let workloads = workloads(&objects);
        let mut named = BTreeSet::new();
        for service in of_kind(&objects, "Service") {
            let name = text(&service["metadata"]["name"]);
            named.insert(format!(
                "{scheme}://{name}.{GATEWAY_NAMESPACE}.svc:{}",
                service["spec"]["ports"][0]["port"]
            ));
            let selector = service["spec"]["selector"].as_object().context("no selector")?;
            let selected = workloads.iter().filter(|(_, workload)| {
                let labels = &workload["spec"]["template"]["metadata"]["labels"];
                selector.iter().all(|(label, value)| &labels[label] == value)
            });
            let selected: Vec<_> = selected
                .map(|(service, _)| format!("groundplane-{service}"))
                .collect();
            assert_eq!(selected, [name]);
        }
        let mut called = BTreeSet::new();
        for variable in workloads
            .values()
            .flat_map(|workload| list(&container(workload)["env"]))
        {
            let value = text(&variable["value"]);
            if value.contains(".svc:") && text(&variable["name"]) != "GROUNDPLANE_OTLP_ENDPOINT" {
                called.insert(value.to_owned());
            }
        }
        assert_eq!(called, named);
    }
    Ok(())
}

/// A variable that the program does not know would be ignored in silence.
#[tokio::test]
async fn every_variable_is_one_that_the_program_knows() -> Result<()> {
    let program = groundplane_tests::groundplane::program()?;
    let mut known = BTreeSet::new();
    for role in ["all", "gateway", "ctl", "certs"] {
        let output = Command::new(&program).args([role, "--help"]).output()?;
        ensure!(output.status.success(), "groundplane {role} --help");
        known.extend(variables(&String::from_utf8_lossy(&output.stdout)));
    }
    let mut used = BTreeSet::new();
    for values in values() {
        used.extend(
            objects(&values)
                .await?
                .iter()
                .flat_map(|object| variables(&object.to_string())),
        );
    }
    used.extend(variables(&std::fs::read_to_string(
        workspace_root().join("docker-compose.yaml"),
    )?));
    // Those of the sandbox are another program's.
    used.retain(|variable| !variable.starts_with("GROUNDPLANE_SANDBOX_"));
    ensure!(used.len() > 10, "{used:?}");
    assert_eq!(used.difference(&known).collect::<Vec<_>>(), Vec::<&String>::new());
    Ok(())
}

/// Every file that the compose file mounts is there, and every service of ours is in it.
#[test]
fn the_compose_file_is_complete() -> Result<()> {
    let compose: Value = serde_saphyr::from_str(&std::fs::read_to_string(
        workspace_root().join("docker-compose.yaml"),
    )?)?;
    let services = compose["services"].as_object().context("no services")?;
    for service in [
        "etcd",
        "kube-apiserver",
        "jaeger",
        "sandbox",
        "ipam",
        "eip",
        "bgp",
        "instances",
        "gateway",
    ] {
        assert!(services.contains_key(service), "{service} is missing");
    }
    for (name, service) in services {
        for volume in list(&service["volumes"]).iter().filter_map(Value::as_str) {
            let source = volume.split(':').next().unwrap_or_default();
            if source.starts_with("./") {
                assert!(
                    workspace_root().join(source).exists(),
                    "{name}: {source} is missing"
                );
            } else {
                assert!(
                    compose["volumes"].get(source).is_some(),
                    "{name}: volume {source} is not declared"
                );
            }
        }
        for needed in service["depends_on"]
            .as_object()
            .into_iter()
            .flat_map(serde_json::Map::keys)
        {
            assert!(services.contains_key(needed), "{name} depends on {needed}");
        }
    }
    Ok(())
}
