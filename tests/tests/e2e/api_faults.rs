//! An API server that answers wrongly, late or not at all: what was interrupted is finished without a restart, once, and without
//! asking all the time.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use groundplane_tests::kube_api::proxy::{ApiProxy, Entry, Fault, Plan, Rule};
use groundplane_tests::{Corner, World, WorldOptions, eventually};
use pretty_assertions::assert_eq;
use tokio::time::Instant;

use crate::announced::{condition, finalized, initialised};

/// Longer than anything takes here, and short enough that a call that hangs is given up soon.
const GATEWAY: &str = "  writeTimeout: 2s\n";

/// What a write may meet.
const WRITE_FAULTS: [(&str, Fault); 9] = [
    ("conflict", Fault::Status(409)),
    ("limit", Fault::TooMany(1)),
    ("internal", Fault::Status(500)),
    ("unavailable", Fault::Status(503)),
    ("timeout", Fault::Status(504)),
    ("hang", Fault::Hang),
    ("slow", Fault::Slow(Duration::from_millis(300))),
    ("before", Fault::DropBefore),
    ("after", Fault::DropAfter),
];

async fn world(name: &str) -> Result<World> {
    WorldOptions::fixed()
        .gateway(GATEWAY)
        .api_faults([])
        .start(name)
        .await
}

/// Each of these Services has one address, and none has another's.
async fn each_has_its_own(
    corner: &Corner,
    names: impl IntoIterator<Item = &String>,
) -> Result<BTreeSet<String>> {
    let mut seen = BTreeSet::new();
    for name in names {
        let address = corner.addresses_of(name, 1).await?.remove(0);
        ensure!(seen.insert(address.clone()), "{address} was given twice");
    }
    Ok(seen)
}

/// What ipam says is held, without the length of the prefix.
async fn held(world: &World) -> Result<BTreeSet<String>> {
    let addresses = world.ctl(&["addresses"]).await?;
    let addresses = addresses.as_array().context("no list")?.iter();
    let address = |entry: &serde_json::Value| Some(entry["address"].as_str()?.split_once('/')?.0.to_owned());
    Ok(addresses.filter_map(address).collect())
}

/// Writes about the object of this name, whether they reached the API server or not.
fn writes_about(api: &ApiProxy, name: &str) -> usize {
    api.journal()
        .count(|entry: &Entry| entry.call.is_write() && entry.call.name == name)
}

/// S9, S18: the first two writes of each kind fail, for each Service in a way of its own, and for each node; later the same
/// happens to what ends them. No write is made more often than its failures explain.
#[tokio::test]
async fn a_write_that_fails_is_made_good() -> Result<()> {
    let world = world("api-writes").await?;
    let (corner, api) = (&world.corner, world.api()?);
    let names: Vec<String> = WRITE_FAULTS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let rules = |kind: &'static str, resource: &'static str, name: String, fault: Fault| {
        Rule::on(kind, resource, fault).name(name).times(2)
    };
    for (name, fault) in WRITE_FAULTS {
        // Each failure doubles the pause before the next try, from 5 s on: four in a row would outlast the test's patience.
        api.add([
            rules("patch", "services", name.to_owned(), fault),
            rules("patch", "services/status", name.to_owned(), fault).times(1),
            rules("patch", "nodes", corner.node_name(name), fault),
            rules("patch", "nodes/status", corner.node_name(name), fault).times(1),
        ]);
    }
    for name in &names {
        corner.add_service(name).await?;
        let draft = corner.node_draft(name).uninitialized();
        corner
            .create_node(draft.address("InternalIP", "10.0.0.5"))
            .await?;
    }
    let given = each_has_its_own(corner, &names).await?;
    for name in &names {
        initialised(corner, name).await?;
        // Finalizer, status, and a condition that the outage was told by; two failures of each at most.
        let about = writes_about(api, name);
        ensure!((2..=10).contains(&about), "{about} writes about Service {name}");
        let about = writes_about(api, &corner.node_name(name));
        ensure!((1..=10).contains(&about), "{about} writes about node {name}");
    }
    assert_eq!(held(&world).await?, given);

    for (name, fault) in WRITE_FAULTS {
        api.add([rules("patch", "services*", name.to_owned(), fault)]);
        corner.delete_service(name).await?;
    }
    for name in &names {
        corner.service_gone(name).await?;
    }
    eventually("all is given back", async || {
        let held = held(&world).await?;
        ensure!(held.is_empty(), "{held:?} are held");
        Ok(())
    })
    .await?;
    let log = world.log_text()?;
    ensure!(
        log.contains("not written"),
        "the log does not tell of a failed write"
    );
    ensure!(!log.contains("panicked"), "something panicked");
    Ok(())
}

