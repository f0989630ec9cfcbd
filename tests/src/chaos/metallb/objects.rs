//! MetalLB's custom resources, of which people have their own.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{HOSTNAME, NEIGHBOUR, OURS, Wanted, covers, difference, doubled, list, single, texts};

/// An object in MetalLB's namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// `IPAddressPool`, `BGPPeer`, `BGPAdvertisement`, `L2Advertisement`, `Secret`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What it says.
    pub spec: Value,
}

impl Object {
    /// Is it groundplane's?
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.labels.get(OURS.0).is_some_and(|value| value == OURS.1)
    }

    fn of_people(kind: &str, name: &str, spec: Value) -> Self {
        Self {
            kind: kind.to_owned(),
            name: name.to_owned(),
            labels: BTreeMap::from([("example.com/team".to_owned(), "net".to_owned())]),
            spec,
        }
    }
}

/// What people have, each bit of `edit` something else. One of it is a peer of the node with this host name, which is then not ours to
/// write a second time.
#[must_use]
pub fn objects_of_people(edit: u32, hostname: &str) -> Vec<Object> {
    let has = |bit: u32| edit >> bit & 1 == 1;
    let ranges = if has(0) {
        json!(["192.168.7.0/25", "192.168.8.0/24"])
    } else {
        json!(["192.168.7.0/24"])
    };
    let pool = json!({ "addresses": ranges, "autoAssign": false });
    let mut all = vec![Object::of_people("IPAddressPool", "lan", pool)];
    if has(1) {
        let router =
            json!({ "myASN": 64500, "peerASN": 64501, "peerAddress": "10.0.0.254", "holdTime": "90s" });
        all.push(Object::of_people("BGPPeer", "router", router));
    }
    if has(2) {
        let session = json!({
            "myASN": 64500, "peerASN": 64501, "peerAddress": NEIGHBOUR,
            "nodeSelectors": [{ "matchLabels": { HOSTNAME: hostname } }],
        });
        all.push(Object::of_people("BGPPeer", "own-session", session));
    }
    if has(3) {
        let lan = json!({ "ipAddressPools": ["lan"], "localPref": 100 });
        all.push(Object::of_people("BGPAdvertisement", "lan", lan));
    }
    if has(4) {
        let all_of_it = json!({ "localPref": 200 });
        all.push(Object::of_people("BGPAdvertisement", "everything", all_of_it));
    }
    all
}

/// What is not as it should be once all is quiet. `people`: what people have, as they wrote it.
#[must_use]
pub fn wrong_in_objects(found: &[Object], people: &[Object], wanted: &Wanted) -> Option<String> {
    let (ours, theirs): (Vec<&Object>, Vec<&Object>) = found.iter().partition(|object| object.is_ours());
    of_people_is_wrong(&theirs, people)
        .or_else(|| pools_are_wrong(&ours, people, wanted))
        .or_else(|| peers_are_wrong(&ours, people, wanted))
        .or_else(|| advertisement_is_wrong(&ours, people, wanted))
}

fn of_people_is_wrong(found: &[&Object], people: &[Object]) -> Option<String> {
    for object in people {
        let name = format!("{} {}", object.kind, object.name);
        let same = |other: &&&Object| other.kind == object.kind && other.name == object.name;
        let Some(now) = found.iter().find(same) else {
            return Some(format!("people had the {name}, and it is gone"));
        };
        if now.labels != object.labels || !says(&now.spec, &object.spec) {
            return Some(format!("people wrote {object:?}, and now it is {now:?}"));
        }
    }
    let stranger = found.iter().find(|object| {
        let same = |other: &&Object| other.kind == object.kind && other.name == object.name;
        !people.iter().any(|other| same(&other))
    });
    stranger.map(|object| format!("nobody wants {object:?}"))
}

/// Does an object say all that was written? The API server may have filled in more.
fn says(now: &Value, written: &Value) -> bool {
    match (now, written) {
        (Value::Object(now), Value::Object(written)) => written
            .iter()
            .all(|(key, value)| now.get(key).is_some_and(|now| says(now, value))),
        (now, written) => now == written,
    }
}

fn of<'a>(objects: &'a [&'a Object], kind: &'a str) -> impl Iterator<Item = &'a Object> {
    objects.iter().copied().filter(move |object| object.kind == kind)
}

fn pools_are_wrong(ours: &[&Object], people: &[Object], wanted: &Wanted) -> Option<String> {
    let entries: Vec<String> = of(ours, "IPAddressPool")
        .flat_map(|pool| texts(&pool.spec, "addresses"))
        .map(|entry| single(&entry).to_owned())
        .collect();
    if let Some(address) = doubled(&entries) {
        return Some(format!("{address} is in two pools of MetalLB"));
    }
    let theirs: Vec<String> = people
        .iter()
        .filter(|object| object.kind == "IPAddressPool")
        .flat_map(|pool| texts(&pool.spec, "addresses"))
        .collect();
    let wants = wanted.addresses.iter().filter(|address| {
        let is_covered = theirs.iter().any(|entry| covers(entry, address));
        !is_covered
    });
    if let Some(pool) = of(ours, "IPAddressPool").find(|pool| pool.spec["autoAssign"] != false) {
        return Some(format!("MetalLB may give of our pool what it likes: {pool:?}"));
    }
    difference(
        "addresses",
        &entries.into_iter().collect(),
        &wants.cloned().collect(),
    )
}

