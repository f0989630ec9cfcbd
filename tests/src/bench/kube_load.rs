//! Many Services created at once, on a real API server: groundplane beside a plain client that makes the same writes.
//!
//! Both sides begin on an API server of their own with the same things in it, since its creates slow down as Services
//! grow. On both sides the measuring process creates the Services with 64 in flight, and watches until the last of them
//! has its address and its condition. On the one side groundplane does the rest; on the other a client that knows
//! everything beforehand patches what was created, again with 64 in flight.

mod pace;
mod plain;
mod watch;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Service;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::{sleep, timeout};

use super::subject::{Cluster, Subject};
use super::{Plan, Report, Row, Target, median, number, progress};
use crate::kube_api::{Audit, ServiceDraft, User};

/// Requests of one kind that are under way at a time: as many as groundplane works on Services.
pub(super) const IN_FLIGHT: usize = 64;
/// Services that are there before, so that connections and code paths of the API server are warm.
const WARM_UP: usize = 64;
/// Up to this size a comparison is repeated, and its median counts.
const SMALL: usize = 1_000;
const REPEATS: usize = 3;
/// Writes have ended when none has come for this long.
const QUIET: Duration = Duration::from_secs(2);
/// No comparison takes longer than this for each Service, and this on top.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(60), Duration::from_secs(60));

/// The measures beside `services_<count>`.
const PATCHES: &str = "patches_per_service";
const CPU: &str = "cpu_flat";

/// What one run of groundplane gave.
#[derive(Clone, Debug)]
struct Run {
    /// From the first create until the last Service had its address and condition.
    settled: Duration,
    /// The same until the last write of any kind, events included.
    last_write: Duration,
    /// CPU time of groundplane.
    cpu: Duration,
    audit: Audit,
}

/// One size, with the medians of its repeats.
#[derive(Debug)]
struct Size {
    count: usize,
    audit: Audit,
}

/// Runs what the plan wants of these measures.
pub(super) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let counts = plan.service_counts();
    let others = plan.wants(PATCHES);
    if plan.wants(CPU)
        && let [small, large, ..] = counts[..]
    {
        report.take(CPU, pace::run([small, large]).await.map(|row| vec![row]))?;
    }
    let mut sizes = Vec::new();
    for (place, count) in counts.into_iter().enumerate() {
        let measure = format!("services_{count}");
        let wanted = plan.wants(&measure);
        // Patches are counted at the larger of the usual sizes.
        if !(wanted || others && place == 1) {
            continue;
        }
        match size(count, wanted).await {
            Ok((size, row)) => {
                report.take(&measure, Ok(row.into_iter().collect()))?;
                sizes.push(size);
            }
            Err(error) => report.take(&measure, Err(error))?,
        }
    }
    if plan.wants(PATCHES)
        && let Some(largest) = sizes.last()
    {
        report.take(PATCHES, Ok(vec![patches(largest)]))?;
    }
    Ok(())
}

async fn size(count: usize, compare: bool) -> Result<(Size, Option<Row>)> {
    let patience = PATIENCE.0 * u32::try_from(count)? + PATIENCE.1;
    let (mut ours, mut references) = (Vec::new(), Vec::new());
    let repeats = if count <= SMALL && compare { REPEATS } else { 1 };
    for turn in 1..=repeats {
        let run = timeout(patience, with_groundplane(count)).await;
        let run = run.with_context(|| format!("not settled within {patience:?}"))??;
        progress(&format!(
            "services_{count} {turn}/{repeats}: groundplane took {:.2} s",
            run.settled.as_secs_f64()
        ));
        ours.push(run);
        if compare {
            let reference = timeout(patience, plain::run(count, false)).await;
            let reference = reference.with_context(|| format!("not done within {patience:?}"))??;
            progress(&format!(
                "services_{count} {turn}/{repeats}: the plain client took {:.2} s",
                reference.as_secs_f64()
            ));
            references.push(reference.as_secs_f64());
        }
    }
    let of = |value: fn(&Run) -> Duration| median(ours.iter().map(|run| value(run).as_secs_f64()).collect());
    let cpu_micros = of(|run| run.cpu) * 1e6 / number(count);
    let settled = of(|run| run.settled);
    let audit = ours.last().map(|run| run.audit.clone()).unwrap_or_default();
    let mut row = None;
    if compare {
        let reference = median(references);
        let ratio = reference / settled;
        let mut compared = Row::relative(
            format!("services_{count}"),
            (settled, reference),
            "s",
            ratio,
            Target::AtLeast(0.8),
        )
        .with("services_per_second", (number(count) / settled).round())
        .with("until_last_write", (of(|run| run.last_write) * 1e3).round() / 1e3)
        .with("cpu_us_per_service", cpu_micros.round())
        .with("runs", repeats);
        if !compared.is_met() {
            // What of the distance is the event that we write for each Service, and the plain client does not?
            let with_events = timeout(patience, plain::run(count, true)).await??.as_secs_f64();
            compared = compared.with("reference_with_events", (with_events * 1e3).round() / 1e3);
        }
        row = Some(compared);
    }
    Ok((Size { count, audit }, row))
}

