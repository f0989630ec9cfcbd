//! What a cluster at rest costs: an hour of paused time in which nothing happens, with the configuration as it is by default.

use std::time::Duration;

use groundplane_tests::chaos::{Announcer, Plan, Tally};
use tokio::time::{Instant, sleep_until};

use super::alone::alone;
use super::start_due;
use super::world::{Pace, World};

/// Until everybody has what they need.
const CALM: Duration = Duration::from_secs(600);
/// Until what is done once for each of them after that has been done, too.
const SETTLE: Duration = Duration::from_secs(900);
/// How long it is looked at.
const HOUR: Duration = Duration::from_secs(3_600);
/// Between two looks.
const LOOK: Duration = Duration::from_secs(30);

/// What an hour costs.
#[derive(Debug)]
struct Cost {
    /// Calls to the cloud, by what they ask.
    asked: Tally,
    /// Changes of the cluster but for leases, and of the cloud.
    writes: u64,
}

/// An hour in the life of a cluster of this size that has all that it needs.
async fn hour(services: usize, machines: usize, announcer: Announcer) -> Result<Cost, String> {
    let plan = Plan {
        announcer,
        services,
        machines,
        first: services,
        events: Vec::new(),
        ..Plan::new(0)
    };
    let world = World::new(plan, Pace::Default);
    let end = Instant::now() + CALM;
    world.live();
    while let Some(unwell) = world.unwell() {
        if Instant::now() >= end {
            return Err(format!("after {CALM:?}: {unwell}"));
        }
        until(&world, Instant::now() + LOOK).await;
        world.live();
    }
    until(&world, Instant::now() + SETTLE).await;
    let (before, writes) = (world.asked(), world.state().writes);
    until(&world, Instant::now() + HOUR).await;
    world.verdict()?;
    if let Some(unwell) = world.unwell() {
        return Err(format!("after an hour: {unwell}"));
    }
    let mut asked = world.asked();
    for (what, count) in before {
        *asked.entry(what).or_default() -= count;
    }
    asked.retain(|_, count| *count > 0);
    Ok(Cost {
        asked,
        writes: world.state().writes - writes,
    })
}

/// Lets time go on until then; nobody changes anything.
async fn until(world: &World, then: Instant) {
    while Instant::now() < then {
        start_due(world).await;
        sleep_until(then.min(Instant::now() + LOOK)).await;
    }
}

/// At rest, a cluster costs a list of each kind every five minutes, and no write at all, for an hour.
#[test]
fn an_hour_at_rest_costs_a_list_of_each_kind_every_five_minutes_and_no_write() {
    for (services, machines, announcer) in [
        (1_000, 50, Announcer::Nobody),
        (100, 10, Announcer::Metallb),
        (100, 10, Announcer::MetallbConfigMap),
    ] {
        let cost =
            alone(0, hour(services, machines, announcer)).unwrap_or_else(|failure| panic!("{failure}"));
        println!("{services} Services, {machines} nodes, {announcer:?}: {cost:?}");
        assert_eq!(cost.writes, 0, "{cost:?}");
        // Twelve times five minutes, and one at the edge.
        let lists = [
            "list reservations",
            "list machines",
            "list sessions",
            "read project",
        ];
        for (what, count) in &cost.asked {
            let most = match *what {
                what if lists.contains(&what) => 13,
                // They are read again every six hours.
                "read neighbors" => u64::try_from(machines).expect("few"),
                _ => 0,
            };
            assert!(*count <= most, "{what}: {cost:?}");
        }
        assert!(
            cost.asked.contains_key("list reservations"),
            "it does not look: {cost:?}"
        );
    }
}
