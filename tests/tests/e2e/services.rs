//! Journey 1 with addresses from configured ranges, as one process and as one process a service.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use groundplane_core::names::SERVICE_POOL;
use groundplane_tests::kube_api::{audit, ingress_of};
use groundplane_tests::{Mode, WorldOptions, eventually, throughout};
use k8s_openapi::api::core::v1::Service;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::announced::{condition, finalized, refusal};

/// S2, S5: finalizer, address, status with ipMode VIP, condition and one event, by two patches of ours; the deletion
/// returns the address, and the finalizer goes last.
async fn an_address_comes_and_goes(mode: Mode) -> Result<()> {
    let world = WorldOptions::fixed()
        .mode(mode)
        .gateway("  announcer: empty\n")
        .start("service")
        .await?;
    let corner = &world.corner;
    // Where there is no node, the Service is warned about that, too.
    corner.create_node(corner.node_draft("a")).await?;
    eventually("the node is known", async || {
        let overview = world.ctl(&["overview"]).await?;
        ensure!(overview["nodes"] == 1, "{overview}");
        Ok(())
    })
    .await?;
    let mark = corner.mark().await?;
    let service = corner.add_service("web").await?;
    let addresses = corner.addresses_of("web", 1).await?;
    ensure!(addresses[0].starts_with("192.0.2."), "{addresses:?}");
    let settled = corner
        .service_until("web", "is settled", |service| {
            condition(service)
                .filter(|condition| condition.status == "True")
                .map(|_| service.clone())
        })
        .await?;
    ensure!(finalized(&settled), "it has no finalizer");
    let ingress = settled
        .status
        .context("it is missing")?
        .load_balancer
        .context("it is missing")?
        .ingress
        .context("it is missing")?;
    assert_eq!(ingress[0].ip_mode.as_deref(), Some("VIP"));
    let event = corner.event(&service, "EnsuredLoadBalancer").await?;
    ensure!(event.message.unwrap_or_default().contains(&addresses[0]));
    let writes = corner
        .requests_since(mark)
        .await?
        .by_agent("groundplane/")
        .writes();
    audit::ensure_writes(
        &writes,
        &[
            ("patch services", 1),
            ("patch services/status", 1),
            ("create events", 1),
        ],
    )?;
    let held = world.ctl(&["addresses"]).await?;
    assert_eq!(held[0]["address"], format!("{}/32", addresses[0]));
    assert_eq!(held[0]["owner"], format!("service {}/web", corner.namespace()));

    corner.delete_service("web").await?;
    corner.service_gone("web").await?;
    assert_eq!(world.ctl(&["addresses"]).await?, json!([]));
    assert_eq!(world.ctl(&["pools"]).await?[0]["cooling"], 1);
    Ok(())
}

#[tokio::test]
async fn an_address_comes_and_goes_in_one_process() -> Result<()> {
    an_address_comes_and_goes(Mode::One).await
}

#[tokio::test]
async fn an_address_comes_and_goes_with_a_process_a_service() -> Result<()> {
    an_address_comes_and_goes(Mode::Services).await
}

/// Dual stack: both families, in the order of `spec.ipFamilies`.
async fn dual_stack_gets_both_families(mode: Mode) -> Result<()> {
    let world = WorldOptions::fixed().mode(mode).start("dual").await?;
    let corner = &world.corner;
    corner
        .create_service(corner.service_draft("web").dual_stack())
        .await?;
    let addresses = corner.addresses_of("web", 2).await?;
    ensure!(
        addresses[0].starts_with("192.0.2.") && addresses[1].starts_with("2001:db8:1::"),
        "{addresses:?}"
    );
    Ok(())
}

#[tokio::test]
async fn dual_stack_gets_both_families_in_one_process() -> Result<()> {
    dual_stack_gets_both_families(Mode::One).await
}

#[tokio::test]
async fn dual_stack_gets_both_families_with_a_process_a_service() -> Result<()> {
    dual_stack_gets_both_families(Mode::Services).await
}

