use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tonic::Code;
use tonic_types::StatusExt as _;

use super::*;
use crate::config::Config;
use crate::testing::{World, settled_node};

fn api(world: &World) -> GatewayApi {
    GatewayApi {
        gateway: Arc::clone(&world.gateway),
    }
}

fn service(ip: &str) -> Value {
    json!({
        "metadata": { "name": "web", "namespace": "default", "uid": "u1" },
        "spec": { "type": "LoadBalancer", "ipFamilies": ["IPv4"] },
        "status": { "loadBalancer": { "ingress": if ip.is_empty() { json!([]) } else { json!([{ "ip": ip }]) } } },
    })
}

async fn explain(world: &World, kind: &str, name: &str) -> Result<pb::ExplainObjectResponse, Status> {
    let request = pb::ExplainObjectRequest {
        kind: kind.to_owned(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
    };
    api(world)
        .explain_object(Request::new(request))
        .await
        .map(Response::into_inner)
}

#[tokio::test]
async fn a_service_without_an_address_is_explained_step_by_step() {
    let world = World::new(Config::default());
    world.service(service(""));
    let answer = explain(&world, "service", "web").await.unwrap();
    let titles: Vec<_> = answer
        .steps
        .iter()
        .map(|step| (step.title.as_str(), step.ok))
        .collect();
    assert_eq!(
        titles,
        [
            ("exists", true),
            ("managed by groundplane", true),
            ("request", true),
            ("finalizer", false),
            ("address", false),
            ("announcer", true),
            ("status", false),
        ]
    );
    assert!(answer.summary.starts_with("finalizer: "), "{}", answer.summary);
    assert_eq!(answer.steps[4].detail, "no pool has a free address");
}

#[tokio::test]
async fn what_is_not_ours_is_said_to_be_anothers() {
    let world = World::new(Config::default());
    let mut foreign = service("192.0.2.7");
    foreign["spec"]["loadBalancerClass"] = json!("example.com/other");
    world.service(foreign);
    let answer = explain(&world, "service", "web").await.unwrap();
    assert_eq!(
        answer.summary,
        "managed by groundplane: its class example.com/other is another controller's"
    );
}

#[tokio::test]
async fn what_does_not_exist_is_not_found() {
    let world = World::new(Config::default());
    assert_eq!(
        explain(&world, "service", "nobody").await.unwrap_err().code(),
        Code::NotFound
    );
    assert_eq!(
        explain(&world, "node", "nobody").await.unwrap_err().code(),
        Code::NotFound
    );
    assert_eq!(
        explain(&world, "pod", "nobody").await.unwrap_err().code(),
        Code::InvalidArgument
    );
}

#[tokio::test]
async fn a_node_is_explained_by_its_machine() {
    let world = World::new(Config::default());
    world.node(settled_node("n", "True"));
    let answer = explain(&world, "node", "n").await.unwrap();
    assert_eq!(
        answer.summary,
        "machine: MACHINE_NOT_FOUND: scripted MACHINE_NOT_FOUND"
    );
}

/// The explanation asks what the controller asks: with one address a family, as kubelet was given them.
#[tokio::test]
async fn a_node_is_explained_by_the_question_that_the_controller_asks() {
    let world = World::new(Config::default());
    let mut node = settled_node("n", "True");
    node["metadata"]["annotations"] =
        json!({ "alpha.kubernetes.io/provided-node-ip": "10.0.0.1,2001:db8::1" });
    world.node(node);
    explain(&world, "node", "n").await.unwrap();
    assert_eq!(world.instances.asked()[0].addresses, ["10.0.0.1", "2001:db8::1"]);
}

#[tokio::test]
async fn the_overview_counts_and_tells_who_is_away() {
    let world = World::new(Config::default());
    world.service(service(""));
    world.node(settled_node("n", "True"));
    let answer = api(&world)
        .overview(Request::new(pb::OverviewRequest {}))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (
            answer.services,
            answer.services_with_address,
            answer.nodes,
            answer.nodes_initialized
        ),
        (1, 0, 1, 1)
    );
    assert!(answer.leader);
    assert_eq!(
        (answer.driver.as_str(), answer.cluster.as_str()),
        ("static", "cluster-1")
    );
    assert_eq!(answer.dependencies["ipam"], "ready");
    assert_eq!(
        answer.dependencies["bgp"],
        "NOT_IMPLEMENTED: scripted NOT_IMPLEMENTED"
    );
}

#[tokio::test]
async fn an_owner_that_the_cloud_does_not_tell_is_the_service_with_that_address() {
    let world = World::new(Config::default());
    world.service(service("192.0.2.7"));
    world.eip.hold("default/web", "u1", "192.0.2.7");
    let request = pb::ListAddressesRequest::default();
    let answer = api(&world)
        .list_addresses(Request::new(request))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(answer.addresses.len(), 1);
    assert_eq!(answer.addresses[0].owner.as_ref().unwrap().name, "web");
}