/// The nodes that a peer selects, by host name, and its address.
fn sessions(peer: &Object) -> Vec<(String, String)> {
    let address = peer.spec["peerAddress"].as_str().unwrap_or_default();
    let hosts = list(&peer.spec, "nodeSelectors")
        .iter()
        .filter_map(|selector| selector["matchLabels"][HOSTNAME].as_str());
    hosts.map(|host| (host.to_owned(), address.to_owned())).collect()
}

fn peers_are_wrong(ours: &[&Object], people: &[Object], wanted: &Wanted) -> Option<String> {
    let found: Vec<_> = of(ours, "BGPPeer").flat_map(sessions).collect();
    if let Some(session) = doubled(&found) {
        return Some(format!("MetalLB has two peers {session:?}"));
    }
    let theirs: Vec<_> = people
        .iter()
        .filter(|object| object.kind == "BGPPeer")
        .flat_map(sessions)
        .collect();
    let mut wants = wanted.peers();
    wants.retain(|session| !theirs.contains(session));
    let secrets: BTreeSet<&str> = of(ours, "Secret").map(|secret| &*secret.name).collect();
    let named = of(ours, "BGPPeer").filter_map(|peer| peer.spec["passwordSecret"]["name"].as_str());
    difference("peers", &found.into_iter().collect(), &wants)
        .or_else(|| difference("Secrets", &secrets, &named.collect()))
}

fn advertisement_is_wrong(ours: &[&Object], people: &[Object], wanted: &Wanted) -> Option<String> {
    let everything =
        |object: &Object| object.kind == "BGPAdvertisement" && object.spec["ipAddressPools"].is_null();
    let has_own = of(ours, "BGPAdvertisement").next().is_some();
    let advertised = has_own || people.iter().any(everything);
    if wanted.addresses.is_empty() && has_own {
        return Some("MetalLB advertises pools that are not there".to_owned());
    }
    (!wanted.addresses.is_empty() && !advertised).then(|| "MetalLB advertises none of our pools".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(kind: &str, name: &str, spec: Value) -> Object {
        let mut object = Object::of_people(kind, name, spec);
        object.labels = BTreeMap::from([(OURS.0.to_owned(), OURS.1.to_owned())]);
        object
    }

    fn peer(name: &str, host: &str) -> Object {
        let selector = json!([{ "matchLabels": { HOSTNAME: host } }]);
        let spec = json!({ "peerAddress": NEIGHBOUR, "nodeSelectors": selector });
        ours("BGPPeer", name, spec)
    }

    fn all(edit: u32, own: &[Object]) -> Vec<Object> {
        [objects_of_people(edit, "a"), own.to_vec()].concat()
    }

    #[test]
    fn each_slip_is_seen() {
        let mut wanted = Wanted::default();
        wanted.addresses.insert("198.18.0.1".to_owned());
        for host in ["a", "b"] {
            wanted.learn(
                host,
                [("example.com/bgp-peers-0-peer-ip", NEIGHBOUR), ("other", "x")],
            );
        }
        let people = objects_of_people(0b0_1100, "a");
        let pool = ours(
            "IPAddressPool",
            "p",
            json!({ "addresses": ["198.18.0.1/32"], "autoAssign": false }),
        );
        let advertisement = ours("BGPAdvertisement", "g", json!({}));
        let good = [pool.clone(), advertisement.clone(), peer("b-0", "b")];
        let wrong = |found: &[Object]| wrong_in_objects(found, &people, &wanted);
        assert_eq!(wrong(&all(0b0_1100, &good)), None);
        // Their own session, twice.
        assert!(wrong(&[all(0b0_1100, &good), vec![peer("a-0", "a")]].concat()).is_some());
        // What people wrote is lost, or said otherwise.
        assert!(wrong(&all(0b0_1000, &good)).is_some());
        assert!(wrong(&all(0b0_1101, &good)).is_some());
        for left in 0..good.len() {
            let mut some = good.to_vec();
            some.remove(left);
            assert!(wrong(&all(0b0_1100, &some)).is_some(), "without {left}");
        }
        assert!(wrong(&all(0b0_1100, &[&good[..], &[pool]].concat())).is_some());
        let nothing = Wanted {
            addresses: BTreeSet::new(),
            ..wanted.clone()
        };
        assert!(wrong_in_objects(&all(0b0_1100, &good[1..]), &people, &nothing).is_some());
        assert_eq!(wrong_in_objects(&people, &people, &nothing), None);
    }
}
