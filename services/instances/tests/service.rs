//! The service in this process, with the cloud in a box behind the `equinix` driver, and with the `static` driver.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code outside of test functions"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use groundplane_cloud::testing::{FakeCloud, Operation};
use groundplane_cloud::{
    Cloud, CloudConfig, CloudError, CloudErrorKind, Machine, MachineSource, PowerState, StaticConfig,
    StaticMachine, connect,
};
use groundplane_core::{ErrorKind, ProviderId};
use groundplane_instances::{Config, start};
use groundplane_proto::FILE_DESCRIPTOR_SET;
use groundplane_proto::instances::v1 as proto;
use groundplane_proto::instances::v1::instances_service_client::InstancesServiceClient;
use groundplane_runtime::Context;
use groundplane_runtime::config::parse;
use groundplane_runtime::grpc::{Channel, RpcError, Server};
use groundplane_sandbox::{
    Action, DeviceOptions, DeviceState, FaultRule, Project, ProjectOptions, Sandbox, TestCloud,
};
use pretty_assertions::assert_eq;

const LIST: (&str, &str) = ("GET", "/projects/{pid}/devices");
const READ: (&str, &str) = ("GET", "/devices/{id}");

/// A running service, and its client.
#[derive(Clone)]
struct Instances {
    context: Context,
    client: InstancesServiceClient<Channel>,
}

impl Instances {
    async fn start(config: &CloudConfig) -> Self {
        let context = Context::new();
        Self::over(connect(config, &context).unwrap(), context).await
    }

    async fn over(cloud: Cloud, context: Context) -> Self {
        let routes = start(Config::default(), cloud, &context).await.unwrap();
        let server = Server::new("instances", &context).routes(routes);
        let channel = server.within(FILE_DESCRIPTOR_SET).await.unwrap();
        Self {
            context,
            client: InstancesServiceClient::new(channel),
        }
    }

    async fn resolve(&self, request: proto::ResolveRequest) -> Result<proto::Machine, RpcError> {
        let answer = self
            .client
            .clone()
            .resolve(request)
            .await
            .map_err(RpcError::from)?
            .into_inner();
        assert!(answer.read_at.is_some());
        Ok(answer.machine.unwrap())
    }

    async fn by_id(&self, provider_id: &str) -> Result<proto::Machine, RpcError> {
        self.resolve(proto::ResolveRequest {
            provider_id: provider_id.to_owned(),
            ..proto::ResolveRequest::default()
        })
        .await
    }

    async fn by_name(&self, node: &str) -> Result<proto::Machine, RpcError> {
        self.resolve(proto::ResolveRequest {
            node: node.to_owned(),
            ..proto::ResolveRequest::default()
        })
        .await
    }

    async fn fresh(&self, provider_id: &str) -> Result<proto::Machine, RpcError> {
        let provider_id = provider_id.to_owned();
        self.resolve(proto::ResolveRequest {
            provider_id,
            fresh: true,
            ..proto::ResolveRequest::default()
        })
        .await
    }
}

/// A cloud with one project.
struct World {
    project: Project,
    cloud: TestCloud,
}

impl World {
    async fn new() -> Self {
        let cloud = TestCloud::start(ProjectOptions::default()).await;
        let project = cloud.project().clone();
        Self { project, cloud }
    }

    async fn process(&self) -> Instances {
        let mut config: CloudConfig = parse("cloud", &self.cloud.config()).unwrap();
        config.equinix.page_size = 10;
        config.equinix.request_timeout = std::time::Duration::from_secs(2);
        Instances::start(&config).await
    }

    fn add(&self, name: &str) -> String {
        format!(
            "equinixmetal://{}",
            self.project.add_device(DeviceOptions::named(name))
        )
    }

    fn lists(&self, mark: u64) -> usize {
        self.project.journal().calls(mark, LIST.0, LIST.1).len()
    }
}

fn said(error: &RpcError) -> (ErrorKind, &str) {
    (error.kind, error.reason.as_str())
}

