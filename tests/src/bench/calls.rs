//! What a cluster of usual size costs in calls to the cloud and in writes to Kubernetes: made while groundplane runs, restarted, with a
//! node more for each announcer, and idle. Counts, and so the same on any machine.
//!
//! Targets are those that were set, to the letter. What is beyond one is the row's `excess`; bounds that are ours, and say what that
//! consists of, are beside it as `own`.

mod forms;
mod node;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use tokio::time::sleep;

use super::settled::{Families, PAGE, SettledWorld, Size};
use super::subject::Subject;
use super::{Plan, Report, Row, Target, kube_load, number, on, progress};
use crate::kube_api::Mark;
use crate::world::CloudApi;
use forms::Form;

const RESTART: &str = "calls_restart_100";
const CREATE: &str = "calls_create_1000";
const NODE: &str = "calls_node_added";
const IDLE: &str = "calls_idle";
const HOUR: &str = "calls_idle_hour";

/// Calls of a restart, other than for neighbours.
const RESTART_CALLS: f64 = 20.0;
/// How long an idle cluster is watched.
const WATCHED: Duration = Duration::from_secs(180);
/// So much shorter are all intervals where an hour is watched in that time.
const FASTER: u32 = 20;
/// In this time lists are read anew.
const ROUND: Duration = Duration::from_secs(300);
/// In this time the networks of machines are listed anew.
const NETWORKS: Duration = Duration::from_secs(3600);
/// A page of lists at Cherry Servers, unless configured.
const CHERRY_PAGE: f64 = 100.0;
/// Neighbours that may be asked for in a minute.
const NEIGHBOURS_A_MINUTE: f64 = 100.0;
/// The measures of a cluster that is made, but for those of a node that comes.
const MADE: [&str; 3] = [CREATE, IDLE, HOUR];
/// How many times smaller the cluster is beside which a node's cost is seen not to grow.
const SMALLER: usize = 10;

/// Intervals of the configuration, so much shorter. As by default otherwise.
const HASTY: (&str, &str) = (
    "  resync: 1500ms\n  cloudResync: 15s\n",
    "eip: {maxAge: 15s}\ninstances: {maxAge: 15s}\nbgp: {refresh: 18m}\n",
);

/// Calls to the cloud by route, and writes to Kubernetes by kind.
struct Counted {
    calls: BTreeMap<String, u64>,
    writes: BTreeMap<String, usize>,
}

/// A point from which on is counted.
struct Since(u64, Mark);

impl Since {
    async fn now(world: &SettledWorld) -> Result<Self> {
        Ok(Self(
            world.project.journal().mark(),
            world.cluster.api.mark().await?,
        ))
    }

    async fn counted(&self, world: &SettledWorld) -> Result<Counted> {
        Ok(Counted {
            calls: world.project.journal().counts(self.0),
            writes: world.writes_since(self.1).await?,
        })
    }
}

impl Counted {
    /// Calls whose route is such a one.
    fn of(&self, wanted: impl Fn(&str) -> bool) -> f64 {
        let found = self.calls.iter().filter(|(route, _)| wanted(route));
        number(found.map(|(_, count)| count).sum::<u64>())
    }

    fn all(&self) -> f64 {
        self.of(|_| true)
    }

    fn cloud_writes(&self) -> f64 {
        self.of(|route| !route.starts_with("GET "))
    }

    /// Pages of lists, and what there is once for the project.
    fn pages(&self) -> f64 {
        self.of(|route| route.starts_with("GET /projects/{pid}"))
    }

    /// What is read of one machine.
    fn of_machines(&self) -> f64 {
        self.of(|route| route.starts_with("GET /devices/{id}") || route.starts_with("GET /servers/{id}"))
    }

    fn kube_writes(&self) -> f64 {
        number(self.writes.values().sum::<usize>())
    }

    fn on(&self, row: Row, world: &SettledWorld) -> Row {
        row.with("services", world.size.services)
            .with("nodes", world.size.nodes)
            .with("routes", json!(self.calls))
            .with("writes", json!(self.writes))
    }
}