/// An API server, and groundplane that leads and has served a first Service.
async fn ready() -> Result<(Cluster, Subject)> {
    let cluster = Cluster::start().await?;
    let subject = Subject::start("all", |folder| Ok(cluster.fixed(folder))).await?;
    subject.leads().await?;
    warm_up(&cluster).await?;
    cluster
        .corner
        .create_service(cluster.corner.service_draft("warm-up"))
        .await?;
    cluster.corner.addresses_of("warm-up", 1).await?;
    settle_writes(&subject, Instant::now()).await?;
    Ok((cluster, subject))
}

/// groundplane gives all Services their addresses.
async fn with_groundplane(count: usize) -> Result<Run> {
    let (cluster, subject) = ready().await?;
    let namespace = cluster.corner.another_namespace("load").await?;
    let (mark, cpu) = (cluster.api.mark().await?, subject.process.child()?.cpu_time()?);
    let (begun, settled) = settle(cluster.corner.client(), &namespace, count).await?;
    let last_write = settle_writes(&subject, begun).await?.max(settled);
    let cpu = subject.process.child()?.cpu_time()?.saturating_sub(cpu);
    let audit = cluster
        .api
        .requests_since(mark)
        .await?
        .by_user(User::Gateway)
        .writes();
    Ok(Run {
        settled,
        last_write,
        cpu,
        audit,
    })
}

/// Creates this many Services, and waits until each has its address: when that began, and how long it took.
pub(super) async fn settle(client: Client, namespace: &str, count: usize) -> Result<(Instant, Duration)> {
    let watching = watch::Watching::start(client.clone(), namespace).await?;
    let begun = Instant::now();
    let creating = create_all(client, namespace, count);
    let (settled, ()) = tokio::try_join!(watching.until_settled(count), creating)?;
    Ok((begun, settled.duration_since(begun)))
}

/// Waits until groundplane has written nothing for a while, and says when, after `begun`, it last did.
async fn settle_writes(subject: &Subject, begun: Instant) -> Result<Duration> {
    let (mut last, mut changed) = (subject.writes().await?, Instant::now());
    while changed.elapsed() < QUIET {
        sleep(Duration::from_millis(100)).await;
        let writes = subject.writes().await?;
        if writes > last {
            changed = Instant::now();
        }
        last = writes;
    }
    Ok(changed.duration_since(begun))
}

/// Creates some Services that need no address, and a node: without one, each Service gets a second event, which says
/// that nobody can announce its address.
async fn warm_up(cluster: &Cluster) -> Result<()> {
    cluster
        .corner
        .create_node(cluster.corner.node_draft("first"))
        .await?;
    let namespace = cluster.corner.another_namespace("warm").await?;
    let api: Api<Service> = Api::namespaced(cluster.corner.client(), &namespace);
    let all = stream::iter(0..WARM_UP).map(|number| {
        let draft = ServiceDraft::new(&namespace, &format!("warm-{number}")).spec(|spec| {
            spec.type_ = Some("ClusterIP".to_owned());
            spec.allocate_load_balancer_node_ports = None;
        });
        let api = api.clone();
        async move { api.create(&PostParams::default(), &draft.build()).await.map(drop) }
    });
    all.buffer_unordered(IN_FLIGHT)
        .try_collect::<()>()
        .await
        .context("create a Service")
}

/// Creates the Services, 64 at a time.
async fn create_all(client: Client, namespace: &str, count: usize) -> Result<()> {
    creates(client, namespace, count)
        .try_for_each(async |_| Ok(()))
        .await
}

/// The Services, as the API server has made them.
fn creates(
    client: Client,
    namespace: &str,
    count: usize,
) -> impl futures::Stream<Item = Result<Service>> + use<> {
    let namespace = namespace.to_owned();
    let api: Api<Service> = Api::namespaced(client, &namespace);
    let all = stream::iter(0..count).map(move |number| {
        let (api, draft) = (
            api.clone(),
            ServiceDraft::new(&namespace, &format!("service-{number}")),
        );
        async move {
            api.create(&PostParams::default(), &draft.build())
                .await
                .context("create a Service")
        }
    });
    all.buffer_unordered(IN_FLIGHT)
}

/// How long a plain client takes for as many Services and the same patches.
pub(super) async fn reference(count: usize) -> Result<Duration> {
    plain::run(count, false).await
}

/// The most patches that any Service got, and the events.
fn patches(size: &Size) -> Row {
    let mut patches: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut events, mut others) = (0, 0);
    for request in size.audit.requests() {
        match (request.verb.as_str(), request.resource.as_str()) {
            ("patch", "services" | "services/status") => *patches.entry(&request.name).or_default() += 1,
            ("create" | "patch", "events") => events += 1,
            _ => others += 1,
        }
    }
    let most = patches.values().copied().max().unwrap_or(0);
    let each = |count: usize| (number(count) / number(size.count) * 1e3).round() / 1e3;
    Row::absolute(PATCHES, number(most), "", Target::AtMost(3.0))
        .with("services", size.count)
        .with("patches_average", each(patches.values().sum()))
        .with("events_per_service", each(events))
        .with("other_writes", others)
        .and(events <= size.count && others == 0)
}
