//! The service in this process, with the cloud in a box behind the `equinix` driver, and with the table of the `static` driver.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code outside of test functions"
)]

use std::num::NonZeroU32;

use groundplane_bgp::{Config, start};
use groundplane_cloud::testing::{FakeCloud, Operation};
use groundplane_cloud::{BgpProject, Cloud, CloudConfig, Neighbors, Peer, StaticBgp, StaticConfig, connect};
use groundplane_core::{ErrorKind, Family, Prefix};
use groundplane_proto::FILE_DESCRIPTOR_SET;
use groundplane_proto::bgp::v1 as proto;
use groundplane_proto::bgp::v1::bgp_service_client::BgpServiceClient;
use groundplane_runtime::Context;
use groundplane_runtime::config::parse;
use groundplane_runtime::grpc::{Channel, RpcError, Server};
use groundplane_sandbox::{
    Action, BgpStatus, DeviceId, DeviceOptions, FaultRule, Project, ProjectOptions, TestCloud,
};
use pretty_assertions::assert_eq;

const ENABLE: (&str, &str) = ("POST", "/projects/{pid}/bgp-configs");
const CREATE: (&str, &str) = ("POST", "/devices/{id}/bgp/sessions");
const NEIGHBORS: (&str, &str) = ("GET", "/devices/{id}/bgp/neighbors");
const PASSWORD: &str = "Secret1234567";

/// A running service, and its client.
#[derive(Clone)]
struct Bgp {
    context: Context,
    client: BgpServiceClient<Channel>,
}

impl Bgp {
    async fn start(config: &CloudConfig) -> Self {
        let context = Context::new();
        Self::over(connect(config, &context).unwrap(), context).await
    }

    async fn over(cloud: Cloud, context: Context) -> Self {
        Self::speaking(&[Family::V4], cloud, context).await
    }

    async fn speaking(families: &[Family], cloud: Cloud, context: Context) -> Self {
        let config = Config {
            families: families.to_vec(),
            ..Config::default()
        };
        let routes = start(config, cloud, &context).await.unwrap();
        let server = Server::new("bgp", &context).routes(routes);
        let channel = server.within(FILE_DESCRIPTOR_SET).await.unwrap();
        Self {
            context,
            client: BgpServiceClient::new(channel),
        }
    }

    async fn project(&self) -> Result<proto::EnsureProjectResponse, RpcError> {
        self.project_now(false).await
    }

    async fn project_now(&self, fresh: bool) -> Result<proto::EnsureProjectResponse, RpcError> {
        let answer = self
            .client
            .clone()
            .ensure_project(proto::EnsureProjectRequest { fresh })
            .await;
        Ok(answer.map_err(RpcError::from)?.into_inner())
    }

    async fn machine(
        &self,
        request: proto::EnsureMachineRequest,
    ) -> Result<proto::EnsureMachineResponse, RpcError> {
        Ok(self
            .client
            .clone()
            .ensure_machine(request)
            .await
            .map_err(RpcError::from)?
            .into_inner())
    }
}

fn machine(device: DeviceId) -> proto::EnsureMachineRequest {
    proto::EnsureMachineRequest {
        provider_id: format!("equinixmetal://{device}"),
        node: "n1".to_owned(),
        ..proto::EnsureMachineRequest::default()
    }
}

/// A cloud with one project.
struct World {
    project: Project,
    cloud: TestCloud,
}

impl World {
    async fn new() -> Self {
        Self::with(ProjectOptions::default()).await
    }

    async fn with(options: ProjectOptions) -> Self {
        let cloud = TestCloud::start(options).await;
        let project = cloud.project().clone();
        Self { project, cloud }
    }

    fn config(&self) -> CloudConfig {
        let mut config: CloudConfig = parse("cloud", &self.cloud.config()).unwrap();
        config.equinix.request_timeout = std::time::Duration::from_secs(2);
        config
    }

    async fn process(&self) -> Bgp {
        Bgp::start(&self.config()).await
    }

