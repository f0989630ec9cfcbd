//! The chart: it lints, refuses nonsense, asks for no right that the gateway does not use, and the real API server takes every
//! object of it. The compose file is held to the same names.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use groundplane_tests::kube_api::{GATEWAY_NAMESPACE, GATEWAY_SERVICE_ACCOUNT, User};
use groundplane_tests::scratch::workspace_root;
use groundplane_tests::{KubeApi, chart};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// The values that the chart is looked at with: its own, and those of its folder `ci`.
fn values() -> [Vec<String>; 6] {
    let file = |name: &str| {
        vec![
            "-f".to_owned(),
            chart::folder().join("ci").join(name).display().to_string(),
        ]
    };
    let set = |values: &str| vec!["--set".to_owned(), values.to_owned()];
    [
        Vec::new(),
        file("services-values.yaml"),
        file("equinix-values.yaml"),
        set("mode=services,tls.mode=off,insecure=true,persistence.enabled=false,hostNetwork=true"),
        set("mode=services"),
        file("cert-manager-values.yaml"),
    ]
}

/// The objects of the chart with these values.
async fn objects(values: &[String]) -> Result<Vec<Value>> {
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let objects = chart::render(&values).await?;
    ensure!(objects.len() > 4, "only {} objects", objects.len());
    Ok(objects)
}