/// S10: the API server says that a Service is not there whose status is to be written: that is no failure to tell of. It is still in the
/// cache, so it is looked at again.
#[tokio::test]
async fn a_status_that_cannot_be_found_is_no_failure() -> Result<()> {
    let world = world("api-not-found").await?;
    let (corner, api) = (&world.corner, world.api()?);
    api.add([Rule::on("patch", "services/status", Fault::Status(404)).times(1)]);
    let service = corner.add_service("web").await?;
    corner.addresses_of("web", 1).await?;
    corner.event(&service, "EnsuredLoadBalancer").await?;
    let events = corner.events_of(&service).await?;
    let failed =
        |event: &k8s_openapi::api::core::v1::Event| event.reason.as_deref() == Some("SyncLoadBalancerFailed");
    ensure!(!events.iter().any(failed), "{events:?}");
    let asked = |entry: &Entry| entry.call.verb == "patch" && entry.call.resource == "services/status";
    assert_eq!(api.journal().count(asked), 2);
    Ok(())
}

/// S18: what always fails delays nobody, and is tried ever more rarely. What others have just written is tried soon, but not in a loop.
#[tokio::test]
async fn one_whose_writes_always_fail_delays_nobody() -> Result<()> {
    let world = world("api-stuck").await?;
    let (corner, api) = (&world.corner, world.api()?);
    let stuck = [
        ("failing", Fault::Status(500)),
        ("hanging", Fault::Hang),
        ("changing", Fault::Status(409)),
        ("limited", Fault::TooMany(1)),
    ];
    for (name, fault) in stuck {
        api.add([Rule::on("patch", "services*", fault).name(name)]);
        corner.add_service(name).await?;
    }
    let begun = Instant::now();
    let names: Vec<String> = (0..20).map(|n| format!("web-{n}")).collect();
    for name in &names {
        corner.add_service(name).await?;
    }
    each_has_its_own(corner, &names).await?;
    eventually("each has failed more than once", async || {
        for (name, _) in stuck {
            let tried = writes_about(api, name);
            ensure!(tried > 1, "{name} was tried {tried} times");
        }
        Ok(())
    })
    .await?;
    let seconds = usize::try_from(begun.elapsed().as_secs())? + 1;
    for (name, fault) in stuck {
        let tried = writes_about(api, name);
        // Every 250 ms at most after lost races (and the quick ones before), 2.5 s and more after errors.
        let most = if fault == Fault::Status(409) {
            10 + 4 * seconds
        } else {
            2 + seconds
        };
        ensure!(tried <= most, "{name} was tried {tried} times in {seconds} s");
    }
    for (name, _) in stuck {
        let service = corner
            .api::<k8s_openapi::api::core::v1::Service>()
            .get(name)
            .await?;
        ensure!(!finalized(&service), "{name} was written to");
    }
    api.clear();
    let all: Vec<String> = names
        .iter()
        .cloned()
        .chain(stuck.map(|(name, _)| name.to_owned()))
        .collect();
    let given = each_has_its_own(corner, &all).await?;
    assert_eq!(held(&world).await?, given);
    Ok(())
}

/// What a watch may meet: each is taken up again, nothing that happened meanwhile is missed, and nothing is asked for in a loop.
#[tokio::test]
async fn a_watch_that_fails_is_taken_up_again() -> Result<()> {
    let world = world("api-watches").await?;
    let (corner, api) = (&world.corner, world.api()?);
    for (name, fault) in [
        ("expired", Fault::Status(410)),
        ("expired-inside", Fault::ErrorEvent(410)),
        ("error-inside", Fault::ErrorEvent(500)),
        ("internal", Fault::Status(500)),
        ("limited", Fault::TooMany(1)),
        ("before", Fault::DropBefore),
        ("after", Fault::DropAfter),
        ("cut", Fault::Cut(0)),
        ("cut-later", Fault::Cut(1)),
    ] {
        // Until somebody lists again where the version is forgotten for good; twice, else.
        let expired = fault == Fault::Status(410);
        let times = if expired { 4 } else { 2 };
        api.clear();
        let from = api.journal().len();
        api.add(["services", "nodes"].map(|resource| Rule::on("watch", resource, fault).times(times)));
        api.sever();
        corner.add_service(name).await?;
        corner
            .create_node(corner.node_draft(name).uninitialized())
            .await?;
        corner
            .addresses_of(name, 1)
            .await
            .with_context(|| format!("after {fault:?}"))?;
        initialised(corner, name)
            .await
            .with_context(|| format!("after {fault:?}"))?;
        let asked = api.journal().summary(from);
        for what in ["watch services", "watch nodes", "list services", "list nodes"] {
            let count = asked.get(what).copied().unwrap_or_default();
            ensure!(count <= 12, "{count} times {what} after {fault:?}: {asked:?}");
        }
        let lists = asked.get("list services").copied().unwrap_or_default();
        let forgotten = matches!(fault, Fault::Status(410) | Fault::ErrorEvent(410));
        ensure!(
            !forgotten || lists > 0,
            "{fault:?} was not answered by a list: {asked:?}"
        );
    }
    ensure!(
        world.log_text()?.contains("cannot follow"),
        "the log does not tell of a broken watch"
    );
    Ok(())
}