/// E12 (part): a new node is found by its host name, and gets what the cloud knows.
#[tokio::test]
async fn a_new_node_is_found_by_its_name() {
    let world = World::new().await;
    let id = world.add("n1");
    let machine = world.process().await.by_name("n1").await.unwrap();
    assert_eq!(
        (machine.provider_id.as_str(), machine.hostname.as_str()),
        (id.as_str(), "n1")
    );
    assert_eq!(
        (machine.power(), machine.region.is_empty()),
        (proto::PowerState::On, false)
    );
    assert!(!machine.instance_type.is_empty());
    let kinds: BTreeSet<_> = machine
        .addresses
        .iter()
        .map(proto::MachineAddress::r#type)
        .collect();
    assert!(kinds.contains(&proto::AddressType::InternalIp), "{machine:?}");
}

#[tokio::test]
async fn a_node_whose_name_the_cloud_does_not_know_is_found_by_its_address() {
    let world = World::new().await;
    let device = world.project.add_device(DeviceOptions::named("n1"));
    let address = world.project.own_ipv4(device, false).unwrap().to_string();
    let request = proto::ResolveRequest {
        node: "other".to_owned(),
        addresses: vec![address],
        ..proto::ResolveRequest::default()
    };
    let machine = world.process().await.resolve(request).await.unwrap();
    assert_eq!(machine.provider_id, format!("equinixmetal://{device}"));
}

/// E13: all three forms of a provider id.
#[tokio::test]
async fn each_form_of_a_provider_id_finds_the_machine() {
    let world = World::new().await;
    let id = world.add("n1");
    let bare = id.trim_start_matches("equinixmetal://");
    let instances = world.process().await;
    for form in [id.clone(), format!("packet://{bare}"), bare.to_owned()] {
        assert_eq!(instances.by_id(&form).await.unwrap().provider_id, id, "{form}");
    }
}

/// E14, E22: what is foreign, malformed or unknown is told apart.
#[tokio::test]
async fn foreign_malformed_and_unknown_are_told_apart() {
    let world = World::new().await;
    let instances = world.process().await;
    let error = instances.by_id("aws:///eu-west-1/i-1").await.unwrap_err();
    assert_eq!(said(&error), (ErrorKind::Precondition, "FOREIGN"));
    let error = instances.by_id("a://b://c").await.unwrap_err();
    assert_eq!(said(&error), (ErrorKind::Invalid, "PROVIDER_ID_SYNTAX"));
    let error = instances
        .by_id("equinixmetal://11111111-1111-4111-8111-111111111111")
        .await
        .unwrap_err();
    assert_eq!(said(&error), (ErrorKind::NotFound, "MACHINE_NOT_FOUND"));
    assert_eq!(instances.by_name("").await.unwrap_err().kind, ErrorKind::Invalid);
}

/// E15: machines beyond the first page are found, all of them with one list.
#[tokio::test]
async fn machines_of_every_page_are_found_with_one_list() {
    let world = World::new().await;
    world
        .project
        .add_devices_with(35, |number| DeviceOptions::named(format!("n{number}")));
    let instances = world.process().await;
    let names: Vec<_> = (0..35).map(|number| format!("n{number}")).collect();
    for name in &names {
        assert_eq!(instances.by_name(name).await.unwrap().hostname, *name);
    }
    assert!(
        world.lists(0) <= 14,
        "at most two lists of four pages, forth and back: {}",
        world.lists(0)
    );
    let (mut seen, mut token) = (BTreeSet::new(), String::new());
    loop {
        let request = proto::ListMachinesRequest {
            page_size: 10,
            page_token: token,
            fresh: false,
        };
        let page = instances
            .client
            .clone()
            .list_machines(request)
            .await
            .unwrap()
            .into_inner();
        assert!(page.machines.len() <= 10);
        seen.extend(page.machines.into_iter().map(|machine| machine.provider_id));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen.len(), 35);
}

#[tokio::test]
async fn a_name_that_two_machines_have_is_ambiguous() {
    let world = World::new().await;
    let ids = BTreeSet::from([world.add("twin"), world.add("twin")]);
    let error = world.process().await.by_name("twin").await.unwrap_err();
    assert_eq!(said(&error), (ErrorKind::Precondition, "AMBIGUOUS"));
    let told: BTreeSet<_> = error.metadata["provider_ids"]
        .split(',')
        .map(str::to_owned)
        .collect();
    assert_eq!(told, ids);
}

/// The node says by its addresses which of two machines with one name it is.
#[tokio::test]
async fn of_two_machines_with_one_name_the_address_decides() {
    let world = World::new().await;
    world.add("twin");
    let device = world.project.add_device(DeviceOptions::named("twin"));
    let address = world.project.own_ipv4(device, false).unwrap().to_string();
    let request = proto::ResolveRequest {
        node: "twin".to_owned(),
        addresses: vec![address],
        ..proto::ResolveRequest::default()
    };
    let machine = world.process().await.resolve(request).await.unwrap();
    assert_eq!(machine.provider_id, format!("equinixmetal://{device}"));
}

/// E18 (part): a machine that is gone is `NOT_FOUND` by a list that began after the request, whatever was cached.
#[tokio::test]
async fn a_machine_that_is_gone_is_not_found_by_a_fresh_list() {
    let world = World::new().await;
    let device = world.project.add_device(DeviceOptions::named("n1"));
    let id = format!("equinixmetal://{device}");
    let instances = world.process().await;
    instances.by_id(&id).await.unwrap();
    world.project.remove_device(device);
    instances.by_id(&id).await.expect("from the cache");
    assert_eq!(
        said(&instances.fresh(&id).await.unwrap_err()),
        (ErrorKind::NotFound, "MACHINE_NOT_FOUND")
    );
}

/// A machine that was installed anew has another id under the same name: a node must not be given the id of the one before, which
/// never changes, and by which the node would be deleted.
#[tokio::test]
async fn a_name_is_not_looked_up_in_an_old_list() {
    let world = World::new().await;
    let before = world.project.add_device(DeviceOptions::named("n1"));
    let instances = world.process().await;
    assert_eq!(
        instances.by_name("n1").await.unwrap().provider_id,
        format!("equinixmetal://{before}")
    );
    world.project.remove_device(before);
    let after = world.add("n1");
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    tokio::time::resume();
    assert_eq!(instances.by_name("n1").await.unwrap().provider_id, after);
}

/// A project beside the one that is configured, and a service whose token opens both.
struct Beside {
    other: Project,
    instances: Instances,
    _folder: tempfile::TempDir,
    _sandbox: Sandbox,
}

impl Beside {
    async fn new() -> Self {
        let sandbox = Sandbox::start().await;
        let (own, other) = (
            sandbox.project(ProjectOptions::default()),
            sandbox.project(ProjectOptions::default()),
        );
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, sandbox.account_token()).unwrap();
        let mut config: CloudConfig = parse("cloud", &own.config(&token)).unwrap();
        config.equinix.request_timeout = std::time::Duration::from_secs(2);
        Self {
            instances: Instances::start(&config).await,
            other,
            _folder: folder,
            _sandbox: sandbox,
        }
    }
}