    async fn process_speaking(&self, families: &[Family]) -> Bgp {
        let context = Context::new();
        let cloud = connect(&self.config(), &context).unwrap();
        Bgp::speaking(families, cloud, context).await
    }

    /// The families of all sessions.
    fn families(&self) -> Vec<Family> {
        let sessions = self.project.sessions();
        sessions.iter().map(|session| session.family).collect()
    }

    fn device(&self) -> DeviceId {
        self.project.add_device(DeviceOptions::named("n1"))
    }

    fn calls(&self, mark: u64, (method, route): (&str, &str)) -> usize {
        self.project.journal().calls(mark, method, route).len()
    }
}

/// A project that speaks BGP already, as others set it up.
fn enabled() -> ProjectOptions {
    ProjectOptions {
        asn: Some(64_999),
        md5: Some(PASSWORD.to_owned()),
        ..ProjectOptions::default()
    }
}

/// E23: five hundred at once switch BGP on once.
#[tokio::test]
async fn a_project_is_switched_on_once() {
    let world = World::new().await;
    let bgp = world.process().await;
    for answer in futures::future::join_all((0..500).map(|_| bgp.project())).await {
        let answer = answer.unwrap();
        assert_eq!(
            (answer.enabled, answer.local_asn, answer.pending),
            (true, 65_000, false)
        );
    }
    assert_eq!(world.calls(0, ENABLE), 1);
    assert_eq!(world.process().await.project().await.unwrap().local_asn, 65_000);
    assert_eq!(world.calls(0, ENABLE), 1, "the next process finds it");
}

/// E24: what the project has is adopted: its AS number and its password, and nothing is written.
#[tokio::test]
async fn a_project_that_is_on_is_adopted() {
    let world = World::with(enabled()).await;
    let device = world.device();
    let bgp = world.process().await;
    assert_eq!(bgp.project().await.unwrap().local_asn, 64_999);
    let answer = bgp.machine(machine(device)).await.unwrap();
    assert!(
        answer
            .peers
            .iter()
            .all(|peer| peer.local_asn == 64_999 && peer.password == PASSWORD)
    );
    assert_eq!(world.calls(0, ENABLE), 0);
}

/// E25: a project whose BGP was switched off is switched on.
#[tokio::test]
async fn a_project_that_was_disabled_is_switched_on() {
    let world = World::with(enabled()).await;
    world.project.set_bgp_status(BgpStatus::Disabled);
    assert!(world.process().await.project().await.unwrap().enabled);
    assert_eq!(world.calls(0, ENABLE), 1);
}

#[tokio::test]
async fn a_switch_whose_answer_was_lost_is_not_thrown_twice() {
    let world = World::new().await;
    let bgp = world.process().await;
    world
        .project
        .fault(FaultRule::on(ENABLE.0, ENABLE.1, Action::DropAfter).first(1));
    assert!(bgp.project().await.unwrap_err().kind.is_retryable());
    assert!(bgp.project().await.unwrap().enabled);
    assert_eq!(world.calls(0, ENABLE), 1);
}

/// E29 (part): a machine gets its session, and its peers in the order of their addresses; asked again, nothing is called.
#[tokio::test]
async fn a_machine_gets_its_session_and_its_peers() {
    let world = World::with(enabled()).await;
    let device = world.device();
    world.project.set_peers(
        device,
        ["169.254.255.2".parse().unwrap(), "169.254.255.1".parse().unwrap()],
    );
    let bgp = world.process().await;
    let answer = bgp.machine(machine(device)).await.unwrap();
    let peers: Vec<_> = answer
        .peers
        .iter()
        .map(|peer| peer.peer_address.as_str())
        .collect();
    assert_eq!(peers, ["169.254.255.1", "169.254.255.2"]);
    let source = world.project.own_ipv4(device, false).unwrap().to_string();
    assert!(
        answer
            .peers
            .iter()
            .all(|peer| peer.source_address == source && peer.multihop)
    );
    assert_eq!((answer.pending, answer.unverified), (false, false));
    assert!(!answer.private_network.is_empty());
    assert_eq!(world.project.sessions().len(), 1);
    let mark = world.project.journal().mark();
    assert_eq!(bgp.machine(machine(device)).await.unwrap(), answer);
    assert_eq!(world.project.journal().total(mark), 0);
}

