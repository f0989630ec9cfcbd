//! MetalLB's `ConfigMap`, which people write by hand, with comments and in styles of their own.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{HOSTNAME, Wanted, difference, doubled, list, single, texts};

const POOLS: &str = "address-pools";
const PEERS: &str = "peers";
/// Where groundplane says for which Service a peer is.
const MARK: &str = "nomatch.metal.equinix.com/service-name";

/// What people have written, in the order in which it stands there, without the keys of the two lists that others add to.
fn blocks(edit: u32) -> [String; 4] {
    let (third, guests) = if edit & 1 == 1 {
        (
            8,
            "- name: guests\n  protocol: bgp\n  addresses:\n  - 192.168.99.0/24   # not before May\n",
        )
    } else {
        (7, "")
    };
    [
        format!("# by hand, for the {edit}th time\n"),
        format!(
            "- name: lan\n  protocol: layer2\n  # the old lab\n  addresses: [192.168.{third}.0/24]\n{guests}"
        ),
        format!(
            "bfd-profiles:\n- {{name: fast, receive-interval: {}}}\n",
            100 + edit
        ),
        format!(
            "- my-asn: 64500\n  peer-asn: 64501\n  peer-address: 10.0.1.{edit}\n  keepalive-time: \"10s\"\n  bfd-profile: fast\n"
        ),
    ]
}

/// All that people have written, as long as nobody else has.
#[must_use]
pub fn document(edit: u32) -> String {
    let [comment, pools, profiles, peers] = blocks(edit);
    format!("{comment}{POOLS}:\n{pools}{profiles}{PEERS}:\n{peers}")
}

/// Stands there what people have written, to the byte and in its order, whatever else does?
#[must_use]
pub fn is_intact(text: &str, edit: u32) -> bool {
    let mut rest = text;
    blocks(edit).iter().all(|block| {
        let Some((_, after)) = rest.split_once(block.as_str()) else {
            return false;
        };
        rest = after;
        !rest.contains(block.as_str())
    })
}

/// The text after people have changed what is theirs; `None` where that does not stand there any more.
#[must_use]
pub fn edited(text: &str, before: u32, after: u32) -> Option<String> {
    let mut text = is_intact(text, before).then(|| text.to_owned())?;
    for (old, new) in blocks(before).iter().zip(blocks(after)) {
        text = text.replacen(old.as_str(), &new, 1);
    }
    Some(text)
}

/// What is not as it should be once all is quiet.
#[must_use]
pub fn wrong_in_text(text: &str, edit: u32, wanted: &Wanted) -> Option<String> {
    if !is_intact(text, edit) {
        return Some(format!("people wrote\n{}and now it is\n{text}", document(edit)));
    }
    if wanted.addresses.is_empty() {
        let same = text == document(edit);
        return (!same).then(|| format!("nobody but people should be in\n{text}"));
    }
    let (Ok(now), Ok(people)) = (
        serde_saphyr::from_str::<Value>(text),
        serde_saphyr::from_str::<Value>(&document(edit)),
    ) else {
        return Some(format!("this is no YAML:\n{text}"));
    };
    let mut rest = now.clone();
    let is_ours = |key: &str, entry: &Value| {
        if key == POOLS {
            entry["name"].as_str().is_some_and(|name| name.contains('/'))
        } else {
            list(entry, "node-selectors")
                .iter()
                .any(|selector| !selector["match-labels"][MARK].is_null())
        }
    };
    for key in [POOLS, PEERS] {
        if let Some(entries) = rest[key].as_array_mut() {
            entries.retain(|entry| !is_ours(key, entry));
        }
    }
    if rest != people {
        return Some(format!("beside ours this is not what people wrote:\n{text}"));
    }
    let pools = list(&now, POOLS).iter().filter(|entry| is_ours(POOLS, entry));
    let addresses: Vec<String> = pools
        .flat_map(|pool| texts(pool, "addresses"))
        .map(|entry| single(&entry).to_owned())
        .collect();
    let peers: Vec<(String, String)> = list(&now, PEERS)
        .iter()
        .filter(|entry| is_ours(PEERS, entry))
        .flat_map(sessions)
        .collect();
    if let Some(address) = doubled(&addresses) {
        return Some(format!("{address} is in two pools of MetalLB"));
    }
    if let Some(session) = doubled(&peers) {
        return Some(format!("MetalLB has two peers {session:?}"));
    }
    let found: BTreeSet<String> = addresses.into_iter().collect();
    difference("addresses", &found, &wanted.addresses)
        .or_else(|| difference("peers", &peers.into_iter().collect(), &wanted.peers()))
}

/// The nodes that a peer selects, by host name, and its address.
fn sessions(peer: &Value) -> Vec<(String, String)> {
    let address = peer["peer-address"].as_str().unwrap_or_default();
    let hosts = list(peer, "node-selectors")
        .iter()
        .filter_map(|selector| selector["match-labels"][HOSTNAME].as_str());
    hosts.map(|host| (host.to_owned(), address.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    const OURS: &str = "- addresses:\n  - 198.18.0.1/32\n  name: default/web\n";

    fn wanted() -> Wanted {
        let mut wanted = Wanted::default();
        wanted.addresses.insert("198.18.0.1".to_owned());
        wanted
    }

    fn with_ours(edit: u32) -> String {
        document(edit).replacen("bfd-profiles:", &format!("{OURS}bfd-profiles:"), 1)
    }

    #[test]
    fn what_people_wrote_can_be_told_from_ours_and_edited_beside_it() {
        assert_eq!(wrong_in_text(&document(3), 3, &Wanted::default()), None);
        assert_eq!(wrong_in_text(&with_ours(2), 2, &wanted()), None);
        assert_eq!(edited(&with_ours(2), 2, 5), Some(with_ours(5)));
        assert_eq!(edited(&with_ours(2), 3, 5), None);
    }

    #[test]
    fn each_slip_is_seen() {
        let good = with_ours(1);
        assert!(wrong_in_text(&good, 1, &Wanted::default()).is_some());
        assert!(wrong_in_text(&document(1), 1, &wanted()).is_some());
        assert!(wrong_in_text(&good, 2, &wanted()).is_some());
        // To the byte: quotes, comments and styles are people's.
        for (old, new) in [
            ("# not before May", ""),
            ("\"10s\"", "10s"),
            ("[192.168.8.0/24]", "[ 192.168.8.0/24 ]"),
            ("  # the old lab\n", ""),
        ] {
            assert!(good.contains(old));
            assert!(
                wrong_in_text(&good.replacen(old, new, 1), 1, &wanted()).is_some(),
                "{old}"
            );
        }
        assert!(wrong_in_text(&good.replacen(OURS, &OURS.repeat(2), 1), 1, &wanted()).is_some());
        let mut peers = wanted();
        peers.peers.insert(("a".to_owned(), "169.254.255.1".to_owned()));
        assert!(wrong_in_text(&good, 1, &peers).is_some());
    }
}
