//! Rights: nobody has one that is not used.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use groundplane_tests::kube_api::{GATEWAY_NAMESPACE, GATEWAY_SERVICE_ACCOUNT};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::rendered::{container, list, objects, of_kind, pod, text};

/// What MetalLB is told by, and only where MetalLB is told, in its own namespace. The end-to-end tests run under exactly this.
#[tokio::test]
async fn only_an_announcer_of_metallb_may_write_metallbs_objects() -> Result<()> {
    for (announcer, expected) in [
        ("kube-vip", &[][..]),
        (
            "metallb",
            &[
                "metallb.io ipaddresspools,bgppeers,bgpadvertisements,l2advertisements  list,create,patch,delete",
                "metallb.io configurationstates  list",
                " secrets  list,create,patch,delete",
            ],
        ),
        (
            "metallb-configmap",
            &[" configmaps  create", " configmaps config get,patch"],
        ),
    ] {
        let announcer = format!("config.gateway.announcer={announcer}");
        let there = "config.gateway.metallb.namespace=elsewhere";
        let arguments = ["--set", &announcer, "--set", there].map(str::to_owned);
        let objects = objects(&arguments).await?;
        let roles = of_kind(&objects, "Role");
        let roles = roles
            .iter()
            .filter(|role| role["metadata"]["namespace"] == "elsewhere");
        let join = |value: &Value| list(value).iter().map(text).collect::<Vec<_>>().join(",");
        let granted: Vec<String> = roles
            .flat_map(|role| list(&role["rules"]))
            .map(|rule| {
                ["apiGroups", "resources", "resourceNames", "verbs"]
                    .map(|part| join(&rule[part]))
                    .join(" ")
            })
            .collect();
        assert_eq!(granted, expected, "{announcer}");
    }
    Ok(())
}

#[tokio::test]
async fn the_gateway_may_do_what_it_does_and_no_more() -> Result<()> {
    let mut rights = BTreeSet::new();
    let objects = objects(&[]).await?;
    for role in of_kind(&objects, "ClusterRole")
        .into_iter()
        .chain(of_kind(&objects, "Role"))
    {
        for rule in list(&role["rules"]) {
            for group in list(&rule["apiGroups"]) {
                for resource in list(&rule["resources"]) {
                    for verb in list(&rule["verbs"]) {
                        let only = list(&rule["resourceNames"])
                            .iter()
                            .map(text)
                            .collect::<Vec<_>>()
                            .join(",");
                        let right = [
                            text(&role["kind"]),
                            text(group),
                            text(resource),
                            &only,
                            text(verb),
                        ];
                        assert!(!right.contains(&"*"), "a wildcard: {right:?}");
                        rights.insert(right.join(" "));
                    }
                }
            }
        }
    }
    let expected = [
        "ClusterRole  events  create",
        "ClusterRole  events  patch",
        "ClusterRole  namespaces kube-system get",
        "ClusterRole  nodes  delete",
        "ClusterRole  nodes  get",
        "ClusterRole  nodes  list",
        "ClusterRole  nodes  patch",
        "ClusterRole  nodes  watch",
        "ClusterRole  nodes/status  patch",
        "ClusterRole  services  get",
        "ClusterRole  services  list",
        "ClusterRole  services  patch",
        "ClusterRole  services  watch",
        "ClusterRole  services/status  patch",
        "Role apps daemonsets cloud-provider-equinix-metal get",
        "Role apps deployments cloud-provider-equinix-metal,packet-cloud-controller-manager,cloud-provider-cherry get",
        "Role coordination.k8s.io leases  create",
        "Role coordination.k8s.io leases cloud-controller-manager get",
        "Role coordination.k8s.io leases groundplane-gateway get",
        "Role coordination.k8s.io leases groundplane-gateway patch",
    ];
    assert_eq!(rights.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    for binding in of_kind(&objects, "ClusterRoleBinding")
        .into_iter()
        .chain(of_kind(&objects, "RoleBinding"))
    {
        let subject = json!([{ "kind": "ServiceAccount", "name": GATEWAY_SERVICE_ACCOUNT, "namespace": GATEWAY_NAMESPACE }]);
        assert_eq!(binding["subjects"], subject);
    }
    Ok(())
}

/// Agents run on the machines of the control plane whatever is wrong with those, reach the API server of their own machine, and may
/// read nodes and the API's own slices, look for older controllers, tell events, and probe: no more.
#[tokio::test]
async fn agents_are_where_the_api_servers_are() -> Result<()> {
    let refused = objects(&["--set".to_owned(), "agent.enabled=true".to_owned()]).await;
    let error = format!("{:#}", refused.expect_err("there is no endpoint"));
    assert!(error.contains("config.endpoint.tag"), "{error}");
    let values = ["--set", "agent.enabled=true,config.endpoint.tag=api"].map(str::to_owned);
    let objects = objects(&values).await?;
    let sets = of_kind(&objects, "DaemonSet");
    assert_eq!(sets.len(), 1);
    let pod = pod(sets[0]);
    assert_eq!(pod["hostNetwork"], true);
    assert_eq!(pod["tolerations"], json!([{ "operator": "Exists" }]));
    let agent = container(sets[0]);
    let host = list(&agent["env"])
        .iter()
        .find(|variable| variable["name"] == "KUBERNETES_SERVICE_HOST");
    let host = host.context("no address of the API server")?;
    assert_eq!(host["valueFrom"]["fieldRef"]["fieldPath"], "status.hostIP");
    assert_eq!(
        agent["securityContext"]["capabilities"],
        json!({ "drop": ["ALL"] })
    );
    let roles = of_kind(&objects, "ClusterRole");
    let role = roles
        .iter()
        .find(|role| role["metadata"]["name"] == "groundplane-agent")
        .context("no role")?;
    assert_eq!(
        role["rules"],
        json!([
            { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"] },
            { "apiGroups": [""], "resources": ["events"], "verbs": ["create"] },
            { "nonResourceURLs": ["/readyz"], "verbs": ["get"] },
        ])
    );
    let roles = of_kind(&objects, "Role");
    let looks = |who: &str| {
        let name = format!("groundplane-{who}rivals");
        let mut found = roles.iter().filter(|role| role["metadata"]["name"] == *name);
        found
            .next()
            .map(|role| (&role["metadata"]["namespace"], &role["rules"]))
    };
    let rivals = looks("agent-").context("no role for looking for older controllers")?;
    assert_eq!(Some(rivals), looks("gateway-"), "as the gateway looks");
    let role = roles
        .iter()
        .find(|role| role["metadata"]["name"] == "groundplane-agent-events")
        .context("no role for the Service that events are about")?;
    assert_eq!(
        role["rules"],
        json!([{
            "apiGroups": [""], "resources": ["services"],
            "resourceNames": ["groundplane-kubernetes-external"], "verbs": ["get"],
        }])
    );
    Ok(())
}
