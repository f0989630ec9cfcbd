//! Providers that keep the contract, and what a run leaves behind.

use groundplane_core::Family;
use groundplane_runtime::Context;
use groundplane_runtime::config::Document;
use groundplane_runtime::grpc::channel;
use groundplane_sandbox::{ProjectOptions, Sandbox};
use parking_lot::Mutex;
use pretty_assertions::assert_eq;
use tokio_util::sync::CancellationToken;

use super::super::{Options, Progress, Report, RunError, Verdict, check_over, rules};
use super::cloud::{everything, furnished, look, provider};
use crate::testing::loopback::Loopback;
use crate::testing::{FakeCloud, Operation, sandboxed};
use crate::{
    Capability, CloudConfig, CloudError, CloudErrorKind, ElasticIps as _, NewReservation, Placement, connect,
};

fn not_passed(report: &Report) -> Vec<(&'static str, &Verdict)> {
    let other = |outcome: &&super::super::Outcome| outcome.verdict != Verdict::Pass;
    report
        .outcomes
        .iter()
        .filter(other)
        .map(|outcome| (outcome.id, &outcome.verdict))
        .collect()
}

#[tokio::test]
async fn a_provider_that_offers_everything_passes_everything_and_keeps_nothing() {
    for atomic in [true, false] {
        let (cloud, context) = (furnished(), Context::new());
        let mine = NewReservation {
            family: Family::V4,
            tags: vec!["mine".to_owned()],
            placement: Placement::default(),
        };
        cloud.create(&mine).await.unwrap();
        let before = cloud.reservations();
        let report = look(&provider(&cloud, atomic, &context).await, everything()).await;
        // Both families are offered, so that there is another only for P30: `IPv5`.
        assert_eq!(not_passed(&report), [], "atomic: {atomic}");
        assert_eq!(report.outcomes.len(), rules().len());
        assert_eq!((report.left.as_slice(), report.is_broken()), (&[][..], false));
        assert_eq!(
            cloud.reservations(),
            before,
            "what was there is there, and nothing else"
        );
    }
}

#[tokio::test]
async fn equinix_passes_through_a_provider_and_keeps_nothing() {
    let sandbox = Sandbox::start().await;
    let project = sandbox.project(ProjectOptions::default());
    project.add_devices(3);
    let files = tempfile::tempdir().unwrap();
    let config = sandboxed::equinix(&project, files.path());
    let context = Context::new();
    let cloud = connect(&config, &context).unwrap();
    let target = Loopback::new(cloud.clone(), None, &context.tasks)
        .serve(&context)
        .await
        .unwrap();
    let crate::AddressBackend::Cloud(ips) = &cloud.addresses else {
        panic!("no addresses");
    };
    let before = ips.list().await.unwrap();
    let report = look(&target, everything()).await;
    assert_eq!(not_passed(&report), []);
    assert_eq!(report.left, Vec::<String>::new());
    assert_eq!(ips.list().await.unwrap(), before);
}

#[tokio::test]
async fn static_passes_what_it_offers_and_the_rest_says_why_not() {
    let text = "
static:
  machines: [{name: a, addresses: [{type: InternalIP, address: 10.0.0.1}]}, {name: b}]
  bgp: {localAsn: 64512, peers: [{address: 10.0.0.254, asn: 64513}]}
";
    let context = Context::new();
    let config: CloudConfig = Document::parse("groundplane.yaml", text)
        .unwrap()
        .decode()
        .unwrap();
    let cloud = connect(&config, &context).unwrap();
    let target = Loopback::new(cloud, None, &context.tasks)
        .serve(&context)
        .await
        .unwrap();
    let report = look(&target, Options::default()).await;
    assert!(!report.is_broken() && report.has_checked());
    let passed: Vec<_> = report
        .outcomes
        .iter()
        .filter(|outcome| outcome.verdict == Verdict::Pass)
        .map(|outcome| outcome.id)
        .collect();
    let offered = [
        "P1", "P2", "P3", "P4", "P5", "P10", "P11", "P12", "P13", "P40", "P44",
    ];
    assert_eq!(passed, offered);
    let why = |id| {
        let outcome = report.outcomes.iter().find(|outcome| outcome.id == id).unwrap();
        outcome.verdict.why().to_owned()
    };
    assert_eq!(why("P20"), "the provider does not offer `addresses`");
    assert_eq!(why("P43"), "the provider needs no sessions made");
}

#[tokio::test]
async fn a_run_that_is_to_make_nothing_calls_nothing_that_makes() {
    let (cloud, context) = (furnished(), Context::new());
    let options = Options {
        read_only: true,
        ..everything()
    };
    let report = look(&provider(&cloud, true, &context).await, options).await;
    assert!(!report.is_broken(), "{report:?}");
    for operation in [
        Operation::CreateReservation,
        Operation::DeleteReservation,
        Operation::EnableBgp,
        Operation::CreateSession,
    ] {
        assert_eq!(cloud.calls(operation), 0, "{operation:?}");
    }
    assert!(report.has_checked());
}