/// E18 (part): a machine of another project, which the token sees too, is not in the list, and is not gone: the cloud has it by its id.
/// It is gone once the cloud says so.
#[tokio::test]
async fn a_machine_beyond_the_list_is_found_by_its_id() {
    let beside = Beside::new().await;
    let device = beside.other.add_device(DeviceOptions::named("n1"));
    beside.other.set_state(device, DeviceState::Inactive);
    let id = format!("equinixmetal://{device}");
    let machine = beside.instances.fresh(&id).await.unwrap();
    assert_eq!(
        (
            machine.provider_id.as_str(),
            machine.hostname.as_str(),
            machine.power()
        ),
        (id.as_str(), "n1", proto::PowerState::Off)
    );
    let bare = beside.instances.by_id(&device.to_string()).await.unwrap();
    assert_eq!(bare, machine);
    // Its name is not looked for elsewhere.
    let error = beside.instances.by_name("n1").await.unwrap_err();
    assert_eq!(said(&error), (ErrorKind::NotFound, "MACHINE_NOT_FOUND"));
    let gone = beside.other.add_device(DeviceOptions::named("n2"));
    beside.other.remove_device(gone);
    let error = beside
        .instances
        .fresh(&format!("equinixmetal://{gone}"))
        .await
        .unwrap_err();
    assert_eq!(said(&error), (ErrorKind::NotFound, "MACHINE_NOT_FOUND"));
}