/// Requests that cannot be met say so, help, delay nobody else, and are met once that changes.
async fn what_cannot_be_had_is_said_and_had_later(mode: Mode) -> Result<()> {
    let world = WorldOptions::fixed()
        .mode(mode)
        .cooldown("0s")
        .start("refused")
        .await?;
    let corner = &world.corner;
    corner
        .create_service(corner.service_draft("first").requesting("192.0.2.7"))
        .await?;
    assert_eq!(corner.addresses_of("first", 1).await?, ["192.0.2.7"]);
    for (name, wanted, reason) in [
        ("taken", "192.0.2.7", "AddressTaken"),
        ("outside", "198.51.100.1", "OutsidePools"),
        ("family", "2001:db8:1::7", "WrongFamily"),
        ("nonsense", "one-please", "InvalidAddress"),
    ] {
        let service = corner
            .create_service(corner.service_draft(name).requesting(wanted))
            .await?;
        let why = corner.service_until(name, "says why", refusal).await?;
        assert_eq!(why, reason, "{name}");
        let event = corner.event(&service, "SyncLoadBalancerFailed").await?;
        ensure!(
            event.message.unwrap_or_default().contains(wanted),
            "{name}: the event does not name {wanted}"
        );
    }
    corner.add_service("other").await?;
    corner.addresses_of("other", 1).await?;
    let explained = world
        .ctl(&["explain", "service", &format!("{}/taken", corner.namespace())])
        .await?;
    ensure!(explained.to_string().contains("192.0.2.7"), "{explained}");

    corner.delete_service("first").await?;
    assert_eq!(corner.addresses_of("taken", 1).await?, ["192.0.2.7"]);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_had_is_said_and_had_later_in_one_process() -> Result<()> {
    what_cannot_be_had_is_said_and_had_later(Mode::One).await
}

#[tokio::test]
async fn what_cannot_be_had_is_said_and_had_later_with_a_process_a_service() -> Result<()> {
    what_cannot_be_had_is_said_and_had_later(Mode::Services).await
}

/// A full pool: the Service waits without a hot loop, and gets the address that a deletion frees.
#[tokio::test]
async fn a_full_pool_serves_who_waits_once_an_address_is_free() -> Result<()> {
    let world = WorldOptions::fixed()
        .pools("pools:\n  - {name: tiny, addresses: [\"192.0.2.1-192.0.2.2\"]}\n")
        .cooldown("0s")
        .start("full")
        .await?;
    let corner = &world.corner;
    for name in ["one", "two"] {
        corner.add_service(name).await?;
        corner.addresses_of(name, 1).await?;
    }
    corner.add_service("three").await?;
    assert_eq!(
        corner.service_until("three", "says why", refusal).await?,
        "PoolExhausted"
    );
    let mark = corner.mark().await?;
    throughout(
        Duration::from_secs(4),
        "nothing is written for who waits",
        async || {
            let writes = corner
                .requests_since(mark)
                .await?
                .by_agent("groundplane/")
                .writes();
            ensure!(writes.count() == 0, "{:?}", writes.summary());
            Ok(())
        },
    )
    .await?;
    let freed = corner.addresses_of("one", 1).await?;
    corner.delete_service("one").await?;
    assert_eq!(corner.addresses_of("three", 1).await?, freed);
    Ok(())
}

/// S1, S3: what is not ours is not touched.
#[tokio::test]
async fn services_of_others_are_not_touched() -> Result<()> {
    let world = WorldOptions::fixed().start("foreign").await?;
    let corner = &world.corner;
    let mark = corner.mark().await?;
    let internal = corner.service_draft("internal").spec(|spec| {
        spec.type_ = Some("ClusterIP".to_owned());
        spec.allocate_load_balancer_node_ports = None;
    });
    corner.create_service(internal).await?;
    corner
        .create_service(corner.service_draft("classy").class("example.com/other"))
        .await?;
    corner
        .create_service(
            corner
                .service_draft("opted-out")
                .annotation("groundplane.dev/managed", "false"),
        )
        .await?;
    corner.add_service("ours").await?;
    corner.addresses_of("ours", 1).await?;
    let writes = corner
        .requests_since(mark)
        .await?
        .by_agent("groundplane/")
        .writes();
    let foreign = writes.only(|request| ["internal", "classy", "opted-out"].contains(&request.name.as_str()));
    assert_eq!(foreign.count(), 0, "{:?}", foreign.summary());
    Ok(())
}

/// S4: a Service that stops being a load balancer gives its address back and loses the finalizer.
#[tokio::test]
async fn a_type_flip_gives_the_address_back_and_back_again_gets_one() -> Result<()> {
    let world = WorldOptions::fixed().start("flip").await?;
    let corner = &world.corner;
    corner.add_service("web").await?;
    let before = corner.addresses_of("web", 1).await?;
    let flip = json!({ "spec": { "type": "ClusterIP", "allocateLoadBalancerNodePorts": null } });
    corner.edit_service("web", &flip).await?;
    corner
        .service_until("web", "has no finalizer", |service| {
            (!finalized(service)).then_some(())
        })
        .await?;
    assert_eq!(world.ctl(&["addresses"]).await?, json!([]));
    corner
        .edit_service("web", &json!({ "spec": { "type": "LoadBalancer" } }))
        .await?;
    let after = corner.addresses_of("web", 1).await?;
    ensure!(
        before != after,
        "a released address cools down before it is given again"
    );
    Ok(())
}

/// S6, S8, S24: a wiped status comes back with one patch; a settled one is not written.
#[tokio::test]
async fn a_wiped_status_is_restored_and_a_settled_one_not_written() -> Result<()> {
    let world = WorldOptions::fixed().start("wiped").await?;
    let corner = &world.corner;
    corner.add_service("web").await?;
    let before = corner.addresses_of("web", 1).await?;
    corner
        .edit_service_status("web", &json!({ "status": { "loadBalancer": null } }))
        .await?;
    assert_eq!(corner.addresses_of("web", 1).await?, before);
    let mark = corner.mark().await?;
    throughout(
        Duration::from_secs(3),
        "a settled Service is not written",
        async || {
            let writes = corner
                .requests_since(mark)
                .await?
                .by_agent("groundplane/")
                .writes();
            ensure!(writes.count() == 0, "{:?}", writes.summary());
            Ok(())
        },
    )
    .await
}

/// A cluster that already runs: who has an address from someone else keeps it; adopted where a pool covers it and it is
/// free, left alone with a condition where not.
#[tokio::test]
async fn addresses_from_somebody_else_are_kept() -> Result<()> {
    let options = WorldOptions::fixed();
    let corner = groundplane_tests::KubeApi::shared()
        .await?
        .corner("takeover")
        .await?;
    for (name, address) in [("covered", "192.0.2.9"), ("elsewhere", "198.51.100.9")] {
        corner.add_service(name).await?;
        let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": address }] } } });
        corner.edit_service_status(name, &status).await?;
    }
    let world = options.start_in(corner).await?;
    world.ready().await?;
    let corner = &world.corner;
    corner
        .service_until("covered", "is adopted", |service| {
            condition(service)
                .filter(|condition| condition.status == "True")
                .map(drop)
        })
        .await?;
    let left = corner
        .service_until("elsewhere", "says why it is left alone", condition)
        .await?;
    assert_eq!(left.status, "False");
    corner
        .create_service(corner.service_draft("new").requesting("192.0.2.9"))
        .await?;
    assert_eq!(
        corner.service_until("new", "is refused", refusal).await?,
        "AddressTaken"
    );
    for (name, address) in [("covered", "192.0.2.9"), ("elsewhere", "198.51.100.9")] {
        let ingress = corner
            .service_until(name, "is there", |service| Some(ingress_of(service)))
            .await?;
        assert_eq!(ingress, [address], "{name}");
    }
    Ok(())
}

/// Many at once: everybody gets an address, nobody the same.
#[tokio::test]
async fn no_address_is_given_twice() -> Result<()> {
    let world = WorldOptions::fixed().start("many").await?;
    let corner = &world.corner;
    let names: Vec<String> = (0..50).map(|n| format!("web-{n}")).collect();
    let created = names.iter().map(|name| corner.add_service(name));
    for service in futures::future::join_all(created).await {
        service?;
    }
    let mut seen = BTreeSet::new();
    for name in &names {
        let address = corner.addresses_of(name, 1).await?.remove(0);
        ensure!(seen.insert(address.clone()), "{address} was given twice");
    }
    eventually("the pool counts them", async || {
        let pools = world.ctl(&["pools"]).await?;
        ensure!(pools[0]["used"] == 50, "{pools}");
        Ok(())
    })
    .await
}

/// S11: a name with two slashes names no pool. That is said, and nothing else is done: no finalizer, no address. Put right, it is served.
#[tokio::test]
async fn a_name_with_two_slashes_is_an_error_and_nothing_else() -> Result<()> {
    let world = WorldOptions::fixed().start("slashes").await?;
    let corner = &world.corner;
    corner
        .create_service(corner.service_draft("web").pool("a/b/c"))
        .await?;
    let told = corner
        .service_until("web", "says what is wrong", condition)
        .await?;
    assert_eq!(told.reason, "InvalidPool");
    ensure!(told.message.contains("a/b/c"), "{}", told.message);
    let service = corner.api::<Service>().get("web").await?;
    ensure!(
        !finalized(&service) && ingress_of(&service).is_empty(),
        "{service:?}"
    );
    assert_eq!(world.ctl(&["addresses"]).await?, json!([]));
    let right = json!({ "metadata": { "annotations": { SERVICE_POOL: "public" } } });
    corner.edit_service("web", &right).await?;
    corner.addresses_of("web", 1).await.map(drop)
}

/// S16: each change of a Service, by a real API server. What decides about its addresses (families, type, UID) is followed; ports, policy,
/// protocols and external addresses are not, and cost no write.
#[tokio::test]
async fn each_change_of_a_service_is_followed_or_costs_nothing() -> Result<()> {
    let world = WorldOptions::fixed().cooldown("0s").start("changes").await?;
    let corner = &world.corner;
    corner.add_service("web").await?;
    let told = |service: &Service| condition(service).filter(|condition| condition.status == "True");
    corner.service_until("web", "is settled", told).await?;
    let first = corner.addresses_of("web", 1).await?;
    let mark = corner.mark().await?;
    for change in [
        json!({ "ports": [{ "name": "http", "port": 81, "targetPort": 8081 }] }),
        json!({ "ports": [{ "name": "http", "port": 81, "targetPort": "web" }] }),
        json!({ "ports": [{ "name": "http", "port": 81, "appProtocol": "kubernetes.io/h2c" }] }),
        json!({ "ports": [{ "name": "http", "port": 81, "appProtocol": "kubernetes.io/ws" }] }),
        json!({ "externalTrafficPolicy": "Local" }),
        json!({ "externalTrafficPolicy": "Cluster" }),
        json!({ "externalIPs": ["198.51.100.9"] }),
        json!({ "externalIPs": ["198.51.100.10"] }),
        json!({ "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"] }),
    ] {
        corner.edit_service("web", &json!({ "spec": change })).await?;
    }
    // The last of them is followed, and so the others were looked at.
    let both = corner.addresses_of("web", 2).await?;
    assert_eq!(both[0], first[0]);
    corner.service_until("web", "is settled", told).await?;
    let writes = corner
        .requests_since(mark)
        .await?
        .by_agent("groundplane/")
        .writes();
    let writes = writes.only(|request| request.resource.starts_with("services"));
    assert_eq!(writes.count(), 1, "{:?}", writes.summary());
    let one = json!({ "spec": { "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"] } });
    corner.edit_service("web", &one).await?;
    assert_eq!(corner.addresses_of("web", 1).await?, first);
    let none = json!({ "spec": { "type": "ClusterIP", "externalTrafficPolicy": null, "allocateLoadBalancerNodePorts": null } });
    corner.edit_service("web", &none).await?;
    let let_go = |service: &Service| (!finalized(service)).then_some(());
    corner.service_until("web", "is let go", let_go).await?;
    assert_eq!(world.ctl(&["addresses"]).await?, json!([]), "both go back");
    corner
        .edit_service("web", &json!({ "spec": { "type": "LoadBalancer" } }))
        .await?;
    corner.addresses_of("web", 1).await?;
    // Another one of the same name.
    corner.delete_service("web").await?;
    corner.service_gone("web").await?;
    corner.add_service("web").await?;
    corner.addresses_of("web", 1).await?;
    let held = world.ctl(&["addresses"]).await?;
    assert_eq!(held.as_array().map(Vec::len), Some(1), "{held}");
    Ok(())
}
