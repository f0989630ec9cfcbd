//! Every setting of the older controllers, as data: how each generation calls it, what it is, and which key of ours it sets.
//!
//! `docs/configuration-inputs.md` shows the same table, and a test holds the two together.

/// A setting.
#[derive(Debug)]
pub(super) struct Row {
    /// What it is, in a few words.
    pub(super) meaning: &'static str,
    /// Environment variables, of which the first that is not empty counts.
    pub(super) environment: &'static [&'static str],
    /// Keys of the JSON file on Equinix Metal, of which the first that says something counts.
    pub(super) equinix: &'static [&'static str],
    /// The same on Cherry Servers.
    pub(super) cherry: &'static [&'static str],
    /// How its text is read.
    pub(super) kind: Kind,
    /// The key of ours that it sets; `{cloud}` is the driver. Empty: none.
    pub(super) path: &'static str,
    /// What holds where nobody says it.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for the document, which a test holds to it")
    )]
    pub(super) default: &'static str,
}

/// How a text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Never taken out of where it stands: our key is told where that is.
    Secret,
    /// A text as it is.
    Text,
    /// A text; in JSON a number, too.
    Id,
    /// An AS number.
    Asn,
    /// A TCP port; 0 says nothing.
    Port,
    /// Go's `ParseBool`.
    Flag,
    /// Who announces: a URL, the two names of a `ConfigMap`, or a switch; the name tells which.
    LoadBalancer,
    /// An AS number that the cloud's API tells since.
    PeerAsn,
    /// The load balancers of Equinix Metal, which are no more.
    LoadBalancerId,
    /// A switch of a library that we do not use.
    Debug,
}

/// Prefixes of the names of each generation, the newest first.
pub(super) const METAL: &str = "METAL_";
/// As [`METAL`].
pub(super) const PACKET: &str = "PACKET_";
/// As [`METAL`].
pub(super) const CHERRY: &str = "CHERRY_";

/// A switch whose presence counts, and no value.
pub(super) const DEBUG: &str = "PACKNGO_DEBUG";

/// The row of the API's token.
pub(super) const TOKEN: usize = 0;
/// The row of the project.
pub(super) const PROJECT: usize = 1;