#[tokio::test]
async fn only_the_store_that_is_there_can_be_accepted_and_only_by_the_leader() {
    let world = World::new(Config::default());
    world.ipam.store("store-2", 1);
    let accept = |store: &str| {
        let request = pb::AcceptStoreRequest {
            store_id: store.to_owned(),
        };
        let api = api(&world);
        async move { api.accept_store(Request::new(request)).await.map(drop) }
    };
    assert_eq!(accept("").await.unwrap_err().code(), Code::InvalidArgument);
    let other = accept("store-3").await.unwrap_err();
    assert_eq!(other.code(), Code::FailedPrecondition);
    assert_eq!(
        other.get_details_error_info().unwrap().metadata["store_id"],
        "store-2"
    );
    crate::adoption::start(&world.gateway, &world.context);
    accept("store-2").await.unwrap();
    world.leads.send_replace(None);
    assert_eq!(accept("store-2").await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn without_an_endpoint_there_is_nothing_to_tell() {
    let world = World::new(Config::default());
    let answer = api(&world)
        .get_endpoint_status(Request::new(pb::GetEndpointStatusRequest {}))
        .await;
    assert_eq!(answer.unwrap_err().code(), Code::FailedPrecondition);
}

fn with_endpoint(node_port: Option<u16>, node_selector: &str) -> World {
    World::new(Config {
        external: Some(crate::config::ExternalService {
            namespace: "kube-system".to_owned(),
            name: "external".to_owned(),
            address: None,
            port: Some(443),
            node_port,
            node_selector: node_selector.to_owned(),
            ip_mode: crate::config::IpMode::default(),
        }),
        ..Config::default()
    })
}

fn control_node(world: &World, name: &str, address: &str, role: &str, cordoned: bool) {
    world.node(json!({
        "metadata": { "name": name, "labels": { role: "" } },
        "spec": { "providerID": format!("cloud://{name}"), "unschedulable": cordoned },
        "status": { "addresses": [{ "type": "InternalIP", "address": address }] },
    }));
}

/// E74: as agents see it: the port is the one of `default/kubernetes`, of whoever is not in it that of the others; and cordoned is what
/// the node says of itself, whether the taint is there by now or not.
#[tokio::test]
async fn a_gateway_sees_candidates_as_agents_do() {
    let world = with_endpoint(None, "role in (api)");
    for (name, address, cordoned) in [("a", "10.0.0.1", false), ("b", "10.0.0.2", true)] {
        world.node(json!({
            "metadata": { "name": name, "labels": { "role": "api" } },
            "spec": { "providerID": format!("cloud://{name}"), "unschedulable": cordoned },
            "status": { "addresses": [{ "type": "InternalIP", "address": address }] },
        }));
    }
    control_node(
        &world,
        "c",
        "10.0.0.3",
        "node-role.kubernetes.io/control-plane",
        false,
    );
    let slice = json!({
        "metadata": { "name": "kubernetes", "namespace": "default", "uid": "s1", "resourceVersion": "1" },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": ["10.0.0.1"] }],
        "ports": [{ "name": "https", "port": 8443 }],
    });
    world
        .gateway
        .servers
        .apply(serde_json::from_value(slice).unwrap());
    let answer = api(&world)
        .get_endpoint_status(Request::new(pb::GetEndpointStatusRequest {}))
        .await
        .unwrap()
        .into_inner();
    let seen: Vec<_> = answer
        .candidates
        .iter()
        .map(|one| (one.node.as_str(), one.address.as_str(), one.cordoned))
        .collect();
    assert_eq!(
        seen,
        [("a", "10.0.0.1:8443", false), ("b", "10.0.0.2:8443", true)]
    );
}

/// A gateway tells who holds the endpoint and who could, by name, and probes nobody.
#[tokio::test]
async fn a_gateway_knows_who_holds_the_endpoint() {
    let world = with_endpoint(Some(7443), "");
    control_node(
        &world,
        "a",
        "10.0.0.1",
        "node-role.kubernetes.io/control-plane",
        false,
    );
    control_node(&world, "b", "10.0.0.1", "worker", false);
    let answer = api(&world)
        .get_endpoint_status(Request::new(pb::GetEndpointStatusRequest {}))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (answer.address.as_str(), answer.holder.as_str()),
        ("203.0.113.9:443", "a")
    );
    assert_eq!(answer.candidates.len(), 1);
    assert_eq!(answer.candidates[0].address, "10.0.0.1:7443");
    assert_eq!(answer.candidates[0].probe, None);
    assert_eq!(answer.problem, "");
}
