//! The forms in which speakers are told what to announce.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

use crate::bench::settled::SettledWorld;
use crate::kube_api::Corner;
use crate::{chart, metallb};

/// An announcer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The nodes' annotations.
    KubeVip,
    /// Custom resources.
    Metallb,
    /// A `ConfigMap`.
    ConfigMap,
}

impl Form {
    pub(super) const ALL: [Self; 3] = [Self::KubeVip, Self::Metallb, Self::ConfigMap];

    /// As in the name of a measure.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::KubeVip => "kube_vip",
            Self::Metallb => "metallb",
            Self::ConfigMap => "metallb_configmap",
        }
    }

    /// As in the configuration.
    fn announcer(self) -> &'static str {
        match self {
            Self::KubeVip => "kube-vip",
            Self::Metallb => "metallb",
            Self::ConfigMap => "metallb-configmap",
        }
    }

    /// Makes what this form needs in the cluster; the keys of the section `gateway`.
    pub(super) async fn prepare(self, world: &SettledWorld) -> Result<String> {
        let (corner, announcer) = (&world.cluster.corner, self.announcer());
        if self == Self::KubeVip {
            return Ok(format!("  announcer: {announcer}\n"));
        }
        if self == Self::Metallb {
            metallb::install(&corner.client()).await?;
        }
        let namespace = corner.another_namespace(&self.suffix()).await?;
        chart::grant_metallb(&corner.client(), announcer, &namespace).await?;
        Ok(format!(
            "  announcer: {announcer}\n  metallb: {{namespace: {namespace}}}\n"
        ))
    }

    /// How many peers MetalLB is told of; none where nodes are told.
    pub(super) async fn peers(self, world: &SettledWorld) -> Result<usize> {
        let corner = &world.cluster.corner;
        let namespace = self.namespace(corner);
        match self {
            Self::KubeVip => Ok(0),
            Self::Metallb => Ok(metallb::objects(corner, &namespace, "BGPPeer").await?.len()),
            Self::ConfigMap => {
                let api: Api<ConfigMap> = Api::namespaced(corner.client(), &namespace);
                let data = api.get("config").await?.data.context("an empty ConfigMap")?;
                Ok(data
                    .values()
                    .map(|text| text.matches("peer-address:").count())
                    .sum())
            }
        }
    }

    fn namespace(self, corner: &Corner) -> String {
        format!("{}-{}", corner.name(), self.suffix())
    }

    fn suffix(self) -> String {
        format!("told-by-{}", self.name().replace('_', "-"))
    }
}