/// Runs what the plan wants of these measures.
pub(super) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    for cloud in CloudApi::ALL {
        if wants(plan, RESTART, cloud) {
            let measure = on(RESTART, cloud);
            let row = restart(cloud, &measure, plan.calls_size(100)).await;
            report.take(&measure, row.map(|row| vec![row]))?;
        }
    }
    for cloud in CloudApi::ALL {
        let forms: Vec<Form> = Form::ALL
            .into_iter()
            .filter(|form| wants(plan, &measure_of(*form), cloud))
            .collect();
        if forms.is_empty() && !MADE.iter().any(|measure| wants(plan, measure, cloud)) {
            continue;
        }
        match Made::start(cloud, plan.calls_size(1_000)).await {
            Ok(made) => made.go_on(plan, &forms, report).await?,
            Err(error) => report.take(&on(CREATE, cloud), Err(error))?,
        }
    }
    Ok(())
}

/// Is it wanted on this cloud? What is new or begins anew is counted on both, unless one is named.
fn wants(plan: &Plan, measure: &str, cloud: CloudApi) -> bool {
    let usual: &[CloudApi] = match measure {
        RESTART | CREATE => &CloudApi::ALL,
        _ => &[CloudApi::Equinix],
    };
    plan.wants_on(measure, cloud, usual)
}

fn measure_of(form: Form) -> String {
    format!("{NODE}_{}", form.name())
}

/// A restart where everything is settled.
async fn restart(cloud: CloudApi, measure: &str, size: Size) -> Result<Row> {
    progress(measure);
    let world = SettledWorld::start(cloud, Families::Ipv4, size).await?;
    let mut subject = Subject::start("all", |_| Ok(world.config("", ""))).await?;
    subject.leads().await?;
    world.fill().await?;
    world.settle(&subject).await?;
    let since = Since::now(&world).await?;
    subject.process.restart().await?;
    subject.process.ready().await?;
    let settled = world.settle(&subject).await?;
    let counted = since.counted(&world).await?;
    let neighbours = counted.of_machines();
    let others = counted.all() - neighbours;
    let row = Row::absolute(measure, others, "calls", Target::AtMost(RESTART_CALLS))
        .with("of_machines", neighbours)
        .with("kube_writes", counted.kube_writes())
        .with("quiet", settled.quiet)
        .and(neighbours <= number(size.nodes) && counted.kube_writes() <= 0.0);
    Ok(counted.on(row, &world))
}

/// A cluster that was filled while groundplane ran.
struct Made {
    world: SettledWorld,
    subject: Subject,
    counted: Counted,
    took: Duration,
    quiet: bool,
}

impl Made {
    async fn start(cloud: CloudApi, size: Size) -> Result<Self> {
        progress(&on(CREATE, cloud));
        let world = SettledWorld::start(cloud, Families::Ipv4, size).await?;
        let since = Since::now(&world).await?;
        let subject = Subject::start("all", |_| Ok(world.config("", ""))).await?;
        subject.leads().await?;
        let begun = Instant::now();
        let (complete, ()) = tokio::try_join!(world.complete(&subject), world.fill())?;
        let settled = world.settle(&subject).await?;
        Ok(Self {
            counted: since.counted(&world).await?,
            took: complete.duration_since(begun),
            quiet: settled.quiet,
            world,
            subject,
        })
    }

    /// An order for each Service, a session and a question for each node, and pages. Orders wait for a list that began after they were
    /// asked for, and share it: how many lists there are depends on how fast Services come and lists are read.
    fn row(&self, measure: &str) -> Row {
        let Size { services, nodes } = self.world.size;
        let pages = self.counted.pages();
        let allowed = number(services) + 2.0 * number(nodes) + pages;
        // Of a server more is read: it is, before it is told to speak BGP, since tags that this call leaves out may be taken for none.
        let more = match self.world.cloud {
            CloudApi::Equinix => 0.0,
            CloudApi::Cherry => number(nodes),
        };
        let row = Row::absolute(measure, self.counted.all(), "calls", Target::AtMost(allowed))
            .own("pages", pages, number(services))
            .own("calls", self.counted.all(), allowed + more)
            .with("quiet", self.quiet)
            .with("seconds", tenths(self.took));
        self.counted.on(row, &self.world)
    }

