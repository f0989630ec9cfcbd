//! What the cloud has beside what the cluster has, and the deletion of what nobody has any more.

use std::collections::{HashMap, HashSet};

use groundplane_core::{ClusterId, Owner};
use jiff::Timestamp;
use tracing::{info, instrument, warn};

use super::CloudEips;
use crate::domain::{Finding, Marks, Population, Standing, audit, own_tag};
use crate::error::EipError;
use crate::metrics::Effect;

/// What an audit found, and when the cloud was read for it.
#[derive(Clone, Debug)]
pub(crate) struct Audited {
    pub(crate) findings: Vec<Finding>,
    pub(crate) read_at: Timestamp,
}

impl CloudEips {
    /// Compares the cloud with the population. `fresh`: by a list that begins now.
    pub(crate) async fn audit(&self, population: &Population, fresh: bool) -> Result<Audited, EipError> {
        let snapshot = if fresh {
            self.0.inventory.fresh().await?
        } else {
            self.0.inventory.get(self.0.max_age).await?
        };
        let (cloud, cluster) = (&self.0.cloud, &population.cluster);
        let shared = cloud.cluster_tags(cluster);
        let owners: HashMap<String, (&Owner, Vec<String>)> = population
            .owners
            .iter()
            .filter_map(|owner| {
                let tags = cloud.tags_of(owner);
                Some((own_tag(&tags, &shared)?.clone(), (owner, tags)))
            })
            .collect();
        let owner_prefix = self.owner_prefix(cluster);
        let marks = Marks {
            telling: shared.iter().any(|tag| !self.0.marks.contains(tag)),
            cluster: shared,
            usage: &self.0.marks,
            owner_prefix: owner_prefix.as_deref(),
            owners,
            endpoint: self.0.endpoint.as_ref(),
        };
        let findings = audit(snapshot.iter(), population, &marks, |tags| {
            cloud.former(cluster, tags)
        });
        Ok(Audited {
            findings,
            read_at: snapshot.read_at,
        })
    }

    /// Deletes those of `ids` that are orphans by a list that begins now.
    #[instrument(skip_all, fields(cluster = %population.cluster), err(level = "info"))]
    pub(crate) async fn reclaim(
        &self,
        population: &Population,
        ids: &HashSet<String>,
    ) -> Result<Vec<Finding>, EipError> {
        let audited = self.audit(population, true).await?;
        let mut reclaimed = Vec::new();
        for finding in audited.findings {
            let reservation = &finding.reservation;
            if finding.standing != Standing::Orphan || !ids.contains(&reservation.id) {
                continue;
            }
            info!(
                reservation = reservation.id, prefix = ?reservation.prefix, tags = reservation.tags.join(" "),
                "reclaiming: no owner of this cluster explains it"
            );
            match self.delete(reservation, Effect::Reclaim).await {
                Ok(()) => reclaimed.push(finding),
                // What was done before is told; what is left is an orphan the next time, too.
                Err(error) if !reclaimed.is_empty() => {
                    warn!(reservation = reservation.id, %error, "not reclaimed");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(reclaimed)
    }

    /// What the tag begins with that tells an owner from others.
    fn owner_prefix(&self, cluster: &ClusterId) -> Option<String> {
        // Any name will do.
        let any = Owner::service(cluster.clone(), "a".parse().ok()?, "a".parse().ok()?);
        let (tags, shared) = (self.0.cloud.tags_of(&any), self.0.cloud.cluster_tags(cluster));
        let (key, _) = own_tag(&tags, &shared)?.split_once('=')?;
        Some(format!("{key}="))
    }
}
