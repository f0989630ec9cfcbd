//! Which controller the inputs were written for, and what it did where nothing was said.

use std::fmt;

use groundplane_core::older::{self, OlderController};
use groundplane_runtime::config::Plain;

use super::given::Inputs;
use super::parse::choose;
use super::table::{CHERRY, METAL, PACKET, Row, TABLE};
use super::url::{self, Choice};

/// An older controller, as far as its inputs tell it.
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

/// An older controller, as whoever starts groundplane calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Older {
    /// packet-ccm, 1.x and 2.x
    PacketCcm,
    /// Equinix Metal's as it was documented before its first release
    MetalCcm,
    /// Equinix Metal's, 3.x
    CloudProviderEquinixMetal,
    /// Cherry Servers'
    CloudProviderCherry,
}

impl fmt::Display for Older {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PacketCcm => "packet-ccm",
            Self::MetalCcm => "metal-ccm",
            Self::CloudProviderEquinixMetal => "cloud-provider-equinix-metal",
            Self::CloudProviderCherry => "cloud-provider-cherry",
        })
    }
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
/// Keys that it never had, and that its successor had in a file.
const METAL_KEYS: [&str; 12] = [
    "loadbalancer",
    "metalLB",
    "metro",
    "bgpPass",
    "eipHealthCheckUseHostIP",
    "loadBalancerID",
    "annotationBGPPass",
    "annotationNetworkIPv4Private",
    "annotationEIPMetro",
    "annotationEIPFacility",
    "annotationPeerASN",
    "annotationPeerIP",
];
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
pub(super) const ANNOUNCER: &str = "gateway.announcer";
/// The path of the generations of annotations.
pub(super) const FORMATS: &str = "gateway.annotationFormats";

impl Generation {
    /// Name of its driver.
    pub(super) fn cloud(self) -> &'static str {
        self.of().driver.as_str()
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

    /// The one of this controller that these inputs were written for.
    pub(super) fn of_older(older: Older, inputs: &Inputs) -> Self {
        match older {
            Older::PacketCcm => Self::of_packet(inputs),
            Older::MetalCcm => Self::DocumentedMetal,
            Older::CloudProviderEquinixMetal => Self::of_metal(inputs),
            Older::CloudProviderCherry => Self::Cherry,
        }
    }

    /// The one that these inputs were written for on Equinix Metal.
    pub(super) fn of_equinix(inputs: &Inputs) -> Self {
        if !inputs.has(METAL) && (inputs.has(PACKET) || keyed(inputs, &PACKET_KEYS)) {
            Self::of_packet(inputs)
        } else {
            Self::of_metal(inputs)
        }
    }

    fn of_packet(inputs: &Inputs) -> Self {
        if named(inputs, &LATE_PACKET) {
            Self::LatePacket
        } else {
            Self::Packet
        }
    }

    fn of_metal(inputs: &Inputs) -> Self {
        if named(inputs, &LATER_METAL) || keyed(inputs, &LATER_KEYS) {
            Self::Metal
        } else if keyed(inputs, &["metalLB"]) {
            Self::DocumentedMetal
        } else if named(inputs, &EARLY_METAL) || keyed(inputs, &EARLY_KEYS) {
            Self::EarlyMetal
        } else {
            Self::Metal
        }
    }

    /// Did it ask its own machine for the facility, where nobody told it?
    pub(super) fn asked_its_machine(self) -> bool {
        !matches!(self, Self::Metal | Self::Cherry)
    }

    /// Is it Equinix Metal's only because nothing says whose it is? A file with token and project was written alike for packet-ccm.
    pub(super) fn could_be_packets(self, inputs: &Inputs) -> bool {
        matches!(self, Self::EarlyMetal | Self::Metal)
            && inputs.of().is_none()
            && inputs.file().is_some()
            && !inputs.has(METAL)
            && !keyed(inputs, &METAL_KEYS)
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

    /// Whose generation it is.
    fn of(self) -> &'static OlderController {
        match self {
            Self::Packet | Self::LatePacket => &older::PACKET_CCM,
            Self::DocumentedMetal | Self::EarlyMetal | Self::Metal => &older::EQUINIX_METAL,
            Self::Cherry => &older::CHERRY,
        }
    }

    /// What it did with the API endpoint: the Service that it kept for it, so that it stays in place, and whether every node answered for
    /// its address, so that it stays reachable where no machine carries it.
    pub(super) fn endpoint(self) -> Vec<(String, Plain)> {
        let name = match self {
            Self::DocumentedMetal => older::DOCUMENTED_EXTERNAL_SERVICE,
            _ => self.of().external_service,
        };
        let service = format!("{}/{name}", older::NAMESPACE);
        let mut values = vec![("endpoint.service".to_owned(), Plain::Text(service))];
        if self != Self::Cherry {
            values.push(("endpoint.ipMode".to_owned(), Plain::Text("VIP".to_owned())));
        }
        values
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
                let prefix = self.of().annotation_prefix;
                let own = |name: &str| says(&format!("gateway.annotations.{name}"));
                if names.iter().any(|(name, _)| own(name)) || own("srcIp") {
                    // Names of one's own are for the newer formats, so that the others are spelt out.
                    values.push(formats("plural"));
                    values.extend(names.map(|(name, default)| {
                        let path = format!("gateway.annotations.{name}");
                        (path, Plain::Text(format!("{prefix}/{default}")))
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

/// Does one of these variables say something?
fn named(inputs: &Inputs, names: &[&str]) -> bool {
    names.iter().any(|name| inputs.variable(name).is_some())
}

/// Does one of these keys?
fn keyed(inputs: &Inputs, keys: &[&str]) -> bool {
    keys.iter().any(|key| inputs.key(key).is_some())
}
