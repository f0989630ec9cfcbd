//! CPU a Service, as Services grow in number: the last of them beside the first, in one process and at one pace.
//!
//! Without a pace this would compare something else. The API server's own creates slow down as Services grow, and what groundplane
//! pays for a Service depends on how many come at a time: of ten that come at once it is woken once, writes its store once, and finds
//! the code in the processor's caches; ten that come one by one cost up to twice as much, however few Services there are. So both parts
//! come at a pace that the API server can hold at the larger size.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Service;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::{interval, timeout};

use super::{CPU, IN_FLIGHT, PATIENCE, Row, Target, ready, settle, settle_writes, watch};
use crate::bench::subject::{Cluster, Subject};
use crate::bench::{number, progress};
use crate::kube_api::ServiceDraft;

/// A second, of either part.
const PACE: u32 = 30;

/// What a part cost.
#[derive(Clone, Copy, Debug)]
struct Part {
    cpu_micros: f64,
    per_second: f64,
}

/// The first `small` of `large` Services at the pace, then most of the rest as fast as they come, then the last `small` at the pace.
pub(super) async fn run(sizes: [usize; 2]) -> Result<Row> {
    let [small, large] = sizes.map(u32::try_from);
    let patience = PATIENCE.0 * large? + PATIENCE.1 + Duration::from_secs(4) * small? / PACE;
    let row = timeout(patience, compare(sizes)).await;
    row.with_context(|| format!("not done within {patience:?}"))?
}

async fn compare([small, large]: [usize; 2]) -> Result<Row> {
    ensure!(
        large >= 2 * small,
        "{large} Services have no first and last {small}"
    );
    let (cluster, subject) = ready().await?;
    let first = paced(&cluster, &subject, "first", small).await?;
    let between = large - 2 * small;
    if between > 0 {
        let namespace = cluster.corner.another_namespace("between").await?;
        let (begun, _) = settle(cluster.corner.client(), &namespace, between).await?;
        settle_writes(&subject, begun).await?;
    }
    let last = paced(&cluster, &subject, "last", small).await?;
    Ok(row([small, large], first, last))
}

fn row([small, large]: [usize; 2], first: Part, last: Part) -> Row {
    Row::relative(
        CPU,
        (last.cpu_micros, first.cpu_micros),
        "us",
        last.cpu_micros / first.cpu_micros,
        Target::AtMost(1.2),
    )
    .with("services", vec![small, large])
    .with(
        "services_per_second",
        vec![first.per_second.round(), last.per_second.round()],
    )
}

/// So many Services, one after another at the pace.
async fn paced(cluster: &Cluster, subject: &Subject, name: &str, count: usize) -> Result<Part> {
    let namespace = cluster.corner.another_namespace(name).await?;
    let client = cluster.corner.client();
    let watching = watch::Watching::start(client.clone(), &namespace).await?;
    let (cpu, begun) = (subject.process.child()?.cpu_time()?, Instant::now());
    tokio::try_join!(watching.until_settled(count), create(client, &namespace, count))?;
    let took = begun.elapsed();
    settle_writes(subject, begun).await?;
    let cpu = subject.process.child()?.cpu_time()?.saturating_sub(cpu);
    let part = Part {
        cpu_micros: cpu.as_secs_f64() * 1e6 / number(count),
        per_second: number(count) / took.as_secs_f64(),
    };
    progress(&format!(
        "{CPU}: the {name} {count} came at {:.0} a second",
        part.per_second
    ));
    Ok(part)
}

/// Creates them by the clock; one that is late is made up for.
async fn create(client: Client, namespace: &str, count: usize) -> Result<()> {
    let api: Api<Service> = Api::namespaced(client, namespace);
    let clock = interval(Duration::from_secs(1) / PACE);
    let due = stream::unfold((clock, 0..count), async |(mut clock, mut numbers)| {
        let number = numbers.next()?;
        clock.tick().await;
        Some((number, (clock, numbers)))
    });
    let all = due.map(|number| {
        let (api, draft) = (
            api.clone(),
            ServiceDraft::new(namespace, &format!("service-{number}")),
        );
        async move { api.create(&PostParams::default(), &draft.build()).await.map(drop) }
    });
    all.buffer_unordered(IN_FLIGHT)
        .try_collect::<()>()
        .await
        .context("create a Service")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_is_how_the_cost_grows() {
        let part = |cpu_micros| Part {
            cpu_micros,
            per_second: 30.0,
        };
        assert!(row([1, 5], part(1000.0), part(1190.0)).is_met());
        assert!(!row([1, 5], part(1000.0), part(1210.0)).is_met());
    }
}