/// E20: that the list does not have it proves nothing while the cloud errs when it is asked for the machine.
#[tokio::test]
async fn an_error_about_one_machine_is_not_absence() {
    let world = World::new().await;
    let instances = world.process().await;
    for action in [
        Action::status(500),
        Action::status(403),
        Action::HalfBody,
        Action::MalformedJson,
        Action::DropBefore,
        Action::Hang,
    ] {
        let name = action.name();
        // Another each time: what the cloud refuses for good is remembered for a moment.
        let device = world.project.add_device(DeviceOptions::named("gone"));
        let id = format!("equinixmetal://{device}");
        world.project.remove_device(device);
        world.project.fault(FaultRule::on(READ.0, READ.1, action));
        let error = instances.fresh(&id).await.unwrap_err();
        assert_ne!(error.kind, ErrorKind::NotFound, "{name}");
        world.project.clear_faults();
    }
}

/// A list that has nothing, and a machine that only its id leads to.
struct ById {
    machine: parking_lot::Mutex<Result<Machine, CloudErrorKind>>,
    reads: std::sync::atomic::AtomicUsize,
    gate: tokio::sync::Semaphore,
}

#[async_trait::async_trait]
impl MachineSource for ById {
    fn schemes(&self) -> Vec<String> {
        vec!["fake".to_owned()]
    }

    fn accepts(&self, id: &ProviderId) -> bool {
        id.scheme() == Some("fake")
    }

    fn proves_absence(&self) -> bool {
        true
    }

    async fn list(&self) -> Result<Vec<Machine>, CloudError> {
        Ok(Vec::new())
    }

    async fn get(&self, _: &ProviderId) -> Result<Machine, CloudError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let _open = self.gate.acquire().await.unwrap();
        let machine = self.machine.lock().clone();
        machine.map_err(|kind| CloudError::new(kind, "read machine", "no"))
    }
}

