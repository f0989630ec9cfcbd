//! A node comes to a cluster where everything is settled: what is written because of it. That is to depend on that node's own peers, and
//! on nothing else; so the same is counted in a cluster of a tenth of the size, and the target is that it is no more in the large one.

use anyhow::{Context as _, Result, ensure};

use super::forms::Form;
use super::{Counted, Made, SMALLER, Since, measure_of};
use crate::bench::settled::Size;
use crate::bench::{Report, Row, Target, number, on, progress};

/// What a node gets other than its peers: provider id and labels, annotations, status, and the events about it.
const WRITES: f64 = 5.0;
/// What the cloud is asked to write: a session.
const SESSIONS: f64 = 1.0;

/// A node that came.
struct Added {
    /// Objects that tell of its peers.
    peers: usize,
    counted: Counted,
}

impl Made {
    /// Counts this for each form, in this cluster and in a smaller one.
    pub(super) async fn nodes_added(&mut self, forms: &[Form], report: &mut Report) -> Result<()> {
        if forms.is_empty() {
            return Ok(());
        }
        let Size { services, nodes } = self.world.size;
        let size = Size {
            services: (services / SMALLER).max(1),
            nodes: (nodes / SMALLER).max(1),
        };
        let mut small = Self::start(self.world.cloud, size).await;
        for form in forms {
            let measure = on(&measure_of(*form), self.world.cloud);
            let row = match &mut small {
                Ok(small) => self.beside(small, *form, &measure).await,
                Err(error) => Err(anyhow::anyhow!("the smaller cluster: {error:#}")),
            };
            report.take(&measure, row.map(|row| vec![row]))?;
        }
        Ok(())
    }

    async fn beside(&mut self, small: &mut Self, form: Form, measure: &str) -> Result<Row> {
        progress(measure);
        let small = small.node_added(form).await.context("in the smaller cluster")?;
        let large = self.node_added(form).await?;
        let both = [&large, &small];
        let [writes, before] = both.map(|added| added.counted.kube_writes());
        let [cloud_writes, cloud_before] = both.map(|added| added.counted.cloud_writes());
        let row = Row::relative(
            measure,
            (writes, before),
            "writes",
            writes / before.max(1.0),
            Target::AtMost(1.0),
        )
        .and(cloud_writes <= cloud_before)
        .own("writes", writes, WRITES + number(large.peers))
        .own("cloud_writes", cloud_writes, SESSIONS)
        .own("calls_of_the_machine", large.counted.of_machines(), 2.0)
        .with("peers", large.peers)
        .with("cloud_calls", large.counted.all())
        .with("reference_cloud_writes", cloud_before)
        .with("reference_cloud_calls", small.counted.all());
        Ok(large.counted.on(row, &self.world))
    }

    /// A node comes, where nodes are told in this form.
    async fn node_added(&mut self, form: Form) -> Result<Added> {
        let gateway = form.prepare(&self.world).await?;
        self.with((&gateway, "")).await?;
        self.world.settle(&self.subject).await?;
        let before = form.peers(&self.world).await?;
        let since = Since::now(&self.world).await?;
        self.world.add_node().await?;
        self.world.settle(&self.subject).await?;
        let counted = since.counted(&self.world).await?;
        let peers = form.peers(&self.world).await?.saturating_sub(before);
        ensure!(
            peers > 0 || form == Form::KubeVip,
            "the node's peers were not told"
        );
        Ok(Added { peers, counted })
    }
}
