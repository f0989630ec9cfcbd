mod bgp;
mod endpoint;
mod secrets;

use std::path::Path;
use std::time::Duration;

use groundplane_core::{ClusterId, Family, Owner};
use groundplane_runtime::config::SecretFile;
use groundplane_sandbox::{
    Action, DeviceId, FaultRule, Project, ProjectOptions, ReservationKind, ReservationOptions, Sandbox,
    StatusFault,
};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;
use crate::http::Call;
use crate::testing::sandbox_cases::{Case, wanted};
use crate::testing::sandboxed;
use crate::testing::{bgp_fabric_contract, elastic_ips_contract, machine_source_contract};
use crate::{BgpFabric, ElasticIps, MachineSource, Placement, ReservationState};

const ABSENT: &str = "equinixmetal://00000000-0000-4000-8000-000000000000";

/// A project, and a driver that was given its token.
pub(super) struct Bench {
    pub(super) driver: Equinix,
    pub(super) project: Project,
    context: Context,
    files: tempfile::TempDir,
    _sandbox: Sandbox,
}

impl Bench {
    pub(super) async fn new() -> Self {
        Self::with(ProjectOptions::default(), |_| {}).await
    }

    async fn with(options: ProjectOptions, change: impl FnOnce(&mut EquinixConfig)) -> Self {
        Self::with_files(options, |config, _| change(config)).await
    }

    /// `change` is told where files may be put.
    async fn with_files(options: ProjectOptions, change: impl FnOnce(&mut EquinixConfig, &Path)) -> Self {
        let sandbox = Sandbox::start().await;
        let project = sandbox.project(options);
        let files = tempfile::tempdir().unwrap();
        let mut config = sandboxed::equinix_section(&project, files.path());
        change(&mut config, files.path());
        let context = Context::new();
        let metrics = context.metrics.register(HttpMetrics::register);
        let driver = Equinix::new(&config, metrics, &context).unwrap();
        Self {
            driver,
            project,
            context,
            files,
            _sandbox: sandbox,
        }
    }

    fn calls(&self, method: &str, route: &str) -> usize {
        self.project.journal().calls(0, method, route).len()
    }

    fn case(&self) -> Case<'_, Equinix> {
        Case {
            driver: &self.driver,
            project: &self.project,
            machine: &id_of,
            list: ("/projects/{pid}/devices", "page=2"),
        }
    }
}

fn id_of(device: DeviceId) -> ProviderId {
    format!("equinixmetal://{device}").parse().unwrap()
}

fn service(cluster: &str, namespace: &str, name: &str) -> Owner {
    let cluster: ClusterId = cluster.parse().unwrap();
    Owner::service(cluster, namespace.parse().unwrap(), name.parse().unwrap())
}

pub(super) fn rule(method: &str, route: &str, action: Action) -> FaultRule {
    FaultRule::on(method, route, action)
}

#[tokio::test]
async fn the_driver_keeps_the_contracts() {
    let bench = Bench::new().await;
    let machine = bench.project.add_devices(3)[0];
    let absent = ABSENT.parse().unwrap();
    machine_source_contract(&bench.driver, 3, &absent).await;
    elastic_ips_contract(&bench.driver).await;
    bgp_fabric_contract(
        &bench.driver,
        &format!("equinixmetal://{machine}").parse().unwrap(),
        &absent,
    )
    .await;
}

/// E15: more machines than the API shows on a page, whatever it thinks a page is.
#[tokio::test]
async fn every_page_of_machines_is_read() {
    for (page_size, most, calls) in [(1000, 1000, 1), (10, 1000, 7), (1000, 7, 9)] {
        let options = ProjectOptions {
            max_per_page: most,
            ..ProjectOptions::default()
        };
        let bench = Bench::with(options, |config| config.page_size = page_size).await;
        bench.project.add_devices(33);
        assert_eq!(MachineSource::list(&bench.driver).await.unwrap().len(), 33);
        assert_eq!(bench.calls("GET", "/projects/{pid}/devices"), calls);
    }
}

#[tokio::test]
async fn a_machine_shows_its_own_addresses_of_both_families_and_no_elastic_ones() {
    let bench = Bench::new().await;
    let placed = ["sv15", "sv", "c3.small.x86"];
    bench
        .case()
        .a_machine_shows_its_own_addresses_and_no_elastic_ones(placed)
        .await;
}

/// E13: asked for by an id of the predecessor, it answers with its own.
#[tokio::test]
async fn a_machine_is_found_by_its_old_id() {
    let bench = Bench::new().await;
    let id = bench.project.add_devices(1)[0];
    for form in [format!("packet://{id}"), id.to_string()] {
        let machine = bench.driver.get(&form.parse().unwrap()).await.unwrap();
        assert_eq!(machine.id.as_str(), format!("equinixmetal://{id}"));
    }
}

/// E19, the driver's part.
#[tokio::test]
async fn only_an_inactive_machine_is_off() {
    Bench::new().await.case().only_an_inactive_machine_is_off().await;
}

