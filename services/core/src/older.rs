//! The controllers that groundplane takes the place of: what each is called, and what it leaves in a cluster and in the cloud. Whoever
//! has to know one of these names reads it here.
//!
//! They are *older controllers* wherever their traces are found. One that still runs is a *rival*.

use crate::DriverName;
use crate::names::{
    ANNOTATION_PREFIX, CHERRY_ANNOTATION_PREFIX, PACKET_ANNOTATION_PREFIX, SERVICE_FINALIZER,
};

/// Where their manifests have them run, and where they keep their lease and the external Service of the API endpoint.
pub const NAMESPACE: &str = "kube-system";

/// The lease of every cloud controller manager that elects a leader, unless it was told another.
pub const LEASE: &str = "cloud-controller-manager";

/// Label of the `MetalLB` objects that Equinix Metal's and Cherry Servers' wrote, and its value: both have the same.
pub const METALLB_LABEL: (&str, &str) = ("cloud-provider", "equinix-metal");

/// The advertisement that they made by themselves. All others with their label are a user's.
pub const METALLB_ADVERTISEMENT: &str = "equinix-metal-bgp-adv";

/// Labels that mark a peer of `MetalLB` as one of a Service, by its name and its namespace. No node has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// The label with the Service's name.
    pub name: &'static str,
    /// The label with its namespace.
    pub namespace: &'static str,
}

/// How Equinix Metal's marks them. Peers that we mark are marked so, too.
pub const METAL_MARKS: Marks = Marks {
    name: "nomatch.metal.equinix.com/service-name",
    namespace: "nomatch.metal.equinix.com/service-namespace",
};

/// The tag of reservations of a version that was documented and never released.
pub const DOCUMENTED_USAGE: &str = "usage=metal-ccm-auto";

/// The external Service of the API endpoint of that version, in [`NAMESPACE`].
pub const DOCUMENTED_EXTERNAL_SERVICE: &str = "metal-ccm-kubernetes-external";

/// A controller that came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OlderController {
    /// As its makers call it.
    pub name: &'static str,
    /// The driver of its cloud.
    pub driver: DriverName,
    /// What its manifests run, the newest first.
    pub workloads: &'static [Workload],
    /// Whom the API server takes it for where it writes: its program where it updates, the name in its tag where it applies.
    pub field_managers: &'static [&'static str],
    /// Prefix of its annotations.
    pub annotation_prefix: &'static str,
    /// The tag that all of its reservations carry, as `key=value`.
    pub usage: &'static str,
    /// The external Service of the API endpoint, in [`NAMESPACE`].
    pub external_service: &'static str,
    /// How it marks a peer in `MetalLB`; `None`: not at all.
    pub marks: Option<Marks>,
    /// The finalizer of a Service that it serves; `None`: there is none.
    pub finalizer: Option<&'static str>,
    /// The Secret with its configuration, in [`NAMESPACE`].
    pub secret: &'static str,
}

/// Equinix Metal's, of the days since there were no more Packet.
pub const EQUINIX_METAL: OlderController = OlderController {
    name: "cloud-provider-equinix-metal",
    driver: DriverName::Equinix,
    workloads: &[
        Workload {
            kind: WorkloadKind::DaemonSet,
            name: "cloud-provider-equinix-metal",
        },
        // Up to 3.4.
        Workload {
            kind: WorkloadKind::Deployment,
            name: "cloud-provider-equinix-metal",
        },
    ],
    field_managers: &[
        "cloud-provider-equinix-metal",
        "cloud-provider-equinix-metal-auto",
    ],
    annotation_prefix: ANNOTATION_PREFIX,
    usage: "usage=cloud-provider-equinix-metal-auto",
    external_service: "cloud-provider-equinix-metal-kubernetes-external",
    marks: Some(METAL_MARKS),
    finalizer: Some(SERVICE_FINALIZER),
    secret: "metal-cloud-config",
};

/// Packet's, before it was Equinix Metal.
pub const PACKET_CCM: OlderController = OlderController {
    name: "packet-ccm",
    driver: DriverName::Equinix,
    workloads: &[Workload {
        kind: WorkloadKind::Deployment,
        name: "packet-cloud-controller-manager",
    }],
    field_managers: &["packet-cloud-controller-manager", "packet-ccm-auto"],
    annotation_prefix: PACKET_ANNOTATION_PREFIX,
    usage: "usage=packet-ccm-auto",
    external_service: "packet-ccm-kubernetes-external",
    marks: None,
    finalizer: None,
    secret: "packet-cloud-config",
};

