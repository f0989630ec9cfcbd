mod addresses;
mod bgp;
mod endpoint;
mod machines;
mod secrets;

use groundplane_core::Family;
use groundplane_runtime::config::SecretFile;
use groundplane_sandbox::{Action, DeviceId, FaultRule, Project, ProjectOptions, StatusFault, TestCloud};
use serde_json::{Value, json};

use super::*;
use crate::config::CherryBgp;
use crate::testing::sandbox_cases::{Case, wanted};
use crate::testing::{bgp_fabric_contract, elastic_ips_contract, machine_source_contract};
use crate::{BgpFabric as _, NeighborQuery};

const ABSENT: &str = "cherryservers://999999999";

/// A project, and a driver that was given its token.
struct Bench {
    driver: Cherry,
    context: Context,
    cloud: TestCloud,
}

impl Bench {
    async fn new() -> Self {
        Self::with(ProjectOptions::cherry(), |_| {}).await
    }

    async fn with(options: ProjectOptions, change: impl FnOnce(&mut CherryConfig)) -> Self {
        let cloud = TestCloud::start(options).await;
        let project = cloud.project();
        let mut config = CherryConfig {
            base_url: project.cherry_url().to_owned(),
            api_token_file: Some(SecretFile::new(cloud.token_file())),
            project_id: project.number().to_string(),
            region: project.region().to_owned(),
            bgp: CherryBgp { enabled: true },
            ..CherryConfig::default()
        };
        change(&mut config);
        let context = Context::new();
        let metrics = context.metrics.register(HttpMetrics::register);
        let driver = Cherry::new(&config, metrics, &context).unwrap();
        Self {
            driver,
            context,
            cloud,
        }
    }

    fn project(&self) -> &Project {
        self.cloud.project()
    }

    fn calls(&self, method: &str, route: &str) -> usize {
        self.project().journal().calls(0, method, route).len()
    }

    /// Bodies of these calls.
    fn bodies(&self, method: &str, route: &str) -> Vec<Value> {
        let calls = self.project().journal().calls(0, method, route);
        calls
            .iter()
            .map(|entry| entry.body.clone().unwrap_or_default())
            .collect()
    }

    /// The provider id of a machine of the sandbox.
    fn machine(&self, device: DeviceId) -> ProviderId {
        let all = self.project().devices();
        let found = all.iter().find(|row| row.id == device).unwrap();
        format!("cherryservers://{}", found.number).parse().unwrap()
    }

    /// `machine` is [`Bench::machine`].
    fn case<'a>(&'a self, machine: &'a dyn Fn(DeviceId) -> ProviderId) -> Case<'a, Cherry> {
        Case {
            driver: &self.driver,
            project: self.project(),
            machine,
            list: ("/projects/{pid}/servers", "offset=10"),
        }
    }

    /// This many machines.
    fn add_machines(&self, count: usize) -> Vec<ProviderId> {
        let made = self.project().add_devices(count);
        made.into_iter().map(|device| self.machine(device)).collect()
    }
}

fn rule(method: &str, route: &str, action: Action) -> FaultRule {
    FaultRule::on(method, route, action)
}

/// An answer with this status and body.
fn answer(status: u16, body: Value) -> Action {
    Action::Status(StatusFault {
        body: Some(body),
        ..StatusFault::new(status)
    })
}

/// The API's own words for a refusal.
fn refusal(status: u16, message: &str) -> Action {
    answer(status, json!({ "code": status, "message": message }))
}

/// E90
#[tokio::test]
async fn the_driver_keeps_the_contracts() {
    let bench = Bench::new().await;
    let machines = bench.add_machines(3);
    let absent = ABSENT.parse().unwrap();
    machine_source_contract(&bench.driver, 3, &absent).await;
    elastic_ips_contract(&bench.driver).await;
    bgp_fabric_contract(&bench.driver, &machines[0], &absent).await;
}

/// E90: machines that join together ask once how BGP of the project is.
#[tokio::test]
async fn neighbors_of_many_machines_read_the_project_once() {
    let bench = Bench::new().await;
    bench.driver.enable().await.unwrap();
    let machines = bench.add_machines(3);
    let mark = bench.project().journal().mark();
    for machine in &machines {
        bench.driver.create_session(machine, Family::V4).await.unwrap();
    }
    let asked = machines.iter().map(|machine| {
        let query = NeighborQuery {
            machine: machine.clone(),
            node: String::new(),
            labels: std::collections::BTreeMap::new(),
            addresses: Vec::new(),
        };
        let driver = &bench.driver;
        async move { driver.neighbors(&query).await.unwrap() }
    });
    for neighbors in futures::future::join_all(asked).await {
        assert_eq!(neighbors.peers.len(), 2, "{neighbors:?}");
    }
    let reads = bench.project().journal().calls(mark, "GET", "/projects/{pid}");
    assert_eq!(reads.len(), 1);
}
