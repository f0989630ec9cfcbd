//! Names of annotations: those that tell a node its BGP peers, and those that say on a Service where its elastic IP is wanted.
//!
//! Each generation of the controllers that came before had names of its own, and readers (kube-vip, scripts on machines) know one of
//! them. So a *format* is a table of names, and several can be written at the same time. A name with [`NUMBER`] in it is written once a
//! peer; one without is written once, for all of them.

use groundplane_core::DriverName;
use groundplane_core::names::{
    ANNOTATION_PREFIX, BGP_PEERS, CHERRY_ANNOTATION_PREFIX, EIP_FACILITY, EIP_METRO, FIP_REGION,
    PACKET_ANNOTATION_PREFIX, PRIVATE_NETWORK,
};
use serde::{Deserialize, Serialize};

use super::Config;

/// Stands in a name for the number of the peer, from 0.
pub(crate) const NUMBER: &str = "{{n}}";

/// Whole names of annotations, with `{{n}}` for the number of the peer where it is written once a peer. Empty: as the format has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Annotations {
    /// Our AS number.
    pub local_asn: String,
    /// The peer's AS number.
    pub peer_asn: String,
    /// The peer's address; all of them, comma separated, in a name without `{{n}}`.
    pub peer_ip: String,
    /// The address that the machine must speak from.
    pub src_ip: String,
    /// The TCP MD5 password, in base64.
    pub bgp_pass: String,
    /// `true` where the peer is more than one hop away.
    pub multihop: String,
    /// The private IPv4 network of the machine.
    pub network_ipv4_private: String,
    /// On a Service: the metro (Cherry: the region) of its elastic IP.
    pub eip_metro: String,
    /// On a Service: the facility of its elastic IP.
    pub eip_facility: String,
}

/// A generation of annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnnotationFormat {
    /// `<prefix>/bgp-peers-<n>-peer-ip` and so on: Equinix since 3.2.3, and Cherry.
    Indexed,
    /// `<prefix>/peer-ip` and so on, addresses comma separated: Equinix 3.0 to 3.2.2.
    Plain,
    /// `<prefix>/peer-ips` and so on: as the documents of that time had it.
    Plural,
    /// `packet.com/peer.ips` and so on: packet-ccm.
    Packet,
    /// `packet.com/peer-ip` and so on: packet-ccm in its last weeks.
    PacketPlain,
}

/// What is told of a peer, in the order in which it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Field {
    LocalAsn,
    PeerAsn,
    PeerIp,
    SourceIp,
    Password,
    Multihop,
}

/// The name of an annotation, with the number of a peer in it or without.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name(String);

impl Name {
    /// Is it written once a peer?
    pub(crate) fn is_numbered(&self) -> bool {
        self.0.contains(NUMBER)
    }

    /// The name for the peer of this number.
    pub(crate) fn of(&self, n: u32) -> String {
        self.0.replacen(NUMBER, &n.to_string(), 1)
    }

    /// Is `key` this name? The number in it; 0 where it has none.
    pub(crate) fn number_in(&self, key: &str) -> Option<u32> {
        let Some((head, tail)) = self.0.split_once(NUMBER) else {
            return (self.0 == key).then_some(0);
        };
        let digits = key.strip_prefix(head)?.strip_suffix(tail)?;
        // As we would write it: no sign, no zero in front.
        let n: u32 = digits.parse().ok()?;
        (n.to_string() == digits).then_some(n)
    }

    /// What stands before the slash.
    pub(super) fn prefix(&self) -> &str {
        self.0.split_once('/').map_or("", |(prefix, _)| prefix)
    }

    /// As it was written.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The names of one generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// What is written of peers, and how it is called.
    pub(crate) fields: Vec<(Field, Name)>,
    /// How the private network of the machine is called; `None`: it is not written.
    pub(crate) network: Option<Name>,
    /// In a name without a number: may AS numbers be a list, as addresses are?
    pub(crate) lists_asns: bool,
    /// No peer of this cloud has a password.
    pub(crate) no_passwords: bool,
    /// Every peer of this cloud is more than one hop away.
    pub(crate) all_multihop: bool,
}

impl Layout {
    /// How this is called; `None`: it is not written.
    pub(crate) fn name(&self, field: Field) -> Option<&Name> {
        let (_, name) = self.fields.iter().find(|(other, _)| *other == field)?;
        Some(name)
    }

    /// Every name.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.fields.iter().map(|(_, name)| name).chain(&self.network)
    }
}

/// What stands before and behind the field in the names of a generation, and how it calls the fields; empty: it does not have it.
struct Generation {
    prefix: String,
    stem: String,
    names: [&'static str; 6],
    network: &'static str,
    lists_asns: bool,
}

const TODAY: [&str; 6] = ["node-asn", "peer-asn", "peer-ip", "src-ip", "bgp-pass", ""];

impl Config {
    /// Prefix of annotations, as configured or as the driver's older controller had it.
    pub(crate) fn annotation_prefix(&self) -> &str {
        match self.annotation_prefix.as_str() {
            "" if is_cherry(self.driver) => CHERRY_ANNOTATION_PREFIX,
            "" => ANNOTATION_PREFIX,
            prefix => prefix,
        }
    }