/// E27: a session that is there already, and that our list missed, is no error.
#[tokio::test]
async fn a_session_that_is_there_already_is_no_error() {
    let world = World::with(enabled()).await;
    let device = world.device();
    let bgp = world.process().await;
    // The list of sessions is read now; the other process makes the session behind its back.
    bgp.context.health.ready().await;
    world.process().await.machine(machine(device)).await.unwrap();
    bgp.machine(machine(device)).await.unwrap();
    assert_eq!((world.project.sessions().len(), world.calls(0, CREATE)), (1, 2));
}

/// With addresses of both families, as nodes of every ordinary machine of this cloud say, and peers of both.
fn dual(world: &World) -> proto::EnsureMachineRequest {
    let device = world.device();
    let peers = ["169.254.255.1", "169.254.255.2", "fd00::1", "fd00::2"];
    world
        .project
        .set_peers(device, peers.map(|peer| peer.parse().unwrap()));
    proto::EnsureMachineRequest {
        addresses: vec!["10.0.0.1".to_owned(), "2001:db8::1".to_owned()],
        ..machine(device)
    }
}

fn addresses(answer: &proto::EnsureMachineResponse) -> Vec<&str> {
    let peers = answer.peers.iter();
    peers.map(|peer| peer.peer_address.as_str()).collect()
}

/// E17, E29: a machine speaks BGP in the families that are asked for and that it has: in IPv4 alone, unless more is asked for.
#[tokio::test]
async fn sessions_are_of_the_families_that_are_asked_for() {
    let v4 = ["169.254.255.1", "169.254.255.2"];
    let v6 = ["fd00::1", "fd00::2"];
    for (asked, expected) in [
        (Config::default().families, v4.to_vec()),
        (vec![Family::V6], v6.to_vec()),
        (vec![Family::V6, Family::V4], [v4, v6].concat()),
    ] {
        let world = World::with(enabled()).await;
        let request = dual(&world);
        let answer = world
            .process_speaking(&asked)
            .await
            .machine(request)
            .await
            .unwrap();
        assert_eq!(addresses(&answer), expected);
        assert!(!answer.pending && !answer.unverified);
        let mut asked = asked;
        asked.sort();
        assert_eq!(world.families(), asked);
    }
    // A session that somebody else made tells its peers to nobody who does not ask for them.
    let world = World::with(enabled()).await;
    let request = dual(&world);
    let both = world.process_speaking(&[Family::V4, Family::V6]).await;
    both.machine(request.clone()).await.unwrap();
    assert_eq!(
        addresses(&world.process().await.machine(request).await.unwrap()),
        v4
    );
}

/// E17: a machine of one family is given no session in another, and one that has none of what is asked for is told so.
#[tokio::test]
async fn a_machine_of_one_family_gets_one_session() {
    for (addresses, expected) in [
        (&["10.0.0.1", "192.0.2.1"][..], &[Family::V4][..]),
        (&["2001:db8::1"], &[Family::V6]),
        // A node that says nothing yet: what every cloud of this kind has.
        (&[], &[Family::V4]),
    ] {
        let world = World::with(enabled()).await;
        let request = proto::EnsureMachineRequest {
            addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
            ..machine(world.device())
        };
        let bgp = world.process_speaking(&[Family::V4, Family::V6]).await;
        bgp.machine(request).await.unwrap();
        assert_eq!(world.families(), expected, "{addresses:?}");
    }
    let world = World::with(enabled()).await;
    let request = proto::EnsureMachineRequest {
        addresses: vec!["2001:db8::1".to_owned()],
        ..machine(world.device())
    };
    let error = world.process().await.machine(request).await.unwrap_err();
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorKind::Precondition, "NO_FAMILY")
    );
    assert!(error.message.contains("bgp.families"), "{}", error.message);
    assert_eq!(world.families(), []);
}