/// E13, E14
#[test]
fn provider_ids_of_this_cloud_are_known_in_each_form_and_others_are_not() {
    let uuid = "11111111-1111-4111-8111-111111111111";
    for ours in [
        format!("equinixmetal://{uuid}"),
        format!("packet://{uuid}"),
        uuid.to_owned(),
    ] {
        assert_eq!(device_of(&ours.parse().unwrap()), Some(uuid), "{ours}");
    }
    for foreign in [
        "aws:///eu-west-1a/i-0abc",
        "a://b://c",
        "equinixmetal://b://c",
        "equinixmetal://",
        "equinixmetal://../ips",
        "k3s://node",
        "node-1",
        "1111111111114111811111111111111111",
    ] {
        assert_eq!(device_of(&foreign.parse().unwrap()), None, "{foreign}");
    }
}

/// E18, E20: the API's own 404 is absence; a refusal, a failure or another's 404 is not.
#[tokio::test]
async fn only_the_apis_own_404_is_absence() {
    let bench = Bench::new().await;
    let id = bench.project.add_devices(1)[0];
    let machine = format!("equinixmetal://{id}").parse().unwrap();
    let strange = StatusFault {
        body: Some(json!("nothing here")),
        ..StatusFault::new(404)
    };
    for (action, kind) in [
        (Action::status(500), CloudErrorKind::Unavailable),
        (Action::status(403), CloudErrorKind::Denied),
        (Action::status(401), CloudErrorKind::Unauthenticated),
        (Action::Status(strange), CloudErrorKind::Unavailable),
        (Action::DropBefore, CloudErrorKind::Unavailable),
        (Action::HalfBody, CloudErrorKind::Unavailable),
        (Action::MalformedJson, CloudErrorKind::Unavailable),
    ] {
        bench.project.clear_faults();
        bench.project.fault(rule("GET", "/devices/{id}", action.clone()));
        assert_eq!(
            bench.driver.get(&machine).await.unwrap_err().kind,
            kind,
            "{action:?}"
        );
    }
    bench.project.clear_faults();
    bench.project.remove_device(id);
    assert_eq!(
        bench.driver.get(&machine).await.unwrap_err().kind,
        CloudErrorKind::NotFound
    );
}

#[tokio::test]
async fn a_project_that_is_not_there_is_no_empty_list() {
    let bench = Bench::with(ProjectOptions::default(), |config| {
        config.project_id = "22222222-2222-4222-8222-222222222222".to_owned();
    })
    .await;
    bench.case().a_project_that_is_not_there_is_no_empty_list().await;
}

#[tokio::test]
async fn a_list_that_does_not_add_up_is_read_on_and_then_refused() {
    let bench = Bench::with(ProjectOptions::default(), |config| config.page_size = 10).await;
    bench
        .case()
        .a_list_that_does_not_add_up_is_read_on_and_then_refused()
        .await;
}

#[tokio::test]
async fn a_page_that_breaks_off_is_asked_for_again() {
    let bench = Bench::with(ProjectOptions::default(), |config| config.page_size = 10).await;
    bench.case().a_page_that_breaks_off_is_asked_for_again().await;
}

/// E35: tags and body to the letter.
#[tokio::test]
async fn a_reservation_is_asked_for_as_the_clouds_own_controller_does() {
    let bench = Bench::new().await;
    let tags = bench.driver.tags_of(&service("c1", "default", "nginx"));
    assert_eq!(
        tags,
        [
            "usage=cloud-provider-equinix-metal-auto",
            "service=l7RnKS8k48oG3Qv3Pxx8FzEMj3X3E5c8JPOIzyLWWdY=",
            "cluster=c1"
        ]
    );
    let foo = bench.driver.tags_of(&service("c1", "kube-system", "foo"));
    assert_eq!(foo[1], "service=6AI0U19lNyQbe/RvRL4GrM/Dp5nGlASBBv3CX4QJmSo=");
    assert_eq!(
        bench.driver.cluster_tags(&"c1".parse().unwrap()),
        ["usage=cloud-provider-equinix-metal-auto", "cluster=c1"]
    );
    let made = bench
        .driver
        .create(&wanted(Family::V4, tags.clone()))
        .await
        .unwrap();
    assert_eq!((made.state, &made.tags), (ReservationState::Ready, &tags));
    let asked = &bench.project.journal().calls(0, "POST", "/projects/{pid}/ips")[0];
    assert_eq!(
        asked.body,
        Some(json!({
            "type": "public_ipv4",
            "quantity": 1,
            "details": "Equinix Metal Kubernetes CCM auto-generated for Load Balancer",
            "tags": tags,
            "fail_on_approval_required": true,
            "metro": "sv",
        }))
    );
    let made = bench.driver.create(&wanted(Family::V6, vec![])).await.unwrap();
    assert_eq!(made.prefix.unwrap().family(), Family::V6);
}

