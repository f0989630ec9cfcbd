//! What a speaker on a node makes of the node's annotations: by kube-vip's expressions, in bird's words.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use regex::Regex;

/// With whom a node peers, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peering {
    /// Its own AS number.
    pub local_asn: u32,
    /// Its router id, and the address that it speaks from.
    pub source: IpAddr,
    /// The AS number of all peers.
    pub peer_asn: u32,
    /// The peers.
    pub peers: BTreeSet<IpAddr>,
    /// The password for all peers.
    pub password: Option<String>,
    /// The peers are more than one hop away.
    pub multihop: bool,
}

impl Peering {
    /// Reads the annotations with this prefix as kube-vip does.
    ///
    /// # Errors
    /// Which of those that it cannot do without is missing, or what cannot be read.
    pub fn read(prefix: &str, annotations: &BTreeMap<String, String>) -> Result<Self> {
        let all = |index: &str, field: &str| -> Result<Vec<&str>> {
            let pattern = Regex::new(&format!("^{}/({index})?{field}$", regex::escape(prefix)))?;
            let found = annotations.iter().filter(|(key, _)| pattern.is_match(key));
            Ok(found.map(|(_, value)| value.as_str()).collect())
        };
        let first =
            |field: &str| -> Result<Option<&str>> { Ok(all("bgp-peers-0-", field)?.first().copied()) };
        let needed = |field: &str| first(field)?.with_context(|| format!("no {field}"));
        let lists = all("bgp-peers-[0-9]+-", "peer-ip")?;
        let listed: Vec<IpAddr> = lists
            .iter()
            .flat_map(|list| list.split(','))
            .map(|address| address.parse().with_context(|| format!("peer `{address}`")))
            .collect::<Result<_>>()?;
        let peers: BTreeSet<IpAddr> = listed.iter().copied().collect();
        ensure!(
            !peers.is_empty() && peers.len() == listed.len(),
            "none, or one twice: {listed:?}"
        );
        let password = first("bgp-pass")?.unwrap_or_default();
        let password = String::from_utf8(BASE64.decode(password).context("bgp-pass")?)?;
        Ok(Self {
            local_asn: needed("node-asn")?.parse().context("node-asn")?,
            source: needed("src-ip")?.parse().context("src-ip")?,
            peer_asn: needed("peer-asn")?.parse().context("peer-asn")?,
            peers,
            password: (!password.is_empty()).then_some(password),
            multihop: match first("peer-multi-hop")? {
                None => false,
                Some(text) => text.parse().context("peer-multi-hop")?,
            },
        })
    }

    /// The configuration of a speaker that announces these addresses, for bird; all speak BGP on `port`.
    pub fn config(&self, port: u16, announced: &[IpAddr]) -> String {
        let source = self.source;
        let route = |address: &IpAddr| format!("  route {address}/32 blackhole;\n");
        let routes: Vec<String> = announced.iter().map(route).collect();
        let sessions: String = self
            .peers
            .iter()
            .enumerate()
            .map(|(n, peer)| self.session(n, *peer, port))
            .collect();
        format!(
            "log stderr all;\nrouter id {source};\nprotocol device {{}}\n\
             protocol static addresses {{\n  ipv4;\n{}}}\n{sessions}",
            routes.concat(),
        )
    }

    fn session(&self, n: usize, peer: IpAddr, port: u16) -> String {
        let Self {
            local_asn,
            source,
            peer_asn,
            ..
        } = self;
        let distance = if self.multihop { "multihop" } else { "direct" };
        let password = self.password.as_ref();
        let password = password.map(|password| format!("password \"{password}\";"));
        format!(
            "protocol bgp peer{n} {{\n  local {source} port {port} as {local_asn};\n  \
             neighbor {peer} port {port} as {peer_asn};\n  strict bind; {distance}; {}\n  \
             connect delay time 0; connect retry time 1; error wait time 1, 2;\n  \
             ipv4 {{ import none; export where source = RTS_STATIC; next hop self; }};\n}}\n",
            password.unwrap_or_default(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let whole = |(key, value): &(&str, &str)| (format!("metal.equinix.com/{key}"), (*value).to_owned());
        pairs.iter().map(whole).collect()
    }

    #[test]
    fn annotations_are_read_as_kube_vip_reads_them() -> Result<()> {
        let complete = [
            ("bgp-peers-0-node-asn", "65000"),
            ("bgp-peers-0-peer-asn", "65530"),
            ("bgp-peers-0-src-ip", "10.0.0.2"),
            ("bgp-peers-0-peer-ip", "169.254.255.1"),
            ("bgp-peers-1-peer-ip", "169.254.255.2"),
            ("bgp-peers-1-peer-asn", "1"),
            ("bgp-peers-0-bgp-pass", "c2VjcmV0"),
            ("bgp-peers-0-peer-multi-hop", "true"),
            ("bgp-peers-x-peer-ip", "no peer"),
        ];
        let peering = Peering::read("metal.equinix.com", &annotations(&complete))?;
        assert_eq!((peering.local_asn, peering.peer_asn), (65_000, 65_530));
        assert_eq!(peering.peers.len(), 2);
        assert_eq!(peering.password.as_deref(), Some("secret"));
        assert!(peering.multihop);
        for lacking in 0..3 {
            let mut rest = complete.to_vec();
            rest.remove(lacking);
            assert!(
                Peering::read("metal.equinix.com", &annotations(&rest)).is_err(),
                "{:?}",
                complete[lacking]
            );
        }
        assert!(
            Peering::read("metalxequinix.com", &annotations(&complete)).is_err(),
            "a prefix is no pattern"
        );
        Ok(())
    }

    #[test]
    fn a_peer_that_is_named_twice_is_found_out() {
        let twice = [
            ("node-asn", "1"),
            ("src-ip", "10.0.0.2"),
            ("peer-asn", "2"),
            ("peer-ip", "10.0.0.1"),
            ("bgp-peers-0-peer-ip", "10.0.0.1"),
        ];
        assert!(Peering::read("metal.equinix.com", &annotations(&twice)).is_err());
    }
}