    async fn go_on(mut self, plan: &Plan, forms: &[Form], report: &mut Report) -> Result<()> {
        let cloud = self.world.cloud;
        if wants(plan, CREATE, cloud) {
            let measure = on(CREATE, cloud);
            let row = self.beside_a_plain_client(&measure).await;
            report.take(&measure, row.map(|row| vec![row]))?;
        }
        if wants(plan, IDLE, cloud) {
            let measure = on(IDLE, cloud);
            let row = self.idle(&measure, 1).await;
            report.take(&measure, row.map(|row| vec![row]))?;
        }
        self.nodes_added(forms, report).await?;
        if wants(plan, HOUR, cloud) {
            let measure = on(HOUR, cloud);
            let row = match self.with(HASTY).await {
                Ok(()) => self.idle(&measure, FASTER).await,
                Err(error) => Err(error),
            };
            report.take(&measure, row.map(|row| vec![row]))?;
        }
        Ok(())
    }

    /// With the time that a plain client takes which creates as many Services, makes the same patches, and asks no cloud.
    async fn beside_a_plain_client(&self, measure: &str) -> Result<Row> {
        let reference = kube_load::reference(self.world.size.services).await?;
        let row = self.row(measure).with("reference_seconds", tenths(reference));
        Ok(row.with(
            "ratio_of_seconds",
            (100.0 * reference.as_secs_f64() / self.took.as_secs_f64()).round() / 100.0,
        ))
    }

    /// Nothing is to do, `faster` times as often.
    async fn idle(&self, measure: &str, faster: u32) -> Result<Row> {
        progress(measure);
        let since = Since::now(&self.world).await?;
        sleep(WATCHED).await;
        self.subject.process.child()?.ensure_running()?;
        let counted = since.counted(&self.world).await?;
        let Size { services, nodes } = self.world.size;
        let span = WATCHED * faster;
        let rounds = (span.as_secs_f64() / ROUND.as_secs_f64()).ceil();
        let page = match self.world.cloud {
            CloudApi::Equinix => f64::from(PAGE),
            CloudApi::Cherry => CHERRY_PAGE,
        };
        // Machines, and reservations with the blocks of the machines' own addresses.
        let [machines, addresses] =
            [nodes, services + 2 * nodes].map(|rows| (number(rows) / page).ceil().max(1.0));
        let pages_once = rounds * (machines + addresses);
        // Of several pages each but the last is read twice, on the way up and on the way down.
        let pages_twice = rounds * (2.0 * (machines + addresses) - 2.0);
        // The networks of machines, for those whose neighbours are asked for.
        let networks = (span.as_secs_f64() / NETWORKS.as_secs_f64()).ceil();
        let neighbours = NEIGHBOURS_A_MINUTE * span.as_secs_f64() / 60.0;
        let (pages, of_machines) = (counted.pages(), counted.of_machines());
        let row = Row::absolute(measure, pages, "calls", Target::AtMost(pages_once))
            .own("pages", pages, pages_twice + networks)
            .with("minutes", span.as_secs() / 60)
            .with("of_machines", of_machines)
            .with("kube_writes", counted.kube_writes())
            .and(of_machines <= neighbours)
            .and(counted.kube_writes() <= 0.0 && counted.cloud_writes() <= 0.0);
        Ok(counted.on(row, &self.world))
    }

    /// Starts groundplane anew, with this configuration beside its defaults.
    async fn with(&mut self, (gateway, sections): (&str, &str)) -> Result<()> {
        let config = self.world.config(gateway, sections);
        // Two of them would compete for the lease, and the one that is measured might not lead.
        self.subject.process.terminate().await?;
        self.subject = Subject::start("all", |_| Ok(config)).await?;
        self.world.complete(&self.subject).await.map(drop)
    }
}

/// Seconds, with one digit behind the point.
fn tenths(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}
