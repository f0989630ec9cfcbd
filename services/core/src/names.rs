//! Names that users, clusters and clouds remember. They can never change.

/// API group of our own resources, and the prefix of every annotation and label that we write.
pub const GROUP: &str = "groundplane.dev";
/// Field manager of our server-side applies, and the `User-Agent` towards Kubernetes.
pub const FIELD_MANAGER: &str = "groundplane";
/// Load-balancer class that is always ours. Services without a class are ours by default, too.
pub const LOAD_BALANCER_CLASS: &str = "groundplane.dev/eip";
/// Finalizer of a Service that holds an address: the upstream one, so that a cluster can move between controllers.
pub const SERVICE_FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Name of the lease which the writing gateway holds, in the gateway's namespace.
pub const LEASE: &str = "groundplane-gateway";
/// Annotation of the lease: the id of the ipam store that this cluster trusts.
pub const LEASE_STORE_ID: &str = "groundplane.dev/ipam-store-id";
/// Annotation of the lease: the highest revision of that store which this cluster has seen.
pub const LEASE_STORE_REVISION: &str = "groundplane.dev/ipam-store-revision";
/// Condition on a Service: does it have the addresses that it asked for?
pub const CONDITION_ADDRESS: &str = "groundplane.dev/AddressReady";
/// Annotation on an event: the trace in which it happened.
pub const TRACE_ID: &str = "groundplane.dev/trace-id";
/// Annotation on a Service: requested addresses, comma separated, at most one a family.
pub const SERVICE_ADDRESSES: &str = "groundplane.dev/addresses";
/// Annotation on a Service: the pool to take from, `name` or `namespace/name`.
pub const SERVICE_POOL: &str = "groundplane.dev/pool";
/// Annotation on a Service: `false` leaves it to somebody else.
pub const SERVICE_MANAGED: &str = "groundplane.dev/managed";
/// The same, in the words of Cherry Servers' controller.
pub const CHERRY_SERVICE_MANAGED: &str = "cherryservers.com/loadbalancer-managed";
/// Where Cherry Servers' controller writes a Service's addresses, unless told another name, and nobody else is to be told.
pub const CHERRY_SERVICE_ADDRESSES: &str = "cherryservers.com/loadBalancerIPs";
/// Annotation on a Service: which of its fields groundplane wrote for the announcer, and what it wrote there.
pub const SERVICE_ANNOUNCED: &str = "groundplane.dev/announced";
/// Taint which kubelet puts on a node that waits for its cloud.
pub const TAINT_UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Taint of a node whose machine is off.
pub const TAINT_SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// Label of a node that no load balancer is to send to, unless its value is false. kubeadm puts it on nodes of the control plane.
pub const LABEL_EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Taint of a node that the cluster autoscaler is about to delete.
pub const TAINT_TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";
/// Annotation by which kubelet reports `--node-ip`.
pub const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";
/// Prefix of the annotations that tell a node its BGP peers, and that say on a Service where in the cloud its address is wanted; unless
/// another is configured. The Equinix controllers' own: whoever read theirs reads ours.
pub const ANNOTATION_PREFIX: &str = "metal.equinix.com";
/// The same, of Cherry Servers' controller.
pub const CHERRY_ANNOTATION_PREFIX: &str = "cherryservers.com";
/// The same, of packet-ccm.
pub const PACKET_ANNOTATION_PREFIX: &str = "packet.com";
/// Annotation on a node: the annotations by which groundplane told its BGP peers, comma separated.
pub const NODE_ANNOTATED: &str = "groundplane.dev/annotated";
/// Behind the prefix on a Service: the metro in which its elastic IP is wanted.
pub const EIP_METRO: &str = "eip-metro";
/// Behind the prefix on a Service: the facility in which its elastic IP is wanted.
pub const EIP_FACILITY: &str = "eip-facility";
/// Behind Cherry's prefix on a Service: the region in which its floating IP is wanted.
pub const FIP_REGION: &str = "fip-region";
/// Behind the prefix on a node, followed by the number of the peer and the name of a field: a BGP peer.
pub const BGP_PEERS: &str = "bgp-peers-";
/// Behind the prefix on a node: its private IPv4 network.
pub const PRIVATE_NETWORK: &str = "network-4-private";
