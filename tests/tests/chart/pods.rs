//! Pods: what they are given, and what they may do on their machine.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use groundplane_tests::kube_api::GATEWAY_SERVICE_ACCOUNT;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::rendered::{
    container, list, objects, objects_set, of_kind, pod, pods, text, text_of, values, workloads,
};

/// The Secret of an older controller is mounted where its own pods had it, for those who read it; it tells the driver, and may tell
/// an endpoint.
#[tokio::test]
async fn the_secret_of_an_older_controller_is_mounted_where_it_was() -> Result<()> {
    let secret = "cloudConfig.existingSecret=metal-cloud-config";
    let settings = |more: &str| format!("{secret},{more}");
    let services = objects_set(&settings("mode=services,agent.enabled=true")).await?;
    let mut workloads = workloads(&services);
    let agent = of_kind(&services, "DaemonSet");
    workloads.insert("agent".to_owned(), agent.first().context("there is no agent")?);
    for (service, workload) in &workloads {
        let mounts = list(&container(workload)["volumeMounts"]);
        let mounted = mounts.iter().find(|mount| mount["mountPath"] == "/etc/cloud-sa");
        let volumes = list(&pod(workload)["volumes"]);
        let volume = volumes.iter().find(|volume| volume["name"] == "cloud-config");
        let reads = service != "ipam";
        assert_eq!((mounted.is_some(), volume.is_some()), (reads, reads), "{service}");
        if let Some(volume) = volume {
            let items = json!([{ "key": "cloud-sa.json", "path": "cloud-sa.json" }]);
            assert_eq!(volume["secret"]["secretName"], "metal-cloud-config");
            assert_eq!(volume["secret"]["items"], items, "{service}");
        }
    }
    let file = |objects: &[Value]| text_of(of_kind(objects, "ConfigMap")[0]).to_owned();
    assert!(!file(&services).contains("driver:"), "{}", file(&services));
    let own = objects_set(&settings("config.driver=equinix")).await?;
    assert!(file(&own).contains("driver: equinix"), "{}", file(&own));
    let none = objects(&[]).await?;
    assert!(file(&none).contains("driver: static"), "{}", file(&none));
    assert!(!serde_json::to_string(&none)?.contains("cloud-sa"));
    let refused = objects_set("cloudConfig.existingSecret=Not_A_Name").await;
    assert!(format!("{:#}", refused.err().context("accepted")?).contains("/cloudConfig/existingSecret"));
    Ok(())
}

#[tokio::test]
async fn only_who_needs_it_gets_a_token_a_secret_or_a_volume() -> Result<()> {
    let secrets = "secretFiles[0].name=cloud,secretFiles[0].existingSecret=cloud-token";
    let [_, services, ..] = values();
    let services = objects(&[services, vec!["--set".to_owned(), secrets.to_owned()]].concat()).await?;
    let workloads = workloads(&services);
    assert_eq!(
        workloads.keys().collect::<Vec<_>>(),
        ["bgp", "eip", "gateway", "instances", "ipam"]
    );
    for (service, workload) in &workloads {
        let volumes: BTreeSet<_> = list(&pod(workload)["volumes"])
            .iter()
            .map(|volume| text(&volume["name"]))
            .collect();
        let claims = list(&workload["spec"]["volumeClaimTemplates"]).len();
        let cloud = ["bgp", "eip", "instances"].contains(&service.as_str());
        assert_eq!(volumes.contains("secret-cloud"), cloud, "{service}");
        assert_eq!(claims, usize::from(service == "ipam"), "{service}");
        assert_eq!(
            pod(workload)["automountServiceAccountToken"],
            service == "gateway",
            "{service}"
        );
        let account = text(&pod(workload)["serviceAccountName"]);
        assert_eq!(
            account == GATEWAY_SERVICE_ACCOUNT,
            service == "gateway",
            "{service}"
        );
        let security = &container(workload)["securityContext"];
        assert_eq!(security["readOnlyRootFilesystem"], true, "{service}");
        assert_eq!(security["capabilities"]["drop"], json!(["ALL"]), "{service}");
        assert_eq!(
            pod(workload)["securityContext"]["runAsNonRoot"],
            true,
            "{service}"
        );
        for variable in list(&container(workload)["env"]) {
            assert!(
                variable["valueFrom"]["secretKeyRef"].is_null(),
                "{service}: {variable}"
            );
        }
    }
    Ok(())
}

/// What the strictest of the Pod Security Standards asks for, and a root that nobody writes to.
#[tokio::test]
async fn no_pod_has_a_right_on_its_machine() -> Result<()> {
    for values in values() {
        let objects = objects(&values).await?;
        for (name, pod) in pods(&objects) {
            let security = &pod["securityContext"];
            assert_eq!(security["runAsNonRoot"], true, "{name}");
            assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault", "{name}");
            for container in list(&pod["containers"])
                .iter()
                .chain(list(&pod["initContainers"]))
            {
                let security = &container["securityContext"];
                assert_eq!(security["allowPrivilegeEscalation"], false, "{name}");
                assert_eq!(security["readOnlyRootFilesystem"], true, "{name}");
                assert_eq!(security["capabilities"], json!({ "drop": ["ALL"] }), "{name}");
            }
            for volume in list(&pod["volumes"]) {
                assert!(volume["hostPath"].is_null(), "{name}: {volume}");
            }
            let token = &pod["automountServiceAccountToken"];
            let needed = ["gateway", "groundplane", "certs"]
                .iter()
                .any(|part| name == *part || name.ends_with(&format!("-{part}")));
            assert_eq!(*token, needed, "{name}");
        }
    }
    Ok(())
}
