//! Certificates: each process has its own, whoever makes them.

use anyhow::Result;
use groundplane_tests::kube_api::GATEWAY_NAMESPACE;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::rendered::{container, list, objects, objects_set, of_kind, pod, pods, text, values, workloads};

/// Mutual TLS is what one gets without asking, and each process gets its own certificate and no other.
#[tokio::test]
async fn each_process_gets_its_own_certificate_and_no_other() -> Result<()> {
    let [_, _, _, _, job, manager] = values();
    for values in [job, manager] {
        let objects = objects(&values).await?;
        let workloads = workloads(&objects);
        assert_eq!(workloads.len(), 5);
        for (service, workload) in workloads {
            let mounted: Vec<_> = list(&pod(workload)["volumes"])
                .iter()
                .filter_map(|volume| volume["secret"]["secretName"].as_str())
                .collect();
            assert_eq!(mounted, [format!("groundplane-{service}-tls")]);
            let variable = |name: &str| {
                let found = list(&container(workload)["env"])
                    .iter()
                    .find(|variable| variable["name"] == name);
                found.map(|variable| text(&variable["value"]).to_owned())
            };
            assert_eq!(variable("GROUNDPLANE_INSECURE"), None, "{service}");
            let listens = variable("GROUNDPLANE_LISTEN").unwrap_or_default();
            let asks = variable("GROUNDPLANE_TLS_CLIENT_CA");
            let beyond = !listens.starts_with("unix:");
            assert_eq!(asks.is_some(), beyond, "{service} listens at {listens}");
            assert!(variable("GROUNDPLANE_CLIENT_CERT").is_some(), "{service}");
        }
        assert_eq!(of_kind(&objects, "NetworkPolicy").len(), 4);
    }
    Ok(())
}

/// The makers of certificates may write those, and nothing else; the one of the installation is gone after it.
#[tokio::test]
async fn who_makes_certificates_may_write_those_and_no_more() -> Result<()> {
    let objects = objects_set("mode=services").await?;
    let roles: Vec<_> = of_kind(&objects, "Role")
        .into_iter()
        .filter(|role| text(&role["metadata"]["name"]).contains("-certs"))
        .collect();
    assert_eq!(roles.len(), 2);
    for role in roles {
        let secrets = ["ca", "ipam", "eip", "bgp", "instances", "gateway"]
            .map(|service| format!("groundplane-{service}-tls"));
        let expected = json!([
            { "apiGroups": [""], "resources": ["secrets"], "verbs": ["create"] },
            { "apiGroups": [""], "resources": ["secrets"], "resourceNames": secrets, "verbs": ["get", "update"] },
        ]);
        assert_eq!(role["rules"], expected);
    }
    for object in &objects {
        let hook = !object["metadata"]["annotations"]["helm.sh/hook"].is_null();
        let name = text(&object["metadata"]["name"]);
        assert_eq!(hook, name.ends_with("-hook") || object["kind"] == "Job", "{name}");
    }
    for (kind, account) in [
        ("Job", "groundplane-certs-hook"),
        ("CronJob", "groundplane-certs"),
    ] {
        let makers: Vec<_> = of_kind(&objects, kind).into_iter().cloned().collect();
        let accounts: Vec<_> = pods(&makers)
            .into_iter()
            .map(|(_, pod)| text(&pod["serviceAccountName"]))
            .collect();
        assert_eq!(accounts, [account]);
    }
    Ok(())
}

/// cert-manager is asked for what `groundplane certs` would make: the name that is called, and the caller's URI.
#[tokio::test]
async fn cert_manager_is_asked_for_the_right_names() -> Result<()> {
    let [.., manager] = values();
    let objects = objects(&manager).await?;
    let leaves: Vec<_> = of_kind(&objects, "Certificate")
        .into_iter()
        .filter(|certificate| certificate["spec"]["isCA"] != true)
        .collect();
    assert_eq!(leaves.len(), 5);
    for leaf in leaves {
        let name = text(&leaf["metadata"]["name"]);
        let service = name.trim_start_matches("groundplane-");
        let spec = &leaf["spec"];
        assert_eq!(
            spec["dnsNames"],
            json!([format!("{name}.{GATEWAY_NAMESPACE}.svc")])
        );
        assert_eq!(spec["uris"], json!([format!("spiffe://rack1.example/{service}")]));
        assert_eq!(spec["secretName"], format!("{name}-tls"));
        assert_eq!(spec["issuerRef"]["name"], "groundplane-ca");
    }
    Ok(())
}