/// A machine whose IPv6 session is refused is told its IPv4 peers, and the cloud is not asked for the other one with each look; one that is
/// refused the first is told why.
#[tokio::test]
async fn a_family_that_is_refused_does_not_stand_in_the_way_of_the_other() {
    let world = World::with(enabled()).await;
    let request = dual(&world);
    let bgp = world.process_speaking(&[Family::V4, Family::V6]).await;
    world
        .project
        .fault(FaultRule::on(CREATE.0, CREATE.1, Action::status(422)).object("ipv6"));
    for _ in 0..3 {
        let answer = bgp.machine(request.clone()).await.unwrap();
        assert_eq!(addresses(&answer), ["169.254.255.1", "169.254.255.2"]);
    }
    assert_eq!((world.calls(0, CREATE), world.families()), (2, vec![Family::V4]));
    // Who insists is heard.
    world.project.clear_faults();
    let fresh = proto::EnsureMachineRequest {
        fresh: true,
        ..request
    };
    assert_eq!(bgp.machine(fresh).await.unwrap().peers.len(), 4);

    let world = World::with(enabled()).await;
    let request = dual(&world);
    let bgp = world.process_speaking(&[Family::V4, Family::V6]).await;
    world
        .project
        .fault(FaultRule::on(CREATE.0, CREATE.1, Action::status(422)).object("ipv4"));
    assert!(
        !bgp.machine(request.clone())
            .await
            .unwrap_err()
            .kind
            .is_retryable()
    );
    world.project.clear_faults();
    assert_eq!(bgp.machine(request).await.unwrap().peers.len(), 4);
}

/// A family that cannot be had at the moment is asked for again with the next look.
#[tokio::test]
async fn a_family_that_fails_for_a_moment_is_asked_for_again() {
    let world = World::with(enabled()).await;
    let request = dual(&world);
    let bgp = world.process_speaking(&[Family::V4, Family::V6]).await;
    world
        .project
        .fault(FaultRule::on(CREATE.0, CREATE.1, Action::status(503)).object("ipv6"));
    assert_eq!(bgp.machine(request.clone()).await.unwrap().peers.len(), 2);
    world.project.clear_faults();
    assert_eq!(bgp.machine(request).await.unwrap().peers.len(), 4);
}

/// What a node was told when other families were asked for is checked with the cloud, not believed.
#[tokio::test]
async fn known_peers_of_other_families_are_not_believed() {
    let world = World::with(enabled()).await;
    let request = dual(&world);
    let before = world
        .process_speaking(&[Family::V4, Family::V6])
        .await
        .machine(request.clone())
        .await
        .unwrap();
    let request = proto::EnsureMachineRequest {
        known_peers: before.peers,
        ..request
    };
    let answer = world.process().await.machine(request.clone()).await.unwrap();
    assert_eq!((answer.peers.len(), answer.unverified), (2, false));
    let request = proto::EnsureMachineRequest {
        known_peers: answer.peers,
        ..request
    };
    let both = world.process_speaking(&[Family::V4, Family::V6]).await;
    let answer = both.machine(request).await.unwrap();
    assert_eq!((answer.peers.len(), answer.unverified), (4, false));
}

/// E32: peers that are not known at first are pending, and come with a later call.
#[tokio::test]
async fn peers_that_come_later_are_pending_first() {
    let world = World::with(enabled()).await;
    let device = world.device();
    world.project.set_peers(device, []);
    let bgp = world.process().await;
    let answer = bgp.machine(machine(device)).await.unwrap();
    assert_eq!((answer.pending, answer.peers.len()), (true, 0));
    world
        .project
        .set_peers(device, ["169.254.255.1".parse().unwrap()]);
    let answer = bgp.machine(machine(device)).await.unwrap();
    assert_eq!((answer.pending, answer.peers.len()), (false, 1));
}