    /// The annotation of a Service that names the metro of its elastic IP; on Cherry its region.
    pub(crate) fn eip_metro(&self) -> String {
        let name = if is_cherry(self.driver) {
            FIP_REGION
        } else {
            EIP_METRO
        };
        self.or_prefixed(&self.annotations.eip_metro, name)
    }

    /// The annotation of a Service that names the facility of its elastic IP.
    pub(crate) fn eip_facility(&self) -> String {
        self.or_prefixed(&self.annotations.eip_facility, EIP_FACILITY)
    }

    /// The generations that are written, each with its names.
    pub(crate) fn layouts(&self) -> Vec<Layout> {
        let mut layouts: Vec<Layout> = Vec::new();
        for format in &self.annotation_formats {
            let layout = self.layout(*format);
            if !layouts.contains(&layout) {
                layouts.push(layout);
            }
        }
        layouts
    }

    /// Every name that is read back: of annotations on nodes and on Services.
    pub(crate) fn annotation_names(&self) -> Vec<Name> {
        let layouts = self.layouts();
        let nodes = layouts.iter().flat_map(Layout::names).cloned();
        nodes
            .chain([Name(self.eip_metro()), Name(self.eip_facility())])
            .collect()
    }

    fn or_prefixed(&self, configured: &str, name: &str) -> String {
        if configured.is_empty() {
            format!("{}/{name}", self.annotation_prefix())
        } else {
            configured.to_owned()
        }
    }

    fn generation(&self, format: AnnotationFormat) -> Generation {
        let ours = |stem: &str, names| Generation {
            prefix: self.annotation_prefix().to_owned(),
            stem: stem.to_owned(),
            names,
            network: if is_cherry(self.driver) {
                ""
            } else {
                PRIVATE_NETWORK
            },
            lists_asns: false,
        };
        let packet = |names, lists_asns| Generation {
            prefix: PACKET_ANNOTATION_PREFIX.to_owned(),
            stem: String::new(),
            names,
            network: "",
            lists_asns,
        };
        match format {
            AnnotationFormat::Indexed => {
                let mut names = TODAY;
                if is_cherry(self.driver) {
                    names[Field::Password as usize] = "";
                }
                // The controller of Equinix never wrote it, though its peers need it: readers of it are told by hand.
                if self.driver != DriverName::Equinix {
                    names[Field::Multihop as usize] = "peer-multi-hop";
                }
                ours(&format!("{BGP_PEERS}{NUMBER}-"), names)
            }
            AnnotationFormat::Plain => ours("", TODAY),
            AnnotationFormat::Plural => Generation {
                lists_asns: true,
                ..ours("", ["node-asn", "peer-asns", "peer-ips", "src-ip", "", ""])
            },
            AnnotationFormat::Packet => packet(["node.asn", "peer.asns", "peer.ips", "", "", ""], true),
            AnnotationFormat::PacketPlain => {
                packet(["node-asn", "peer-asn", "peer-ip", "src-ip", "", ""], false)
            }
        }
    }

    fn layout(&self, format: AnnotationFormat) -> Layout {
        let Generation {
            prefix,
            stem,
            names,
            network,
            lists_asns,
        } = self.generation(format);
        // A name of one's own is for today's generations: those of packet-ccm are written for readers of just these.
        let own = !matches!(format, AnnotationFormat::Packet | AnnotationFormat::PacketPlain);
        let name = |configured: &str, name: &str, stem: &str| match (own && !configured.is_empty(), name) {
            (true, _) => Some(Name(configured.to_owned())),
            (false, "") => None,
            (false, name) => Some(Name(format!("{prefix}/{stem}{name}"))),
        };
        let set = &self.annotations;
        let fields = [
            (Field::LocalAsn, &set.local_asn),
            (Field::PeerAsn, &set.peer_asn),
            (Field::PeerIp, &set.peer_ip),
            (Field::SourceIp, &set.src_ip),
            (Field::Password, &set.bgp_pass),
            (Field::Multihop, &set.multihop),
        ];
        Layout {
            fields: fields
                .into_iter()
                .zip(names)
                .filter_map(|((field, set), default)| Some((field, name(set, default, &stem)?)))
                .collect(),
            network: name(&set.network_ipv4_private, network, ""),
            lists_asns,
            no_passwords: is_cherry(self.driver),
            all_multihop: self.driver == DriverName::Equinix,
        }
    }
}

fn is_cherry(driver: DriverName) -> bool {
    driver == DriverName::Cherry
}

#[cfg(test)]
mod tests;
