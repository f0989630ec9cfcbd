//! The lease cannot be renewed: whoever cannot, stops writing before another begins, and says so.

use anyhow::{Context as _, Result, ensure};
use groundplane_tests::groundplane::Process;
use groundplane_tests::kube_api::proxy::{Entry, Fault, Rule};
use groundplane_tests::{Mode, WorldOptions, eventually};
use pretty_assertions::assert_eq;
use tokio::time::Instant;

async fn says(process: &Process, words: &str) -> Result<()> {
    eventually(format_args!("the log says {words:?}"), async || {
        ensure!(process.log_text()?.contains(words), "it does not");
        Ok(())
    })
    .await
}

fn is_lease(entry: &Entry) -> bool {
    entry.call.resource == "leases"
}

/// All of the API works but the lease: the leader stops writing, the other one takes over, and no Service is told twice.
async fn a_leader_that_cannot_renew_stops(name: &str, fault: Fault) -> Result<()> {
    let mut world = WorldOptions::fixed()
        .mode(Mode::Services)
        .api_faults([])
        .start(name)
        .await?;
    world.corner.add_service("before").await?;
    let before = world.corner.addresses_of("before", 1).await?;
    let second = world.second_gateway()?;
    second.ready().await?;

    let (from, begun) = (world.api()?.journal().len(), Instant::now());
    world.api()?.add([Rule::on("*", "leases", fault)]);
    says(world.process("gateway")?, "not leading any more").await?;
    says(&second, "\"leading\"").await?;
    let lost = world.api()?.journal().len();
    let mark = world.corner.mark().await?;
    for n in 0..5 {
        world.corner.add_service(&format!("web-{n}")).await?;
    }
    let mut seen = std::collections::BTreeSet::from([before[0].clone()]);
    for n in 0..5 {
        let address = world.corner.addresses_of(&format!("web-{n}"), 1).await?.remove(0);
        ensure!(seen.insert(address.clone()), "{address} was given twice");
    }
    let journal = world.api()?.journal();
    let written = |entry: &&Entry| entry.call.is_write() && !is_lease(entry);
    let later = journal.since(lost);
    let later: Vec<_> = later.iter().filter(written).collect();
    ensure!(later.is_empty(), "who does not lead wrote {later:?}");
    let statuses = world
        .corner
        .requests_since(mark)
        .await?
        .by_agent("groundplane/")
        .only(|request| request.verb == "patch" && request.resource == "services/status");
    assert_eq!(statuses.count(), 5, "{:?}", statuses.summary());

    // A holder tries every 250 ms until its time is up, a candidate every 500 ms; each look may be followed by a write.
    let tries = journal.since(from).into_iter().filter(is_lease).count();
    let seconds = usize::try_from(begun.elapsed().as_secs())? + 1;
    ensure!(
        tries <= 20 + 4 * seconds,
        "{tries} calls for the lease in {seconds} s"
    );

    // What works again is a follower.
    world.api()?.clear();
    let from = world.api()?.journal().len();
    eventually("it looks at the lease again", async || {
        let entries = world.api()?.journal().since(from);
        let read = entries
            .iter()
            .any(|entry| is_lease(entry) && entry.status == Some(200));
        ensure!(read, "{:?}", world.api()?.journal().summary(from));
        Ok(())
    })
    .await?;
    world.corner.add_service("last").await?;
    world.corner.addresses_of("last", 1).await?;
    let writes = world.api()?.journal().since(from);
    ensure!(
        !writes.iter().any(|entry| entry.call.is_write()),
        "a follower wrote"
    );
    Ok(())
}

#[tokio::test]
async fn a_leader_whose_renewals_fail_stops() -> Result<()> {
    a_leader_that_cannot_renew_stops("lease-503", Fault::Status(503)).await
}

#[tokio::test]
async fn a_leader_whose_renewals_are_limited_stops() -> Result<()> {
    a_leader_that_cannot_renew_stops("lease-429", Fault::TooMany(30)).await
}

#[tokio::test]
async fn a_leader_whose_renewals_hang_stops() -> Result<()> {
    a_leader_that_cannot_renew_stops("lease-hang", Fault::Hang).await
}

#[tokio::test]
async fn a_leader_whose_connections_break_stops() -> Result<()> {
    a_leader_that_cannot_renew_stops("lease-drop", Fault::DropBefore).await
}

/// A renewal or two that fail, or whose answer is lost, cost nothing: the term goes on, and Services get what they ask for.
#[tokio::test]
async fn a_renewal_that_fails_once_is_made_good() -> Result<()> {
    let world = WorldOptions::fixed().api_faults([]).start("lease-blink").await?;
    let (corner, api) = (&world.corner, world.api()?);
    for (n, fault) in [
        Fault::Status(409),
        Fault::TooMany(1),
        Fault::Status(500),
        Fault::DropBefore,
        Fault::DropAfter,
    ]
    .into_iter()
    .enumerate()
    {
        let from = api.journal().len();
        api.add([Rule::on("patch", "leases", fault).times(2)]);
        eventually(format_args!("renewed after {fault:?}"), async || {
            let entries = api.journal().since(from);
            let failed = entries.iter().rposition(|entry| entry.fault == Some(fault));
            let failed = failed.context("it has not failed yet")?;
            let renewed =
                |entry: &Entry| is_lease(entry) && entry.call.verb == "patch" && entry.status == Some(200);
            ensure!(entries[failed + 1..].iter().any(renewed), "not yet");
            Ok(())
        })
        .await?;
        let name = format!("web-{n}");
        corner.add_service(&name).await?;
        corner.addresses_of(&name, 1).await?;
    }
    let log = world.log_text()?;
    ensure!(
        log.contains("\"lease\""),
        "the log does not tell of a failed renewal"
    );
    ensure!(!log.contains("not leading any more"), "a blink ended the term");
    Ok(())
}
