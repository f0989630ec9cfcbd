//! A cloud that fails at random, by a seed, while Services come and go and groundplane is killed: in the end everybody has one
//! elastic IP, and the cloud has none too many.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use groundplane_sandbox::{Action, ProjectOptions, RandomPlan};
use groundplane_tests::{World, WorldOptions, eventually};

/// Every fault that a create, a delete or a list may meet.
fn faults() -> Vec<Action> {
    vec![
        Action::status(500),
        Action::too_many_requests(Some(1), None),
        Action::DropBefore,
        Action::DropAfter,
        Action::HalfBody,
        Action::MalformedJson,
        Action::latency(Duration::from_millis(300)),
    ]
}

async fn come_and_go(world: &mut World) -> Result<()> {
    for n in 0..16 {
        let draft = world.corner.service_draft(&format!("web-{n}"));
        world.corner.create_service(draft).await?;
        if n == 8 {
            world.kill_and_restart().await?;
        }
        if n % 4 == 3 {
            world.corner.delete_service(&format!("web-{}", n - 2)).await?;
        }
    }
    Ok(())
}

/// E40, E41, E45: whatever the cloud did in between.
#[tokio::test]
async fn a_cloud_that_fails_at_random_leaks_and_doubles_nothing() -> Result<()> {
    for seed in [1, 2, 3] {
        let options = ProjectOptions {
            list_machine_blocks: false,
            ..ProjectOptions::default()
        };
        let mut world = WorldOptions::equinix(options)
            .start(&format!("chaos-{seed}"))
            .await?;
        let plan = RandomPlan {
            seed,
            per_mille: 250,
            actions: faults(),
            project: None,
            method: None,
            route: None,
            at_most: None,
        };
        world.project()?.fault_plan(plan);
        come_and_go(&mut world).await?;
        let journal = world.project()?.journal();
        eventually(format!("seed {seed}: the cloud failed"), async || {
            ensure!(
                journal.since(0).iter().any(|entry| entry.fault.is_some()),
                "not yet"
            );
            Ok(())
        })
        .await?;
        world.project()?.clear_faults();

        let left: Vec<String> = (0..16)
            .filter(|n| n % 4 != 1)
            .map(|n| format!("web-{n}"))
            .collect();
        let mut shown = BTreeSet::new();
        for name in &left {
            let addresses = world.corner.addresses_of(name, 1).await;
            let address = addresses.with_context(|| format!("seed {seed}"))?.remove(0);
            ensure!(
                shown.insert(address.clone()),
                "seed {seed}: {address} was given twice"
            );
        }
        for n in [1, 5, 9, 13] {
            world.corner.service_gone(&format!("web-{n}")).await?;
        }
        let what = format!("seed {seed}: the cloud has what is shown, and no more");
        eventually(what, async || {
            let reserved = world.project()?.reservations();
            let reserved: BTreeSet<String> = reserved
                .iter()
                .filter_map(|one| Some(one.address?.to_string()))
                .collect();
            ensure!(reserved == shown, "reserved {reserved:?}, shown {shown:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}