#[tokio::test]
async fn only_what_is_asked_for_is_checked() {
    let (cloud, context) = (furnished(), Context::new());
    let target = provider(&cloud, true, &context).await;
    let options = Options {
        capabilities: [Capability::Machines].into(),
        ..Options::default()
    };
    let report = look(&target, options).await;
    let skipped = report
        .outcomes
        .iter()
        .find(|outcome| outcome.id == "P20")
        .unwrap();
    assert_eq!(skipped.verdict.why(), "`addresses` was not asked for");
    let options = Options {
        rules: ["P12".to_owned()].into(),
        ..Options::default()
    };
    let report = look(&target, options).await;
    assert_eq!(report.outcomes.len(), 1);
    let options = Options {
        rules: ["P99".to_owned()].into(),
        ..Options::default()
    };
    let channel = channel(&target, None).unwrap();
    let error = check_over(channel, options, CancellationToken::new(), &|_| {}).await;
    assert!(matches!(error, Err(RunError::NoRule(rule)) if rule == "P99"));
}

#[tokio::test]
async fn a_capability_that_is_asked_for_and_not_offered_is_broken() {
    let (cloud, context) = (FakeCloud::new(), Context::new());
    let target = Loopback::new(cloud.cloud(), None, &context.tasks)
        .serve(&context)
        .await
        .unwrap();
    let options = Options {
        capabilities: [Capability::Endpoint].into(),
        ..Options::default()
    };
    let report = look(&target, options).await;
    assert!(
        report.outcomes[0]
            .verdict
            .why()
            .contains("does not offer `endpoint`")
    );
    assert!(report.is_broken());
}

/// Stopped in the middle of any rule, it gives back what it made, and what an answer was lost of.
#[tokio::test]
async fn a_run_that_is_stopped_leaves_nothing() {
    for rule in rules()
        .iter()
        .filter(|rule| rule.id > "P20" && rule.id.len() == 3)
    {
        let (cloud, context) = (furnished(), Context::new());
        let target = provider(&cloud, true, &context).await;
        let stop = CancellationToken::new();
        let watched = stop.clone();
        let tell = move |progress: Progress<'_>| {
            if let Progress::Checked(outcome) = progress
                && outcome.id == rule.id
            {
                watched.cancel();
            }
        };
        let report = check_over(channel(&target, None).unwrap(), everything(), stop, &tell)
            .await
            .unwrap();
        let is_last = rule.id == "P61";
        assert!(report.stopped, "stopped after {}", rule.id);
        assert!(
            is_last || matches!(report.outcomes.last().unwrap().verdict, Verdict::Skipped(_)),
            "{report:?}"
        );
        assert_eq!(
            (report.left, cloud.reservations()),
            (vec![], vec![]),
            "{}",
            rule.id
        );
    }
}

#[tokio::test]
async fn a_rule_that_is_cut_off_within_its_call_leaves_nothing() {
    let (cloud, context) = (furnished(), Context::new());
    let target = provider(&cloud, true, &context).await;
    let stop = CancellationToken::new();
    let (seen, at) = (Mutex::new(0), cloud.clone());
    let tell = |_: Progress<'_>| *seen.lock() += 1;
    let run = check_over(channel(&target, None).unwrap(), everything(), stop.clone(), &tell);
    let cut = async {
        // The first reservation is made, and its answer may be on its way.
        while at.calls(Operation::CreateReservation) == 0 {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    let (report, ()) = futures::future::join(run, cut).await;
    assert_eq!((report.unwrap().left, cloud.reservations()), (vec![], vec![]));
    assert!(*seen.lock() > 0);
}

#[tokio::test]
async fn what_cannot_be_given_back_is_named() {
    let (cloud, context) = (furnished(), Context::new());
    let target = provider(&cloud, true, &context).await;
    for _ in 0..64 {
        let error = CloudError::new(CloudErrorKind::Denied, "delete", "no");
        cloud.fail(Operation::DeleteReservation, error);
    }
    let options = Options {
        rules: ["P22".to_owned()].into(),
        ..Options::default()
    };
    let report = look(&target, options).await;
    let held = &cloud.reservations()[0].id;
    assert!(report.is_broken());
    assert!(
        report.left.len() == 1 && report.left[0].contains(held.as_str()),
        "{:?}",
        report.left
    );
}

#[tokio::test]
async fn a_provider_that_does_not_answer_cannot_be_asked() {
    let (listener, connector) = groundplane_runtime::grpc::memory();
    drop(listener);
    let target = groundplane_runtime::grpc::Target::Memory(connector);
    let error = super::super::run(
        &target,
        None,
        Options::default(),
        CancellationToken::new(),
        &|_| {},
    )
    .await;
    assert!(matches!(error, Err(RunError::Unreachable { .. })), "{error:?}");
}

/// The specification and the program have the same rules, in the same order.
#[test]
fn the_specification_tells_the_rules_that_are_checked() {
    let specification = include_str!("../../../../../docs/provider.md");
    let told: Vec<_> = specification
        .lines()
        .filter_map(|line| line.strip_prefix("| P")?.split_once(" |"))
        .map(|(number, _)| format!("P{number}"))
        .collect();
    let checked: Vec<_> = rules().iter().map(|rule| rule.id).collect();
    assert_eq!(told, checked.iter().map(ToString::to_string).collect::<Vec<_>>());
}
