//! Values: nonsense is refused with its place, and every key of the configuration is accepted.

use anyhow::{Context as _, Result, ensure};
use groundplane_tests::chart;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::rendered::{objects, objects_set, of_kind, text_of};

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
        (
            "config.gateway.empty.tell[0]=status",
            "/config/gateway/empty/tell/0",
        ),
        ("cloudConfig.of=packet", "/cloudConfig/of"),
        ("cloudConfig.metallb.forms[0]=crd", "/cloudConfig/metallb/forms/0"),
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
  ipMode: VIP
  refresh: 30s
  rankStep: 250ms
  candidatesFile: /var/lib/groundplane/candidates.json
  service: kube-system/external
eip: {maxAge: 1m}
bgp: {refresh: 12h, families: [IPv4, IPv6]}
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
  empty: {tell: [spec.loadBalancerIP, example.com/addresses]}
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