/// However many ask for a machine beyond the list, and however often: a call every 10 s while it is there, and while the cloud refuses to
/// say; but that it is gone is asked for anew by each who wants it fresh, and comes to be known.
#[tokio::test(start_paused = true)]
async fn a_machine_beyond_the_list_costs_a_call_now_and_then() {
    let cloud = FakeCloud::new();
    let id = cloud.add_machine("n1", &["10.0.0.1".parse().unwrap()]).unwrap();
    let there = MachineSource::get(&cloud, &id).await.unwrap();
    let source = Arc::new(ById {
        machine: parking_lot::Mutex::new(Ok(there.clone())),
        reads: 0.into(),
        gate: tokio::sync::Semaphore::new(1),
    });
    let instances = Instances::over(
        Cloud {
            machines: Some(Arc::clone(&source) as Arc<_>),
            ..cloud.cloud()
        },
        Context::new(),
    )
    .await;
    let reads = || source.reads.swap(0, Ordering::SeqCst);
    let all = || futures::future::join_all((0..100).map(|_| instances.fresh(id.as_str())));
    assert!(all().await.into_iter().all(|answer| answer.is_ok()));
    assert_eq!(reads(), 1);
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    *source.machine.lock() = Err(CloudErrorKind::Denied);
    for answer in all().await {
        assert_eq!(answer.unwrap_err().kind, ErrorKind::Denied);
    }
    assert_eq!(reads(), 1);
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    *source.machine.lock() = Err(CloudErrorKind::NotFound);
    for _ in 0..2 {
        let error = instances.fresh(id.as_str()).await.unwrap_err();
        assert_eq!(said(&error), (ErrorKind::NotFound, "MACHINE_NOT_FOUND"));
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
    }
    assert_eq!(reads(), 2);
    instances.by_id(id.as_str()).await.unwrap_err();
    assert_eq!(reads(), 0, "who does not want it fresh is told what is known");
    // The answer is about another machine: that is none.
    *source.machine.lock() = Ok(Machine {
        id: "fake://other".parse().unwrap(),
        ..there
    });
    let error = instances.fresh(id.as_str()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
}

/// E19 (part): a machine that is switched off is off, and on again later.
#[tokio::test]
async fn power_is_told() {
    let world = World::new().await;
    let device = world.project.add_device(DeviceOptions::named("n1"));
    let id = format!("equinixmetal://{device}");
    let instances = world.process().await;
    for (state, power) in [
        (DeviceState::Inactive, proto::PowerState::Off),
        (DeviceState::Active, proto::PowerState::On),
    ] {
        world.project.set_state(device, state);
        assert_eq!(instances.fresh(&id).await.unwrap().power(), power);
    }
}

/// E20: an error of the cloud, or half an answer, is never absence.
#[tokio::test]
async fn an_error_of_the_cloud_is_not_absence() {
    let world = World::new().await;
    let id = world.add("n1");
    let instances = world.process().await;
    instances.by_id(&id).await.unwrap();
    for action in [
        Action::status(500),
        Action::status(404),
        Action::HalfBody,
        Action::MalformedJson,
        Action::DropBefore,
    ] {
        let name = action.name();
        world.project.fault(FaultRule::on(LIST.0, LIST.1, action));
        let error = instances.fresh(&id).await.unwrap_err();
        assert_ne!(error.kind, ErrorKind::NotFound, "{name}");
        world.project.clear_faults();
    }
    instances.fresh(&id).await.unwrap();
}

/// E87 (part): a cloud that never answers is an error in time.
#[tokio::test]
async fn a_hanging_cloud_is_an_error() {
    let world = World::new().await;
    let id = world.add("n1");
    let instances = world.process().await;
    world.project.fault(FaultRule::on(LIST.0, LIST.1, Action::Hang));
    assert!(instances.fresh(&id).await.unwrap_err().kind.is_retryable());
}

/// E85 (part): 500 fresh requests at once share their lists, and nodes that nobody knows cost no list each.
#[tokio::test]
async fn requests_at_once_share_a_list() {
    let world = World::new().await;
    let id = world.add("n1");
    let instances = world.process().await;
    instances.context.health.ready().await;
    let mark = world.project.journal().mark();
    let calls = (0..500).map(|_| instances.fresh(&id));
    for machine in futures::future::join_all(calls).await {
        machine.unwrap();
    }
    let lists = world.lists(mark);
    assert!((1..=20).contains(&lists), "{lists} lists");
    let mark = world.project.journal().mark();
    let strangers: Vec<_> = (0..100).map(|number| format!("stranger-{number}")).collect();
    for answer in futures::future::join_all(strangers.iter().map(|name| instances.by_name(name))).await {
        assert_eq!(answer.unwrap_err().kind, ErrorKind::NotFound);
    }
    assert!(world.lists(mark) <= 1, "{} lists", world.lists(mark));
}

/// E89 (part): the service starts without the cloud, says so, and is ready once the cloud is back.
#[tokio::test]
async fn a_cloud_that_is_away_at_the_start_is_waited_for() {
    let world = World::new().await;
    world.add("n1");
    world
        .project
        .fault(FaultRule::on(LIST.0, LIST.1, Action::status(500)));
    let instances = world.process().await;
    assert!(instances.by_name("n1").await.unwrap_err().kind.is_retryable());
    assert!(!instances.context.health.is_ready());
    world.project.clear_faults();
    instances.context.health.ready().await;
    instances.by_name("n1").await.unwrap();
}

#[tokio::test]
async fn without_a_list_the_machine_is_what_its_node_says() {
    let instances = Instances::start(&CloudConfig::default()).await;
    instances.context.health.ready().await;
    let machine = instances.by_name("n1").await.unwrap();
    assert_eq!(
        (machine.provider_id.as_str(), machine.power()),
        ("static://n1", proto::PowerState::On)
    );
    assert_eq!(machine.addresses, []);
    assert_eq!(
        instances.fresh("static://other").await.unwrap().provider_id,
        "static://other"
    );
    assert_eq!(
        said(&instances.by_id("aws://i-1").await.unwrap_err()),
        (ErrorKind::Precondition, "FOREIGN")
    );
}

/// A list that a person keeps proves nothing: a machine that is not on it is left alone, never `NOT_FOUND`.
#[tokio::test]
async fn a_list_kept_by_hand_is_no_proof_of_absence() {
    let machine = StaticMachine {
        name: "n1".to_owned(),
        ..StaticMachine::default()
    };
    let fixed = StaticConfig {
        machines: vec![machine],
        ..StaticConfig::default()
    };
    let instances = Instances::start(&CloudConfig {
        fixed,
        ..CloudConfig::default()
    })
    .await;
    assert_eq!(instances.by_name("n1").await.unwrap().provider_id, "static://n1");
    for error in [
        instances.by_name("n2").await.unwrap_err(),
        instances.fresh("static://n2").await.unwrap_err(),
    ] {
        assert_eq!(said(&error), (ErrorKind::Precondition, "FOREIGN"));
        assert_eq!(error.metadata["detail"], "UNLISTED");
    }
}

#[tokio::test]
async fn routes_are_unimplemented() {
    let instances = Instances::start(&CloudConfig::default()).await;
    let status = instances
        .client
        .clone()
        .list_routes(proto::ListRoutesRequest::default())
        .await
        .unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unimplemented);
}