/// The objects of the chart with this `--set`.
async fn objects_set(values: &str) -> Result<Vec<Value>> {
    objects(&["--set".to_owned(), values.to_owned()]).await
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The workloads, each by the service that it runs.
fn workloads(objects: &[Value]) -> BTreeMap<String, &Value> {
    let workloads = objects
        .iter()
        .filter(|object| object["kind"] == "Deployment" || object["kind"] == "StatefulSet");
    workloads
        .map(|workload| (text(&container(workload)["args"][0]).to_owned(), workload))
        .collect()
}

fn pod(workload: &Value) -> &Value {
    &workload["spec"]["template"]["spec"]
}

fn container(workload: &Value) -> &Value {
    &pod(workload)["containers"][0]
}

/// The words of a text that are variables of ours.
fn variables(text: &str) -> BTreeSet<String> {
    let words = text.split(|character: char| !character.is_ascii_uppercase() && character != '_');
    words
        .filter(|word| word.starts_with("GROUNDPLANE_"))
        .map(str::to_owned)
        .collect()
}

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
async fn nonsense_is_refused_with_its_place_and_the_way_out() -> Result<()> {
    let refused = [
        ("mode=many", "/mode"),
        ("gateway.replicas=-1", "/gateway/replicas"),
        ("ports.admin=70000", "/ports/admin"),
        ("persistence.size=lots", "/persistence/size"),
        ("telemetry.traceRatio=2", "/telemetry/traceRatio"),
        ("gateway.replica=2", "replica"),
        ("config.pool[0].name=x", "pool"),
        ("config.driver=cloudy", "/config/driver"),
        ("config.pools[0].name=x", "addresses"),
        (
            "config.pools[0].name=x,config.pools[0].addresses[0]=everything",
            "/config/pools/0/addresses/0",
        ),
        ("config.equinix.apiToken=hunter2", "/config/equinix"),
        ("config.ipam.cooldown=soon", "/config/ipam/cooldown"),
        (
            "terminationGracePeriodSeconds=5",
            "/terminationGracePeriodSeconds",
        ),
        ("mode=services,tls.mode=off", "insecure=true"),
        ("mode=services,tls.mode=secrets", "tls.secrets.ipam"),
        ("tls.mode=maybe", "/tls/mode"),
        ("tls.validity=long", "/tls/validity"),
        ("tls.trustDomain=A B", "/tls/trustDomain"),
        ("config.driver=equinix", "config.equinix.apiTokenFile"),
        ("config.driver=cherry", "config.cherry.apiTokenFile"),
        ("config.cherry.projectId=abc", "/config/cherry/projectId"),
    ];
    for (values, reason) in refused {
        let said = objects_set(values)
            .await
            .err()
            .with_context(|| format!("{values} was accepted"))?;
        let said = format!("{said:#}");
        assert!(said.contains(reason), "{values}: {said}");
    }
    let accepted =
        "config.pools[0].name=x,config.pools[0].addresses[0]=192.0.2.0/24,config.ipam.cooldown=1h30m";
    objects_set(accepted).await.map(drop)
}

/// The sections of the schema, each as `--set` names it: `config.pools[0]`.
fn sections(path: &str, schema: &Value, found: &mut Vec<String>) {
    if let Some(properties) = schema["properties"].as_object() {
        found.push(path.to_owned());
        for (key, schema) in properties {
            sections(&format!("{path}.{key}"), schema, found);
        }
    } else if schema["items"].is_object() {
        sections(&format!("{path}[0]"), &schema["items"], found);
    }
}

/// Helm says so before anything is installed; groundplane itself would say so only from a pod that does not start.
#[tokio::test]
async fn a_misspelt_key_is_refused_in_every_section_of_the_configuration() -> Result<()> {
    let text = std::fs::read_to_string(chart::folder().join("values.schema.json"))?;
    let schema: Value = serde_json::from_str(&text)?;
    let mut found = Vec::new();
    sections("config", &schema["properties"]["config"], &mut found);
    ensure!(found.len() > 15, "only {found:?}");
    for section in found {
        let values = format!("{section}.mispelt=1");
        let said = objects_set(&values)
            .await
            .err()
            .with_context(|| format!("{values} was accepted"))?;
        let said = format!("{said:#}");
        assert!(said.contains("mispelt"), "{values}: {said}");
    }
    Ok(())
}

/// Every key of the configuration, with a value that it may have.
const EVERY_KEY: &str = "
cluster: a5e1
driver: static
services: {ipam: 'http://ipam:9471', eip: 'https://eip:9472', bgp: 'unix:/run/bgp', instances: 'http://[::1]:9474'}
pools:
  - name: public
    network: default
    addresses: [192.0.2.0/24, '2001:db8::/64', 198.51.100.7]
    exclude: [192.0.2.1-192.0.2.9]
    reserved: [192.0.2.10]
    priority: -1
    explicitOnly: true
    namespaces: [default]
    matchLabels: {team: a}
    useEdgeAddresses: true
ipam: {store: {kind: memory, path: ipam.redb}, cooldown: 1h30m}
static:
  machines:
    - name: n1
      providerId: static://n1
      hostname: n1.example.com
      addresses: [{type: InternalIP, address: 10.0.0.1}, {type: ExternalDNS, address: n1.example.com}]
      instanceType: big
      zone: rack1
      region: home
      labels: {example.com/rack: '1'}
  bgp:
    localAsn: 65000
    peers:
      - address: '2001:db8::1'
        asn: 4200000000
        localAsn: 65001
        passwordFile: /etc/groundplane/secrets/bgp/password
        port: 1179
        multihop: true
        sourceAddress: '2001:db8::2'
        nodeSelector: {rack: a}
equinix:
  apiTokenFile: /etc/groundplane/secrets/equinix/token
  projectId: p
  metro: sv
  facility: sv15
  baseUrl: http://127.0.0.1:9000/metal/v1
  pageSize: 250
  requestTimeout: 500ms
  maxConcurrency: 4
  bgp: {enabled: true, localAsn: 65000, passwordFile: /etc/groundplane/secrets/bgp/password}
cherry:
  apiTokenFile: /etc/groundplane/secrets/cherry/token
  projectId: 123456
  region: LT-Siauliai
  baseUrl: http://127.0.0.1:9000/v1
  pageSize: 250
  requestTimeout: 500ms
  maxConcurrency: 4
  bgp: {enabled: true}
remote:
  address: https://provider.example.com:9443
  insecure: false
  capabilities: [machines, addresses, bgp, endpoint]
  tls:
    caFile: /etc/groundplane/secrets/remote/ca.crt
    certificateFile: /etc/groundplane/secrets/remote/tls.crt
    keyFile: /etc/groundplane/secrets/remote/tls.key
    serverName: provider
  requestTimeout: 10s
  maxConcurrency: 16
  pageSize: 1000
endpoint:
  tag: api
  address: 192.0.2.200
  port: 6443
  nodePort: 7443
  nodeSelector: role=api
  healthCheckUseHostIp: true
  refresh: 30s
  rankStep: 250ms
  candidatesFile: /var/lib/groundplane/candidates.json
  service: kube-system/external
eip: {maxAge: 1m}
bgp: {refresh: 12h}
instances: {maxAge: 1m}
health:
  period: 500ms
  timeout: 800ms
  misses: 3
  recovery: 2
  dwell: 10s
  doubt: 10s
  probe:
    kind: https
    path: /readyz
    service: ''
    serverName: kubernetes
    caFile: /etc/groundplane/secrets/health/ca.crt
    certificateFile: /etc/groundplane/secrets/health/tls.crt
    keyFile: /etc/groundplane/secrets/health/tls.key
    tokenFile: /etc/groundplane/secrets/health/token
    insecureSkipVerify: false
gateway:
  kubeconfig: ''
  namespace: ''
  announcer: kube-vip
  metallb: {namespace: metallb-system, configMap: config, peerMode: frr, advertisement: bgp, holdTime: 30s}
  annotationPrefix: metal.equinix.com
  annotationFormats: [indexed, packet]
  annotations:
    localAsn: 'example.com/local-{{n}}'
    peerAsn: 'example.com/asn-{{n}}'
    peerIp: 'example.com/ip-{{n}}'
    srcIp: 'example.com/source-{{n}}'
    bgpPass: 'example.com/password-{{n}}'
    multihop: 'example.com/far-{{n}}'
    networkIpv4Private: example.com/network
    eipMetro: example.com/metro
    eipFacility: example.com/facility
  claimClassless: false
  loadBalancerClass: groundplane.dev/eip
  namespaces: [default]
  nodeSelector: role in (worker, edge)
  nodePrefix: node-
  bgpNodeSelector: '!bgp'
  bgpCleanup: false
  resync: 30s
  cloudResync: 5m
  nodeMonitorPeriod: 5s
  concurrency: 64
  writeTimeout: 10s
  refreshLabels: true
  controllers: {node: true, lifecycle: false, bgp: true, service: true}
  lifecycle: {maxDeleteFraction: 0.25, deleteWindow: 10m}
  reclaim: {mode: dry-run, grace: 2h, maxFraction: 0.25}
  rivals: warn
  maxPrefixes: 10
  lease: {name: groundplane-gateway, duration: 15s, retry: 2s}
";

/// Asserts that `value` has every key that the schema has.
fn assert_has_all(path: &str, schema: &Value, value: &Value) {
    for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
        assert!(!value[key].is_null(), "{path}.{key} is missing");
        assert_has_all(&format!("{path}.{key}"), schema, &value[key]);
    }
    if schema["items"].is_object() {
        assert_has_all(&format!("{path}[]"), &schema["items"], &value[0]);
    }
}