/// E30, E31 (part): what changed in the cloud is told to who asks anew.
#[tokio::test]
async fn changes_are_told_to_who_asks_anew() {
    let world = World::with(enabled()).await;
    let device = world.device();
    let bgp = world.process().await;
    assert_eq!(bgp.machine(machine(device)).await.unwrap().peers.len(), 2);
    world
        .project
        .set_peers(device, ["169.254.255.9".parse().unwrap()]);
    world.project.set_bgp_password(device, Some("Other12345678"));
    let fresh = proto::EnsureMachineRequest {
        fresh: true,
        ..machine(device)
    };
    let answer = bgp.machine(fresh).await.unwrap();
    let [peer] = &answer.peers[..] else {
        panic!("{answer:?}")
    };
    assert_eq!(
        (peer.peer_address.as_str(), peer.password.as_str()),
        ("169.254.255.9", "Other12345678")
    );
}

/// E85 (part): after a restart, nodes that know their peers cost one list of sessions and no call each.
#[tokio::test]
async fn known_peers_spare_the_cloud_a_call_for_each_machine() {
    let world = World::with(enabled()).await;
    let devices: Vec<_> = (0..50)
        .map(|number| {
            world
                .project
                .add_device(DeviceOptions::named(format!("n{number}")))
        })
        .collect();
    let bgp = world.process().await;
    let mut known = Vec::new();
    for device in devices {
        let answer = bgp.machine(machine(device)).await.unwrap();
        let request = proto::EnsureMachineRequest {
            known_peers: answer.peers.clone(),
            known_private_network: answer.private_network.clone(),
            ..machine(device)
        };
        known.push((request, answer));
    }
    let bgp = world.process().await;
    let mark = world.project.journal().mark();
    for (request, before) in known {
        let answer = bgp.machine(request).await.unwrap();
        assert_eq!(
            answer,
            proto::EnsureMachineResponse {
                unverified: true,
                ..before
            }
        );
    }
    // Each seed has a time within six hours: one that is due within this test is as good as impossible, ten are.
    assert!(world.calls(mark, NEIGHBORS) <= 1);
    assert!(
        world.project.journal().total(mark) <= 5,
        "{:?}",
        world.project.journal().counts(mark)
    );
    assert_eq!(world.project.journal().writes(mark), []);
}

/// What a node had before its session was made is not believed.
#[tokio::test]
async fn known_peers_of_a_machine_without_a_session_are_not_believed() {
    let world = World::with(enabled()).await;
    let device = world.device();
    let stale = proto::Peer {
        peer_address: "192.0.2.99".to_owned(),
        peer_asn: 1,
        local_asn: 2,
        ..proto::Peer::default()
    };
    let request = proto::EnsureMachineRequest {
        known_peers: vec![stale],
        ..machine(device)
    };
    let answer = world.process().await.machine(request).await.unwrap();
    assert!(
        !answer.unverified && answer.peers.iter().all(|peer| peer.peer_address != "192.0.2.99"),
        "{answer:?}"
    );
}

/// E20 (part): a cloud that fails takes no peers away, and is no proof that the machine is gone.
#[tokio::test]
async fn an_error_takes_no_peers_away() {
    let world = World::with(enabled()).await;
    let device = world.device();
    let bgp = world.process().await;
    let before = bgp.machine(machine(device)).await.unwrap();
    world.project.fault(FaultRule::new(Action::status(500)));
    assert_eq!(bgp.machine(machine(device)).await.unwrap(), before);
    let fresh = proto::EnsureMachineRequest {
        fresh: true,
        ..machine(device)
    };
    assert_eq!(bgp.machine(fresh).await.unwrap_err().kind, ErrorKind::Unavailable);
    world.project.clear_faults();
    assert_eq!(bgp.machine(machine(device)).await.unwrap(), before);
}

#[tokio::test]
async fn a_machine_that_does_not_exist_is_not_found() {
    let world = World::with(enabled()).await;
    let device = world.device();
    world.project.remove_device(device);
    let error = world.process().await.machine(machine(device)).await.unwrap_err();
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorKind::NotFound, "MACHINE_NOT_FOUND")
    );
}

