//! Which controller the inputs were written for, and what it did where nothing was said.

use groundplane_runtime::config::Plain;

use super::given::Inputs;
use super::parse::choose;
use super::table::{CHERRY, METAL, PACKET, Row, TABLE};
use super::url::{self, Choice};

/// A controller before us, as far as its inputs tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generation {
    /// packet-ccm.
    Packet,
    /// packet-ccm in its last weeks, with other annotations.
    LatePacket,
    /// Equinix Metal's as documented before it was released.
    DocumentedMetal,
    /// Equinix Metal's up to 3.2.2.
    EarlyMetal,
    /// Equinix Metal's since.
    Metal,
    /// Cherry Servers'.
    Cherry,
}

/// Keys and names that only packet-ccm had in its last weeks.
const LATE_PACKET: [&str; 5] = [
    "PACKET_LB",
    "PACKET_BGP_NODE_SELECTOR",
    "PACKET_ANNOTATION_SRC_IP",
    "PACKET_ANNOTATION_PEER_ASN",
    "PACKET_ANNOTATION_PEER_IP",
];
/// Keys that only packet-ccm had.
const PACKET_KEYS: [&str; 2] = ["loadbalancer-configmap", "disableLoadBalancer"];
/// Names and keys that were given up with 3.2.3.
const EARLY_METAL: [&str; 3] = [
    "METAL_LB",
    "METAL_ANNOTATION_PEER_ASNS",
    "METAL_ANNOTATION_PEER_IPS",
];
const EARLY_KEYS: [&str; 2] = ["annotationPeerASNs", "annotationPeerIPs"];
/// Those that took their place.
const LATER_METAL: [&str; 2] = ["METAL_ANNOTATION_PEER_ASN", "METAL_ANNOTATION_PEER_IP"];
const LATER_KEYS: [&str; 2] = ["annotationPeerASN", "annotationPeerIP"];

/// The path of the switch that follows where no load balancer is told.
const ANNOUNCER: &str = "gateway.announcer";
const FORMATS: &str = "gateway.annotationFormats";

impl Generation {
    /// Name of its driver.
    pub(super) fn cloud(self) -> &'static str {
        match self {
            Self::Cherry => "cherry",
            _ => "equinix",
        }
    }

    /// What it is called where its defaults are told.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Packet | Self::LatePacket => "packet-ccm",
            Self::DocumentedMetal | Self::EarlyMetal => "Equinix Metal's controller before 3.2.3",
            Self::Metal => "Equinix Metal's controller",
            Self::Cherry => "Cherry Servers' controller",
        }
    }

    /// Beginnings of its variables' names; the newest first.
    pub(super) fn prefixes(self) -> &'static [&'static str] {
        match self {
            Self::Cherry => &[CHERRY],
            _ => &[METAL, PACKET],
        }
    }

    /// Its keys of a setting.
    pub(super) fn keys(self, row: &Row) -> &'static [&'static str] {
        match self {
            Self::Cherry => row.cherry,
            _ => row.equinix,
        }
    }

    /// The one that these inputs were written for on Equinix Metal.
    pub(super) fn of_equinix(inputs: &Inputs) -> Self {
        let named = |names: &[&str]| names.iter().any(|name| inputs.variable(name).is_some());
        let keyed = |keys: &[&str]| keys.iter().any(|key| inputs.key(key).is_some());
        if !inputs.has(METAL) && (inputs.has(PACKET) || keyed(&PACKET_KEYS)) {
            return if named(&LATE_PACKET) {
                Self::LatePacket
            } else {
                Self::Packet
            };
        }
        if named(&LATER_METAL) || keyed(&LATER_KEYS) {
            Self::Metal
        } else if keyed(&["metalLB"]) {
            Self::DocumentedMetal
        } else if named(&EARLY_METAL) || keyed(&EARLY_KEYS) {
            Self::EarlyMetal
        } else {
            Self::Metal
        }
    }

    /// Is the JSON file written for Cherry Servers? It has keys that nobody else has, or a project with a number.
    pub(super) fn is_cherrys(inputs: &Inputs) -> bool {
        let own = TABLE.iter().filter(|row| row.equinix.is_empty());
        let own = own.flat_map(|row| row.cherry);
        let mut own = own.chain(&["fipTag", "fipHealthCheckUseHostIP"]);
        own.any(|key| inputs.key(key).is_some())
            || inputs
                .key("projectID")
                .is_some_and(|(_, project)| project.is_u64())
    }

    /// The Service that it kept for the API endpoint, so that it stays in place.
    pub(super) fn external_service(self) -> Option<(String, Plain)> {
        let name = match self {
            Self::Packet | Self::LatePacket => "packet-ccm",
            Self::DocumentedMetal | Self::EarlyMetal | Self::Metal => "cloud-provider-equinix-metal",
            Self::Cherry => return None,
        };
        let service = format!("kube-system/{name}-kubernetes-external");
        Some(("endpoint.service".to_owned(), Plain::Text(service)))
    }

    /// What it did where nothing was said: keys of ours, and values. `says`: was this key set by somebody?
    pub(super) fn defaults(self, says: impl Fn(&str) -> bool) -> Vec<(String, Plain)> {
        let mut values = Vec::new();
        // Either was decided: Services are somebody's.
        if !says(ANNOUNCER) && !says("gateway.controllers.service") {
            let choice = match self {
                Self::Packet | Self::LatePacket => url::of_packet(),
                _ => Choice::Off,
            };
            values.extend(choose(&choice, self.cloud()));
        }
        let formats = |format: &str| (FORMATS.to_owned(), Plain::Texts(vec![format.to_owned()]));
        match self {
            Self::Metal | Self::Cherry => {}
            Self::EarlyMetal => values.push(formats("plain")),
            Self::DocumentedMetal => values.push(formats("plural")),
            Self::Packet | Self::LatePacket => {
                let [asn, peer_asn, peer_ip] = match self {
                    Self::LatePacket => ["node-asn", "peer-asn", "peer-ip"],
                    _ => ["node.asn", "peer.asns", "peer.ips"],
                };
                let names = [("localAsn", asn), ("peerAsn", peer_asn), ("peerIp", peer_ip)];
                let own = |name: &str| says(&format!("gateway.annotations.{name}"));
                if names.iter().any(|(name, _)| own(name)) || own("srcIp") {
                    // Names of one's own are for the newer formats, so that the others are spelt out.
                    values.push(formats("plural"));
                    values.extend(names.map(|(name, default)| {
                        let path = format!("gateway.annotations.{name}");
                        (path, Plain::Text(format!("packet.com/{default}")))
                    }));
                } else {
                    values.push(formats(if self == Self::LatePacket {
                        "packet-plain"
                    } else {
                        "packet"
                    }));
                }
            }
        }
        values
    }
}