/// Half a page, a `continue` token that has expired, a page that fails or is refused: the list is begun anew, and what a list that was not
/// complete did not name is not taken for gone. S13: what came and went meanwhile is nobody's business.
#[tokio::test]
async fn a_list_that_fails_is_begun_anew() -> Result<()> {
    let world = WorldOptions::fixed()
        .gateway(GATEWAY)
        .api_page(3)
        .start("api-lists")
        .await?;
    let (corner, api) = (&world.corner, world.api()?);
    let mut names: Vec<String> = (0..10).map(|n| format!("web-{n}")).collect();
    for name in &names {
        corner.add_service(name).await?;
    }
    let before = each_has_its_own(corner, &names).await?;
    for (n, fault) in [
        Fault::HalfBody,
        Fault::Status(410),
        Fault::Status(500),
        Fault::TooMany(1),
        Fault::DropAfter,
    ]
    .into_iter()
    .enumerate()
    {
        let from = api.journal().len();
        api.add([
            Rule::on("watch", "services", Fault::ErrorEvent(410)).times(1),
            Rule::on("list", "services", fault).continued().times(2),
        ]);
        api.sever();
        let name = format!("new-{n}");
        corner.add_service(&name).await?;
        corner
            .addresses_of(&name, 1)
            .await
            .with_context(|| format!("after {fault:?}"))?;
        let entries = api.journal().since(from);
        ensure!(
            entries
                .iter()
                .any(|entry| entry.call.continued && entry.fault == Some(fault)),
            "{fault:?} did not happen: {:?}",
            api.journal().summary(from)
        );
        let about_others = |entry: &&Entry| entry.call.is_write() && names.contains(&entry.call.name);
        let written: Vec<_> = entries.iter().filter(about_others).collect();
        ensure!(written.is_empty(), "after {fault:?}: {written:?}");
        names.push(name);
    }
    let after = each_has_its_own(corner, &names).await?;
    ensure!(before.is_subset(&after), "{before:?} became {after:?}");
    assert_eq!(held(&world).await?, after);

    let from = api.journal().len();
    api.add([
        Rule::on("watch", "services", Fault::ErrorEvent(410)),
        Rule::on("list", "services", Fault::Status(503)),
    ]);
    api.sever();
    eventually("nothing is listed", async || {
        let asked = api.journal().summary(from);
        ensure!(asked.contains_key("list services"), "{asked:?}");
        Ok(())
    })
    .await?;
    corner.add_service("mayfly").await?;
    corner.delete_service("mayfly").await?;
    corner.service_gone("mayfly").await?;
    corner.add_service("last").await?;
    api.clear();
    corner.addresses_of("last", 1).await?;
    assert_eq!(writes_about(api, "mayfly"), 0);
    Ok(())
}