#[tokio::test]
async fn the_overview_has_no_passwords() {
    let world = World::with(enabled()).await;
    let device = world.device();
    let bgp = world.process().await;
    bgp.machine(machine(device)).await.unwrap();
    let page = bgp
        .client
        .clone()
        .list_peers(proto::ListPeersRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!((page.machines.len(), page.machines[0].peers.len()), (1, 2));
    assert!(page.machines[0].peers.iter().all(|peer| peer.password.is_empty()));
    // What a route to the peers takes: by which router, from which address.
    let private = world.project.own_ipv4(device, false).unwrap();
    let network: Prefix = page.machines[0].private_network.parse().unwrap();
    let gateway: std::net::IpAddr = page.machines[0].gateway.parse().unwrap();
    for address in [private, gateway] {
        assert!(
            network.range().contains(Prefix::host(address).range()),
            "{network} {address}"
        );
    }
    assert_ne!(gateway, private);
    assert_eq!(page.machines[0].peers[0].source_address, private.to_string());
}

#[tokio::test]
async fn where_bgp_is_not_configured_it_is_off() {
    let bgp = Bgp::start(&CloudConfig::default()).await;
    bgp.context.health.ready().await;
    assert!(!bgp.project().await.unwrap().enabled);
    let request = proto::EnsureMachineRequest {
        provider_id: "static://n1".to_owned(),
        ..proto::EnsureMachineRequest::default()
    };
    let error = bgp.machine(request).await.unwrap_err();
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorKind::Precondition, "BGP_OFF")
    );
}

#[tokio::test]
async fn peers_of_the_table_follow_the_labels_of_the_node() {
    let table = r#"{ "localAsn": 65000, "peers": [
        { "address": "192.0.2.1", "asn": 65530 },
        { "address": "192.0.2.2", "asn": 65531, "nodeSelector": { "rack": "b" } }
    ] }"#;
    let table: StaticBgp = parse("table", table).unwrap();
    let fixed = StaticConfig {
        bgp: Some(table),
        ..StaticConfig::default()
    };
    let bgp = Bgp::start(&CloudConfig {
        fixed,
        ..CloudConfig::default()
    })
    .await;
    let mut request = proto::EnsureMachineRequest {
        provider_id: "static://n1".to_owned(),
        node: "n1".to_owned(),
        addresses: vec!["10.0.0.1".to_owned()],
        ..proto::EnsureMachineRequest::default()
    };
    let answer = bgp.machine(request.clone()).await.unwrap();
    let [peer] = &answer.peers[..] else {
        panic!("{answer:?}")
    };
    assert_eq!(
        (
            peer.peer_address.as_str(),
            peer.local_asn,
            peer.source_address.as_str()
        ),
        ("192.0.2.1", 65_000, "10.0.0.1")
    );
    request.labels.insert("rack".to_owned(), "b".to_owned());
    assert_eq!(bgp.machine(request).await.unwrap().peers.len(), 2);
}

/// A project that waits for a person is asked about again, though not by each call.
#[tokio::test(start_paused = true)]
async fn a_project_that_waits_for_approval_is_asked_about_again() {
    let cloud = FakeCloud::new();
    let project = |pending| BgpProject {
        enabled: true,
        pending,
        local_asn: 64_999,
        password: None,
        max_prefixes: None,
    };
    cloud.set_project(Some(project(true)));
    let bgp = Bgp::over(cloud.cloud(), Context::new()).await;
    for _ in 0..3 {
        assert!(bgp.project().await.unwrap().pending);
    }
    assert_eq!(cloud.calls(Operation::ReadProject), 1);
    cloud.set_project(Some(project(false)));
    tokio::time::advance(std::time::Duration::from_secs(31)).await;
    assert!(!bgp.project().await.unwrap().pending);
    assert_eq!(cloud.calls(Operation::EnableBgp), 0);
}