/// Every setting.
pub(super) const TABLE: &[Row] = &[
    Row {
        meaning: "token of the cloud's API",
        environment: &["METAL_API_KEY", "PACKET_API_KEY", "CHERRY_API_KEY"],
        equinix: &["apiKey"],
        cherry: &["apiKey"],
        kind: Kind::Secret,
        path: "{cloud}.apiTokenFile",
        default: "required",
    },
    Row {
        meaning: "project",
        environment: &["METAL_PROJECT_ID", "PACKET_PROJECT_ID", "CHERRY_PROJECT_ID"],
        equinix: &["projectID"],
        cherry: &["projectID"],
        kind: Kind::Id,
        path: "{cloud}.projectId",
        default: "required",
    },
    Row {
        meaning: "where the API is",
        environment: &[],
        equinix: &["base-url"],
        cherry: &["base-url"],
        kind: Kind::Text,
        path: "{cloud}.baseUrl",
        default: "the cloud's own",
    },
    Row {
        meaning: "who announces addresses",
        environment: &[
            "METAL_LOAD_BALANCER",
            "METAL_LB",
            "PACKET_LB",
            "PACKET_LB_CONFIGMAP",
            "PACKET_DISABLE_LB",
            "CHERRY_LOAD_BALANCER",
        ],
        equinix: &[
            "loadbalancer",
            "metalLB",
            "loadbalancer-configmap",
            "disableLoadBalancer",
        ],
        cherry: &["loadbalancer"],
        kind: Kind::LoadBalancer,
        path: "gateway.announcer",
        default: "nobody, and Services get no addresses; of packet-ccm: `metallb-system:config`",
    },
    Row {
        meaning: "metro of new addresses",
        environment: &["METAL_METRO_NAME"],
        equinix: &["metro"],
        cherry: &[],
        kind: Kind::Text,
        path: "equinix.metro",
        default: "none",
    },
    Row {
        meaning: "facility of new addresses",
        environment: &["METAL_FACILITY_NAME", "PACKET_FACILITY_NAME"],
        equinix: &["facility"],
        cherry: &[],
        kind: Kind::Text,
        path: "equinix.facility",
        default: "none",
    },
    Row {
        meaning: "region of new addresses",
        environment: &["CHERRY_REGION_NAME"],
        equinix: &[],
        cherry: &["region"],
        kind: Kind::Text,
        path: "cherry.region",
        default: "none",
    },
    Row {
        meaning: "AS number of machines, where the project has none",
        environment: &["METAL_LOCAL_ASN", "PACKET_LOCAL_ASN"],
        equinix: &["localASN"],
        cherry: &[],
        kind: Kind::Asn,
        path: "equinix.bgp.localAsn",
        default: "65000",
    },
    Row {
        meaning: "AS number of routers",
        environment: &["METAL_PEER_ASN", "PACKET_PEER_ASN"],
        equinix: &["peerASN"],
        cherry: &[],
        kind: Kind::PeerAsn,
        path: "",
        default: "as the API says",
    },
    Row {
        meaning: "password of BGP, where the project has none",
        environment: &["METAL_BGP_PASS"],
        equinix: &["bgpPass"],
        cherry: &[],
        kind: Kind::Secret,
        path: "equinix.bgp.passwordFile",
        default: "none",
    },
    Row {
        meaning: "which nodes speak BGP",
        environment: &[
            "METAL_BGP_NODE_SELECTOR",
            "PACKET_BGP_NODE_SELECTOR",
            "CHERRY_BGP_NODE_SELECTOR",
        ],
        equinix: &["bgpNodeSelector"],
        cherry: &["bgpNodeSelector"],
        kind: Kind::Text,
        path: "gateway.bgpNodeSelector",
        default: "all",
    },
    Row {
        meaning: "tag of the API endpoint's address",
        environment: &["METAL_EIP_TAG", "PACKET_EIP_TAG", "CHERRY_FIP_TAG"],
        equinix: &["eipTag"],
        cherry: &["fipTag"],
        kind: Kind::Text,
        path: "endpoint.tag",
        default: "none, and no endpoint is moved",
    },
    Row {
        meaning: "port of the API endpoint",
        environment: &[
            "METAL_API_SERVER_PORT",
            "PACKET_API_SERVER_PORT",
            "CHERRY_API_SERVER_PORT",
        ],
        equinix: &["apiServerPort"],
        cherry: &["apiServerPort"],
        kind: Kind::Port,
        path: "endpoint.port",
        default: "that of the API servers",
    },
    Row {
        meaning: "probe the holder at its own address",
        environment: &[
            "METAL_EIP_HEALTH_CHECK_USE_HOST_IP",
            "CHERRY_FIP_HEALTH_CHECK_USE_HOST_IP",
        ],
        equinix: &["eipHealthCheckUseHostIP"],
        cherry: &["fipHealthCheckUseHostIP"],
        kind: Kind::Flag,
        path: "endpoint.healthCheckUseHostIp",
        default: "false",
    },
    Row {
        meaning: "annotation of a node: its AS number",
        environment: &[
            "METAL_ANNOTATION_LOCAL_ASN",
            "PACKET_ANNOTATION_LOCAL_ASN",
            "CHERRY_ANNOTATION_LOCAL_ASN",
        ],
        equinix: &["annotationLocalASN"],
        cherry: &["annotationLocalASN"],
        kind: Kind::Text,
        path: "gateway.annotations.localAsn",
        default: "of the generation",
    },
    Row {
        meaning: "annotation of a node: its routers' AS number",
        environment: &[
            "METAL_ANNOTATION_PEER_ASN",
            "METAL_ANNOTATION_PEER_ASNS",
            "PACKET_ANNOTATION_PEER_ASN",
            "PACKET_ANNOTATION_PEER_ASNS",
            "CHERRY_ANNOTATION_PEER_ASN",
        ],
        equinix: &["annotationPeerASN", "annotationPeerASNs"],
        cherry: &["annotationPeerASN"],
        kind: Kind::Text,
        path: "gateway.annotations.peerAsn",
        default: "of the generation",
    },
    Row {
        meaning: "annotation of a node: its routers' addresses",
        environment: &[
            "METAL_ANNOTATION_PEER_IP",
            "METAL_ANNOTATION_PEER_IPS",
            "PACKET_ANNOTATION_PEER_IP",
            "PACKET_ANNOTATION_PEER_IPS",
            "CHERRY_ANNOTATION_PEER_IP",
        ],
        equinix: &["annotationPeerIP", "annotationPeerIPs"],
        cherry: &["annotationPeerIP"],
        kind: Kind::Text,
        path: "gateway.annotations.peerIp",
        default: "of the generation",
    },
    Row {
        meaning: "annotation of a node: its own address of BGP",
        environment: &[
            "METAL_ANNOTATION_SRC_IP",
            "PACKET_ANNOTATION_SRC_IP",
            "CHERRY_ANNOTATION_SRC_IP",
        ],
        equinix: &["annotationSrcIP"],
        cherry: &["annotationSrcIP"],
        kind: Kind::Text,
        path: "gateway.annotations.srcIp",
        default: "of the generation",
    },
    Row {
        meaning: "annotation of a node: password of BGP",
        environment: &["METAL_ANNOTATION_BGP_PASS"],
        equinix: &["annotationBGPPass"],
        cherry: &[],
        kind: Kind::Text,
        path: "gateway.annotations.bgpPass",
        default: "of the generation",
    },
    Row {
        meaning: "annotation of a node: its routers are several hops away",
        environment: &["CHERRY_ANNOTATION_MULTI_HOP"],
        equinix: &[],
        cherry: &["annotationMultiHop"],
        kind: Kind::Text,
        path: "gateway.annotations.multihop",
        default: "of the generation",
    },
    Row {
        meaning: "annotation of a node: its private network",
        environment: &["METAL_ANNOTATION_NETWORK_IPV4_PRIVATE"],
        equinix: &["annotationNetworkIPv4Private"],
        cherry: &[],
        kind: Kind::Text,
        path: "gateway.annotations.networkIpv4Private",
        default: "of the generation",
    },
    Row {
        meaning: "annotation of a Service: metro, or region, of its address",
        environment: &["METAL_ANNOTATION_EIP_METRO", "CHERRY_ANNOTATION_FIP_REGION"],
        equinix: &["annotationEIPMetro"],
        cherry: &["annotationFIPRegion"],
        kind: Kind::Text,
        path: "gateway.annotations.eipMetro",
        default: "of the generation",
    },
    Row {
        meaning: "annotation of a Service: facility of its address",
        environment: &["METAL_ANNOTATION_EIP_FACILITY"],
        equinix: &["annotationEIPFacility"],
        cherry: &[],
        kind: Kind::Text,
        path: "gateway.annotations.eipFacility",
        default: "of the generation",
    },
    Row {
        meaning: "load balancer of Equinix Metal, which is no more",
        environment: &["METAL_LOAD_BALANCER_ID"],
        equinix: &["loadBalancerID"],
        cherry: &[],
        kind: Kind::LoadBalancerId,
        path: "",
        default: "refused",
    },
    Row {
        meaning: "calls of the API in the log",
        environment: &[DEBUG],
        equinix: &[],
        cherry: &[],
        kind: Kind::Debug,
        path: "",
        default: "`--log debug` instead",
    },
];