/// E20 (part): whatever kind of error a driver makes of a list that failed, it is not absence. Only the machine's absence from a list is.
#[tokio::test]
async fn a_list_that_is_not_found_is_not_absence() {
    let cloud = FakeCloud::new();
    let id = cloud.add_machine("n1", &["10.0.0.1".parse().unwrap()]).unwrap();
    let instances = Instances::over(cloud.cloud(), Context::new()).await;
    instances.context.health.ready().await;
    for kind in [
        CloudErrorKind::NotFound,
        CloudErrorKind::Denied,
        CloudErrorKind::Unauthenticated,
        CloudErrorKind::Refused,
        CloudErrorKind::Timeout,
    ] {
        cloud.fail(
            Operation::ListMachines,
            CloudError::new(kind, "list machines", "no"),
        );
        let error = instances.fresh(id.as_str()).await.unwrap_err();
        assert_ne!(error.kind, ErrorKind::NotFound, "{kind:?}");
        assert_ne!(error.reason, "MACHINE_NOT_FOUND", "{kind:?}");
    }
    cloud.set_power(&id, PowerState::Off);
    let machine = instances.fresh(id.as_str()).await.unwrap();
    assert_eq!(machine.power(), proto::PowerState::Off);
    cloud.remove_machine(&id);
    assert_eq!(
        said(&instances.fresh(id.as_str()).await.unwrap_err()),
        (ErrorKind::NotFound, "MACHINE_NOT_FOUND")
    );
}

/// A provider that says with its first list which ids are its own.
struct Learns {
    cloud: FakeCloud,
    asked: std::sync::atomic::AtomicUsize,
    answered: std::sync::atomic::AtomicBool,
    gate: tokio::sync::Semaphore,
}

#[async_trait::async_trait]
impl MachineSource for Learns {
    fn schemes(&self) -> Vec<String> {
        Vec::new()
    }

    fn accepts(&self, id: &ProviderId) -> bool {
        self.asked.fetch_add(1, Ordering::SeqCst);
        !self.answered.load(Ordering::SeqCst) || self.cloud.accepts(id)
    }

    fn proves_absence(&self) -> bool {
        self.answered.load(Ordering::SeqCst)
    }

    async fn list(&self) -> Result<Vec<Machine>, CloudError> {
        let _open = self.gate.acquire().await.unwrap();
        let all = MachineSource::list(&self.cloud).await;
        self.answered.store(true, Ordering::SeqCst);
        all
    }

    async fn get(&self, id: &ProviderId) -> Result<Machine, CloudError> {
        self.cloud.get(id).await
    }
}

/// A node of another cloud is left alone by a provider that had not said, when it was asked, which nodes are its own.
#[tokio::test]
async fn what_turns_out_to_be_foreign_is_not_absent() {
    let source = Arc::new(Learns {
        cloud: FakeCloud::new(),
        asked: 0.into(),
        answered: false.into(),
        gate: tokio::sync::Semaphore::new(0),
    });
    let cloud = Cloud {
        machines: Some(Arc::clone(&source) as Arc<_>),
        ..FakeCloud::new().cloud()
    };
    let instances = Instances::over(cloud, Context::new()).await;
    let answer = async {
        while source.asked.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        source.gate.add_permits(10);
    };
    let (foreign, ()) = futures::future::join(instances.fresh("aws:///eu/i-1"), answer).await;
    assert_eq!(said(&foreign.unwrap_err()), (ErrorKind::Precondition, "FOREIGN"));
    let absent = instances.fresh("fake://gone").await.unwrap_err();
    assert_eq!(said(&absent), (ErrorKind::NotFound, "MACHINE_NOT_FOUND"));
}
