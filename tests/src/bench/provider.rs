//! Services on a provider in Python that answers one call at a time, and takes its time for each reservation: what groundplane adds to
//! the provider's own answer times.
//!
//! groundplane has many calls under way, so the sum of the answer times is what cannot be undercut by asking better, only by asking less:
//! lists and repetitions are in the sum, and how many calls there were is beside it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::time::timeout;

use super::subject::{Cluster, Subject};
use super::{Row, Target, kube_load, number, progress};
use crate::providers::{Example, Provider};

/// The name of the measure.
pub(super) const MEASURE: &str = "provider_python";

/// Services at once.
const SERVICES: usize = 100;
/// What each reservation takes the provider, in seconds: a quick cloud.
const RESERVATION: f64 = 0.02;
/// It does not take longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// 100 Services until each has its address, over the sum of the provider's answer times.
pub(super) async fn run() -> Result<Vec<Row>> {
    let provider = Provider::start(Example::Python, &["--workers", "1"]).await?;
    provider.set_faults(&json!({"CreateReservation": {"before": RESERVATION}}))?;
    let cluster = Cluster::start().await?;
    let target = provider.target();
    let subject = Subject::start("all", |folder| {
        Ok(format!(
            "cluster: bench\ndriver: remote\nremote: {{address: {target:?}, capabilities: [addresses]}}\n{}",
            cluster.sections(folder)
        ))
    })
    .await?;
    subject.leads().await?;
    let draft = cluster.corner.service_draft("warm-up");
    cluster.corner.create_service(draft).await?;
    cluster.corner.addresses_of("warm-up", 1).await?;

    let namespace = cluster.corner.another_namespace("load").await?;
    let before = provider.times()?.len();
    let settling = kube_load::settle(cluster.corner.client(), &namespace, SERVICES);
    let (_, settled) = timeout(PATIENCE, settling)
        .await
        .with_context(|| format!("not settled within {PATIENCE:?}"))??;
    let answers = provider.times()?.split_off(before);
    let created = answers
        .iter()
        .filter(|(method, _)| method == "CreateReservation")
        .count();
    ensure!(created >= SERVICES, "{created} reservations are too few");
    let own: f64 = answers.iter().map(|(_, seconds)| seconds).sum();
    let ours = settled.as_secs_f64();
    progress(&format!(
        "{MEASURE}: {ours:.2} s, of which the provider took {own:.2} s for {} calls",
        answers.len()
    ));
    let row = Row::relative(MEASURE, (ours, own), "s", ours / own, Target::AtMost(1.2))
        .with("services", SERVICES)
        .with("reservations_asked_for", created)
        .with(
            "calls_per_service",
            (number(answers.len()) / number(SERVICES) * 1e2).round() / 1e2,
        );
    Ok(vec![row])
}