/// S15: what has our finalizer and is no `LoadBalancer` any more is cleaned up; what has it and is one keeps it; what has it not, is left
/// alone, deleted or not. All while every other write fails.
#[tokio::test]
async fn only_what_needs_it_is_cleaned_up() -> Result<()> {
    let world = world("api-cleanup").await?;
    let (corner, api) = (&world.corner, world.api()?);
    for name in ["kept", "changed", "deleted"] {
        corner.add_service(name).await?;
    }
    corner
        .create_service(
            corner
                .service_draft("plain")
                .spec(|spec| {
                    spec.type_ = Some("ClusterIP".to_owned());
                    spec.allocate_load_balancer_node_ports = None;
                })
                .finalizer("example.com/other"),
        )
        .await?;
    for name in ["kept", "changed", "deleted"] {
        corner.addresses_of(name, 1).await?;
    }
    let from = api.journal().len();
    for name in ["changed", "deleted"] {
        api.add([
            Rule::on("patch", "services*", Fault::Status(409))
                .name(name)
                .times(1),
            Rule::on("patch", "services*", Fault::DropAfter)
                .name(name)
                .skip(1)
                .times(1),
        ]);
    }
    let patch = serde_json::json!({ "spec": { "type": "ClusterIP", "allocateLoadBalancerNodePorts": null } });
    corner.edit_service("changed", &patch).await?;
    corner.delete_service("deleted").await?;
    corner.delete_service("plain").await?;
    corner.service_gone("deleted").await?;
    corner
        .service_until("changed", "is nobody's", |service| {
            (!finalized(service) && groundplane_tests::kube_api::ingress_of(service).is_empty()).then_some(())
        })
        .await?;
    let kept = corner.addresses_of("kept", 1).await?;
    assert_eq!(held(&world).await?, kept.into_iter().collect());
    let kept = corner
        .service_until("kept", "is there", |service| Some(service.clone()))
        .await?;
    ensure!(
        finalized(&kept) && condition(&kept).is_some(),
        "it lost its finalizer"
    );
    for name in ["kept", "plain"] {
        let about = |entry: &&Entry| entry.call.is_write() && entry.call.name == name;
        assert_eq!(
            api.journal().since(from).iter().filter(about).count(),
            0,
            "{name}"
        );
    }
    corner.strip_finalizers("plain").await?;
    Ok(())
}

/// Every fault at random, by a seed, over 50 Services and 10 nodes that come, change and go: in the end each has what it should,
/// once.
#[tokio::test]
async fn faults_at_random_leave_nothing_wrong_behind() -> Result<()> {
    let seed = 20_26;
    let world = world("api-random").await?;
    let (corner, api) = (&world.corner, world.api()?);
    let mut faults: Vec<Fault> = WRITE_FAULTS.iter().map(|(_, fault)| *fault).collect();
    faults.extend([
        Fault::Status(410),
        Fault::ErrorEvent(410),
        Fault::ErrorEvent(500),
        Fault::HalfBody,
        Fault::Cut(1),
        Fault::Cut(5),
    ]);
    api.plan(Plan {
        seed,
        per_mille: 200,
        faults,
    });
    let begun = Instant::now();
    for n in 0..50 {
        corner.add_service(&format!("web-{n}")).await?;
        if n % 5 == 0 {
            let draft = corner.node_draft(&format!("n{}", n / 5)).uninitialized();
            corner
                .create_node(draft.address("InternalIP", "10.0.0.5"))
                .await?;
        }
        if n % 7 == 6 {
            corner.delete_service(&format!("web-{}", n - 3)).await?;
        }
        if n % 10 == 9 {
            api.sever();
        }
    }
    let left: Vec<String> = (0..50)
        .filter(|n| n % 7 != 3 || *n > 46)
        .map(|n| format!("web-{n}"))
        .collect();
    eventually(format!("seed {seed}: enough has failed"), async || {
        let failed = api.journal().count(|entry| entry.fault.is_some());
        ensure!(failed >= 50, "{failed} calls failed");
        Ok(())
    })
    .await?;
    let calls = api.journal().len();
    let seconds = usize::try_from(begun.elapsed().as_secs())? + 1;
    ensure!(
        calls <= 60 * 15 + 40 * seconds,
        "seed {seed}: {calls} calls in {seconds} s"
    );
    api.clear();

    let given = each_has_its_own(corner, &left)
        .await
        .with_context(|| format!("seed {seed}"))?;
    for n in 0..10 {
        initialised(corner, &format!("n{n}"))
            .await
            .with_context(|| format!("seed {seed}"))?;
    }
    for n in (3..47).step_by(7) {
        corner
            .service_gone(&format!("web-{n}"))
            .await
            .with_context(|| format!("seed {seed}"))?;
    }
    eventually(
        format!("seed {seed}: what is held is what is shown"),
        async || {
            let held = held(&world).await?;
            ensure!(held == given, "held {held:?}, shown {given:?}");
            Ok(())
        },
    )
    .await?;
    ensure!(!world.log_text()?.contains("panicked"), "something panicked");
    Ok(())
}