/// E52: how many prefixes a machine may announce is told by the cloud, and told anew to who wants it fresh.
#[tokio::test(start_paused = true)]
async fn the_prefix_limit_is_the_clouds() {
    let cloud = FakeCloud::new();
    let project = |limit| BgpProject {
        enabled: true,
        pending: false,
        local_asn: 65_000,
        password: None,
        max_prefixes: NonZeroU32::new(limit),
    };
    cloud.set_project(Some(project(10)));
    let bgp = Bgp::over(cloud.cloud(), Context::new()).await;
    assert_eq!(bgp.project().await.unwrap().max_prefixes, 10);
    cloud.set_project(Some(project(0)));
    tokio::time::advance(std::time::Duration::from_secs(31)).await;
    assert_eq!(bgp.project().await.unwrap().max_prefixes, 10);
    for _ in 0..3 {
        assert_eq!(bgp.project_now(true).await.unwrap().max_prefixes, 0);
    }
    assert_eq!(cloud.calls(Operation::ReadProject), 2);
}

/// E32 (part): peers that vanish all at once are more likely a fault than the truth: they stay, until somebody insists.
#[tokio::test(start_paused = true)]
async fn peers_that_vanish_stay_until_somebody_insists() {
    let cloud = FakeCloud::new();
    let id = cloud.add_machine("m1", &["10.0.0.1".parse().unwrap()]).unwrap();
    let peer = Peer {
        address: "169.254.255.1".parse().unwrap(),
        asn: 65_530,
        local_asn: 65_000,
        source: None,
        password: None,
        multihop: true,
        port: None,
    };
    let told = |peers| Neighbors {
        peers,
        private_network: None,
        gateway: None,
    };
    cloud.set_neighbors(&id, told(vec![peer]));
    let bgp = Bgp::over(cloud.cloud(), Context::new()).await;
    let mut request = proto::EnsureMachineRequest {
        provider_id: id.to_string(),
        node: "m1".to_owned(),
        ..proto::EnsureMachineRequest::default()
    };
    let before = bgp.machine(request.clone()).await.unwrap();
    assert_eq!((before.peers.len(), before.pending), (1, false));
    cloud.set_neighbors(&id, told(vec![]));
    let asked = cloud.calls(Operation::ReadNeighbors);
    tokio::time::advance(std::time::Duration::from_secs(7 * 3600)).await;
    assert_eq!(bgp.machine(request.clone()).await.unwrap(), before);
    assert_eq!(cloud.calls(Operation::ReadNeighbors), asked + 1, "it was looked");
    request.fresh = true;
    let answer = bgp.machine(request).await.unwrap();
    assert_eq!((answer.peers.len(), answer.pending), (0, true));
}

#[tokio::test]
async fn peers_are_listed_by_pages_and_a_made_up_page_is_refused() {
    let cloud = FakeCloud::new();
    let bgp = Bgp::over(cloud.cloud(), Context::new()).await;
    for name in ["m3", "m1", "m2"] {
        let id = cloud.add_machine(name, &["10.0.0.1".parse().unwrap()]).unwrap();
        let request = proto::EnsureMachineRequest {
            provider_id: id.into(),
            ..proto::EnsureMachineRequest::default()
        };
        bgp.machine(request).await.unwrap();
    }
    let page = |page_token: String| {
        let mut client = bgp.client.clone();
        async move {
            let page_size = 2;
            client
                .list_peers(proto::ListPeersRequest {
                    page_size,
                    page_token,
                })
                .await
                .map(tonic::Response::into_inner)
        }
    };
    let ids = |page: &proto::ListPeersResponse| -> Vec<String> {
        page.machines
            .iter()
            .map(|machine| machine.provider_id.clone())
            .collect()
    };
    let first = page(String::new()).await.unwrap();
    assert_eq!(ids(&first), ["fake://m1", "fake://m2"]);
    let last = page(first.next_page_token).await.unwrap();
    assert_eq!(
        (ids(&last).as_slice(), last.next_page_token.as_str()),
        (&["fake://m3".to_owned()][..], "")
    );
    let refused = page("fake://m1".to_owned()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
}