/// Cherry Servers'.
pub const CHERRY: OlderController = OlderController {
    name: "cloud-provider-cherry",
    driver: DriverName::Cherry,
    workloads: &[Workload {
        kind: WorkloadKind::Deployment,
        name: "cloud-provider-cherry",
    }],
    field_managers: &["cloud-provider-cherry", "cloud-provider-cherry-auto"],
    annotation_prefix: CHERRY_ANNOTATION_PREFIX,
    usage: "usage=cloud-provider-cherry-auto",
    external_service: "cloud-provider-cherry-kubernetes-external",
    marks: Some(Marks {
        name: "nomatch.cherryservers.com/service-name",
        namespace: "nomatch.cherryservers.com/service-namespace",
    }),
    finalizer: Some(SERVICE_FINALIZER),
    secret: "cherry-cloud-config",
};

/// All of them.
pub const ALL: [&OlderController; 3] = [&EQUINIX_METAL, &PACKET_CCM, &CHERRY];

/// What a manifest runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workload {
    /// A `DaemonSet` or a `Deployment`.
    pub kind: WorkloadKind,
    /// Its name, in [`NAMESPACE`].
    pub name: &'static str,
}

/// The kind of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkloadKind {
    /// One pod a node.
    DaemonSet,
    /// So many pods.
    Deployment,
}

impl WorkloadKind {
    /// As `kubectl` calls it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DaemonSet => "daemonset",
            Self::Deployment => "deployment",
        }
    }
}

/// Those of a driver's cloud.
pub fn of(driver: DriverName) -> impl Iterator<Item = &'static OlderController> {
    ALL.into_iter().filter(move |one| one.driver == driver)
}

/// The one whom the API server calls so where it writes.
pub fn by_field_manager(manager: &str) -> Option<&'static OlderController> {
    ALL.into_iter().find(|one| one.field_managers.contains(&manager))
}

/// Every name of an external Service of the API endpoint, in [`NAMESPACE`]: of all clouds, since a cluster may have come from another.
pub fn external_services() -> impl Iterator<Item = &'static str> {
    let all = ALL.into_iter().map(|one| one.external_service);
    all.chain([DOCUMENTED_EXTERNAL_SERVICE])
}

/// Every way in which a peer of `MetalLB` was marked as a Service's.
pub fn marks() -> impl Iterator<Item = Marks> {
    ALL.into_iter().filter_map(|one| one.marks)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What tells one of them from another belongs to one alone.
    #[test]
    fn no_two_have_the_same_traces() {
        let traces: [fn(&OlderController) -> Vec<&'static str>; 7] = [
            |one| vec![one.name],
            |one| one.field_managers.to_vec(),
            |one| vec![one.annotation_prefix],
            |one| vec![one.usage],
            |one| vec![one.external_service],
            |one| vec![one.secret],
            |one| {
                let names: BTreeSet<_> = one.workloads.iter().map(|workload| workload.name).collect();
                names.into_iter().collect()
            },
        ];
        for read in traces {
            let all: Vec<&str> = ALL.into_iter().flat_map(read).collect();
            let distinct: BTreeSet<&str> = all.iter().copied().collect();
            assert_eq!(all.len(), distinct.len(), "{all:?}");
        }
    }

    #[test]
    fn each_is_found_by_its_cloud_and_by_what_it_is_called_where_it_writes() {
        let of_cloud = |driver| of(driver).map(|one| one.name).collect::<Vec<_>>();
        assert_eq!(
            of_cloud(DriverName::Equinix),
            ["cloud-provider-equinix-metal", "packet-ccm"]
        );
        assert_eq!(of_cloud(DriverName::Cherry), ["cloud-provider-cherry"]);
        assert_eq!(of_cloud(DriverName::Static), Vec::<&str>::new());
        for one in ALL {
            for manager in one.field_managers {
                assert_eq!(by_field_manager(manager), Some(one));
            }
        }
        for other in ["", "kubectl", "groundplane", "cloud-provider-equinix-metals"] {
            assert_eq!(by_field_manager(other), None, "{other}");
        }
    }

    /// The name in the tag is the one by which it applies.
    #[test]
    fn tags_and_field_managers_say_the_same() {
        for one in ALL {
            let (key, value) = one.usage.split_once('=').unwrap();
            assert_eq!(key, "usage");
            assert!(one.field_managers.contains(&value), "{}", one.name);
        }
    }
}