#[tokio::test]
async fn the_place_that_is_asked_for_comes_before_the_configured_one() {
    let bench = Bench::with(ProjectOptions::default(), |config| {
        config.metro = String::new();
        config.facility = "ewr1".to_owned();
    })
    .await;
    let at = |metro: &str, facility: &str| Placement {
        metro: metro.to_owned(),
        facility: facility.to_owned(),
    };
    let call = Call::new("", http::Method::POST, "", "");
    let place = |placement: &Placement| {
        bench
            .driver
            .place(placement, &call)
            .map(|(kind, code)| (kind, code.to_owned()))
            .unwrap()
    };
    assert_eq!(place(&at("da", "sv15")), ("metro", "da".to_owned()));
    assert_eq!(place(&at("", "sv15")), ("facility", "sv15".to_owned()));
    assert_eq!(place(&Placement::default()), ("facility", "ewr1".to_owned()));
    let nowhere = Bench::with(ProjectOptions::default(), |config| config.metro = String::new()).await;
    let error = nowhere
        .driver
        .create(&wanted(Family::V4, vec![]))
        .await
        .unwrap_err();
    assert!(
        error.is(CloudErrorKind::Refused) && error.message.contains("equinix.metro"),
        "{error}"
    );
    assert_eq!(nowhere.project.journal().total(0), 0, "nothing was asked");
}

/// E43, the driver's part.
#[tokio::test]
async fn a_spent_quota_is_told_as_such() {
    let bench = Bench::with(
        ProjectOptions {
            quota: Some(0),
            ..ProjectOptions::default()
        },
        |_| {},
    )
    .await;
    let error = bench
        .driver
        .create(&wanted(Family::V4, vec![]))
        .await
        .unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::QuotaExceeded, "{error}");
}

#[tokio::test]
async fn a_create_is_sent_once_whatever_happens() {
    for action in [
        Action::status(500),
        Action::status(429),
        Action::DropBefore,
        Action::DropAfter,
        Action::HalfBody,
    ] {
        let bench = Bench::new().await;
        bench
            .project
            .fault(rule("POST", "/projects/{pid}/ips", action.clone()));
        let error = bench
            .driver
            .create(&wanted(Family::V4, vec![]))
            .await
            .unwrap_err();
        assert!(
            error.is(CloudErrorKind::Unavailable) || error.is(CloudErrorKind::RateLimited),
            "{error}"
        );
        assert_eq!(bench.calls("POST", "/projects/{pid}/ips"), 1, "{action:?}");
    }
}

#[tokio::test]
async fn odd_reservations_are_listed_and_not_usable() {
    let bench = Bench::new().await;
    let device = bench.project.add_devices(1)[0];
    let good = bench.project.add_reservation(ReservationOptions::tagged(["t"]));
    bench.project.assign(device, good.address.unwrap());
    let vrf = bench.project.add_reservation(ReservationOptions {
        kind: ReservationKind::Vrf,
        address: Some("10.0.0.0".parse().unwrap()),
        quantity: 8,
        ..ReservationOptions::default()
    });
    let pending = bench.project.add_reservation(ReservationOptions {
        pending: true,
        ..ReservationOptions::default()
    });
    let rows = ElasticIps::list(&bench.driver).await.unwrap();
    let find = |id: String| rows.iter().find(|row| row.id == id).unwrap();
    let good = find(good.id.to_string());
    assert!(good.usable && good.tags == ["t"]);
    assert_eq!(
        good.assignments
            .iter()
            .map(|row| row.machine.clone())
            .collect::<Vec<_>>(),
        [device.to_string()]
    );
    let vrf = find(vrf.id.to_string());
    assert_eq!((vrf.usable, vrf.prefix), (false, None));
    let pending = find(pending.id.to_string());
    assert_eq!((pending.state, pending.prefix), (ReservationState::Pending, None));
    assert_eq!(
        rows.iter().filter(|row| row.usable).count(),
        2,
        "blocks of machines are not"
    );
}

/// E87
#[tokio::test]
async fn a_call_that_hangs_ends_at_its_deadline() {
    for action in [Action::Hang, Action::HangAfter] {
        let bench = Bench::with(ProjectOptions::default(), |config| {
            config.request_timeout = Duration::from_millis(150);
        })
        .await;
        bench
            .project
            .fault(rule("GET", "/projects/{pid}/devices", action));
        let error = MachineSource::list(&bench.driver).await.unwrap_err();
        assert_eq!(error.kind, CloudErrorKind::Timeout, "{error}");
    }
}

#[tokio::test]
async fn a_refused_token_is_told() {
    let bench = Bench::new().await;
    std::fs::write(bench.files.path().join("token"), "not-the-token-at-all").unwrap();
    let error = MachineSource::list(&bench.driver).await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Unauthenticated);
    assert!(
        bench
            .context
            .metrics
            .encode()
            .unwrap()
            .contains(r#"route="/projects/{pid}/devices",method="GET",code="401""#)
    );
}
