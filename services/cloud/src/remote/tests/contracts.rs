//! Each built-in driver keeps its contracts through a provider, as it does directly.

use groundplane_core::ProviderId;
use groundplane_runtime::Context;
use groundplane_runtime::config::Document;
use groundplane_sandbox::{ProjectOptions, ReservationOptions, Sandbox, TestCloud};

use super::super::{CallMetrics, Remote};
use crate::config::{Capability, RemoteConfig};
use crate::testing::loopback::Loopback;
use crate::testing::{
    FakeCloud, FakeEndpoint, bgp_fabric_contract, elastic_ips_contract, endpoint_ips_contract,
    machine_source_contract, sandboxed,
};
use crate::{AddressBackend, Cloud, CloudConfig, EndpointSelector, connect};

/// The driver `remote`, of a provider of `cloud`.
async fn through_loopback(cloud: Cloud, context: &Context) -> Cloud {
    let selector = cloud.endpoint.as_ref().map(|endpoint| endpoint.selector.clone());
    let target = Loopback::new(cloud, None, &context.tasks)
        .serve(context)
        .await
        .unwrap();
    let config = RemoteConfig {
        page_size: 2,
        ..RemoteConfig::default()
    };
    let metrics = context.metrics.register(CallMetrics::register);
    let remote = Remote::new(&config, &target, None, metrics).unwrap();
    remote.cloud(&Capability::ALL, selector.as_ref())
}

async fn machines(cloud: &Cloud, count: usize, absent: &ProviderId) {
    let source = cloud.machines.as_ref().unwrap();
    // Before the first answer any id with a scheme may be its own: the contract begins with a list.
    machine_source_contract(source.as_ref(), count, absent).await;
}

async fn addresses(cloud: &Cloud) {
    let AddressBackend::Cloud(ips) = &cloud.addresses else {
        panic!("no addresses");
    };
    elastic_ips_contract(ips.as_ref()).await;
}

async fn bgp(cloud: &Cloud, machine: &ProviderId, absent: &ProviderId) {
    let fabric = cloud.bgp.as_ref().unwrap();
    bgp_fabric_contract(fabric.as_ref(), machine, absent).await;
}

#[tokio::test]
async fn the_fake_keeps_the_contracts_through_a_provider() {
    let (fake, context) = (FakeCloud::new(), Context::new());
    let machine = fake.add_machine("m1", &["10.0.0.1".parse().unwrap()]).unwrap();
    for name in ["m2", "m3"] {
        fake.add_machine(name, &["10.0.0.2".parse().unwrap()]).unwrap();
    }
    let absent = "fake://gone".parse().unwrap();
    let cloud = through_loopback(fake.cloud(), &context).await;
    machines(&cloud, 3, &absent).await;
    addresses(&cloud).await;
    bgp(&cloud, &machine, &absent).await;
}

#[tokio::test]
async fn static_keeps_the_contracts_through_a_provider() {
    let text = "
driver: static
static:
  machines:
    - {name: a, addresses: [{type: InternalIP, address: 10.0.0.1}], labels: {rack: r1}}
    - {name: b, providerId: 'other://b'}
    - {name: c}
  bgp:
    localAsn: 64512
    peers:
      - {address: 10.0.0.254, asn: 64513, port: 1179, multihop: true, nodeSelector: {}}
      - {address: 10.0.0.253, asn: 64513}
";
    let context = Context::new();
    let document = Document::parse("groundplane.yaml", text).unwrap();
    let config: CloudConfig = document.decode().unwrap();
    let direct = connect(&config, &context).unwrap();
    let cloud = through_loopback(direct.clone(), &context).await;
    let (machine, absent) = ("static://a".parse().unwrap(), "static://z".parse().unwrap());
    machines(&cloud, 3, &absent).await;
    let source = cloud.machines.as_ref().unwrap();
    assert!(!source.proves_absence(), "a table by hand proves nothing");
    assert!(source.accepts(&"other://b".parse().unwrap()));
    bgp(&cloud, &machine, &absent).await;
    let query = crate::NeighborQuery {
        machine,
        node: "a".to_owned(),
        labels: std::collections::BTreeMap::new(),
        addresses: vec!["10.0.0.1".parse().unwrap()],
    };
    let (there, here) = (cloud.bgp.unwrap(), direct.bgp.unwrap());
    let told = there.neighbors(&query).await.unwrap();
    let known = here.neighbors(&query).await.unwrap();
    assert_eq!(
        format!("{told:?}"),
        format!("{known:?}"),
        "port, source and multihop come through"
    );
}