/// What the schema is stricter about than groundplane would be a feature that the chart denies.
#[tokio::test]
async fn every_key_of_the_configuration_is_accepted() -> Result<()> {
    let text = std::fs::read_to_string(chart::folder().join("values.schema.json"))?;
    let schema: Value = serde_json::from_str(&text)?;
    let config: Value = serde_saphyr::from_str(EVERY_KEY)?;
    assert_has_all("config", &schema["properties"]["config"], &config);
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("values.yaml");
    std::fs::write(&file, json!({ "config": config }).to_string())?;
    let objects = objects(&["-f".to_owned(), file.display().to_string()]).await?;
    let maps = of_kind(&objects, "ConfigMap");
    let rendered: Value = serde_saphyr::from_str(text_of(maps[0]))?;
    for section in ["static", "equinix", "cherry", "pools"] {
        assert_eq!(rendered[section], config[section], "{section}");
    }
    Ok(())
}

/// The configuration file in its `ConfigMap`.
fn text_of(map: &Value) -> &str {
    text(&map["data"]["groundplane.yaml"])
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

/// What MetalLB is told by, and only where MetalLB is told, in its own namespace. The end-to-end tests run under exactly this.
#[tokio::test]
async fn only_an_announcer_of_metallb_may_write_metallbs_objects() -> Result<()> {
    for (announcer, expected) in [
        ("kube-vip", &[][..]),
        (
            "metallb",
            &[
                "metallb.io ipaddresspools,bgppeers,bgpadvertisements,l2advertisements  list,create,patch,delete",
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
    let file = |objects: &[Value]| {
        let map = of_kind(objects, "ConfigMap");
        text(&map[0]["data"]["groundplane.yaml"]).to_owned()
    };
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

/// The pods of every kind of object that has some, each with its object's name.
fn pods(objects: &[Value]) -> Vec<(&str, &Value)> {
    objects
        .iter()
        .filter_map(|object| Some((text(&object["metadata"]["name"]), pod_of(object)?)))
        .collect()
}

fn pod_of(object: &Value) -> Option<&Value> {
    match text(&object["kind"]) {
        "Deployment" | "StatefulSet" | "DaemonSet" | "Job" => Some(pod(object)),
        "CronJob" => Some(pod(&object["spec"]["jobTemplate"])),
        _ => None,
    }
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

/// Agents run on the machines of the control plane whatever is wrong with those, reach the API server of their own machine, and may
/// read nodes and the API's own slices, tell events, and probe: no more.
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