#[tokio::test]
async fn equinix_keeps_the_contracts_through_a_provider() {
    let sandbox = Sandbox::start().await;
    let project = sandbox.project(ProjectOptions::default());
    let devices = project.add_devices(3);
    let files = tempfile::tempdir().unwrap();
    project.add_reservation(ReservationOptions {
        tags: vec!["api".to_owned()],
        ..ReservationOptions::default()
    });
    let config = sandboxed::equinix(&project, files.path());
    let context = Context::new();
    let cloud = through_loopback(connect(&config, &context).unwrap(), &context).await;
    let absent = "equinixmetal://00000000-0000-4000-8000-000000000000"
        .parse()
        .unwrap();
    let id = |index: usize| -> ProviderId { format!("equinixmetal://{}", devices[index]).parse().unwrap() };
    machines(&cloud, 3, &absent).await;
    assert!(
        cloud
            .machines
            .as_ref()
            .unwrap()
            .accepts(&"packet://x".parse().unwrap())
    );
    addresses(&cloud).await;
    bgp(&cloud, &id(0), &absent).await;
    let endpoint = cloud.endpoint.unwrap();
    let missing = EndpointSelector::Tag("nobody".to_owned());
    endpoint_ips_contract(
        endpoint.ips.as_ref(),
        &endpoint.selector,
        &missing,
        [&id(0), &id(1)],
        &absent,
    )
    .await;
}

/// E90
#[tokio::test]
async fn cherry_keeps_the_contracts_through_a_provider() {
    let sandbox = TestCloud::start(ProjectOptions::cherry()).await;
    let project = sandbox.project();
    project.add_devices(3);
    project.add_reservation(ReservationOptions::tagged(["api=a"]));
    let config = CloudConfig {
        endpoint: Some(EndpointSelector::Tag("api=a".to_owned())),
        ..Document::parse("groundplane.yaml", &sandbox.cherry_config())
            .unwrap()
            .decode()
            .unwrap()
    };
    let context = Context::new();
    let cloud = through_loopback(connect(&config, &context).unwrap(), &context).await;
    let absent = "cherryservers://999999999".parse().unwrap();
    let devices = project.devices();
    let id = |index: usize| -> ProviderId {
        format!("cherryservers://{}", devices[index].number)
            .parse()
            .unwrap()
    };
    machines(&cloud, 3, &absent).await;
    addresses(&cloud).await;
    bgp(&cloud, &id(0), &absent).await;
    let endpoint = cloud.endpoint.unwrap();
    endpoint.ips.endpoint(&endpoint.selector).await.unwrap();
    assert!(endpoint.ips.moves_atomically());
    let missing = EndpointSelector::Tag("api=b".to_owned());
    endpoint_ips_contract(
        endpoint.ips.as_ref(),
        &endpoint.selector,
        &missing,
        [&id(0), &id(1)],
        &absent,
    )
    .await;
}

#[tokio::test]
async fn an_endpoint_moves_through_a_provider_in_one_step_and_in_two() {
    for atomic in [true, false] {
        let (fake, context) = (FakeCloud::new(), Context::new());
        let endpoint = FakeEndpoint::new("192.0.2.1".parse().unwrap(), atomic);
        let [one, two] = ["m1", "m2"].map(|name| fake.add_machine(name, &[]).unwrap());
        endpoint.add_machine(&one);
        endpoint.add_machine(&two);
        let cloud = Cloud {
            endpoint: Some(endpoint.configured()),
            ..fake.cloud()
        };
        let remote = through_loopback(cloud, &context).await.endpoint.unwrap();
        assert!(
            !remote.ips.moves_atomically(),
            "before the first answer, two steps"
        );
        let missing = EndpointSelector::Address("192.0.2.99".parse().unwrap());
        remote.ips.endpoint(&remote.selector).await.unwrap();
        assert_eq!(remote.ips.moves_atomically(), atomic);
        endpoint_ips_contract(
            remote.ips.as_ref(),
            &remote.selector,
            &missing,
            [&one, &two],
            &"fake://gone".parse().unwrap(),
        )
        .await;
    }
}
