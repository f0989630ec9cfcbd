//! What is wrong with the names of annotations.

use std::collections::BTreeMap;

use groundplane_runtime::config::Problem;

use crate::config::annotations::NUMBER;
use crate::config::{Config, Field, Name};

/// So many peers are looked at where names could meet.
const PEERS: u32 = 16;

/// What is wrong with the names, all at once.
pub(super) fn problems(config: &Config) -> Vec<Problem> {
    let mut problems = Vec::new();
    if config.annotation_formats.is_empty() {
        problems.push(Problem::new(
            "annotationFormats",
            "must not be empty",
            "write `[indexed]`; `controllers.bgp: false` is for nodes that are told no peers",
        ));
    }
    let broken = broken(config);
    if broken.is_empty() {
        problems.extend(met(config));
        problems.extend(read_twice(config));
    }
    problems.extend(broken);
    problems
}

/// Each setting by its path, with whether it may have a number in it.
fn settings(config: &Config) -> [(&'static str, &str, bool); 9] {
    let set = &config.annotations;
    [
        ("annotations.localAsn", &set.local_asn, true),
        ("annotations.peerAsn", &set.peer_asn, true),
        ("annotations.peerIp", &set.peer_ip, true),
        ("annotations.srcIp", &set.src_ip, true),
        ("annotations.bgpPass", &set.bgp_pass, true),
        ("annotations.multihop", &set.multihop, true),
        ("annotations.networkIpv4Private", &set.network_ipv4_private, false),
        ("annotations.eipMetro", &set.eip_metro, false),
        ("annotations.eipFacility", &set.eip_facility, false),
    ]
}

/// Names that the API server would not take.
fn broken(config: &Config) -> Vec<Problem> {
    let set = settings(config)
        .into_iter()
        .filter(|(_, name, _)| !name.is_empty());
    set.filter_map(|(path, name, numbered)| {
        let numbers = name.matches(NUMBER).count();
        if numbers > usize::from(numbered) {
            let (message, help) = if numbered {
                (format!("has {NUMBER} {numbers} times"), "write it once")
            } else {
                (format!("is no matter of one peer, and has {NUMBER} in it"), "leave it out")
            };
            return Some(Problem::new(path, message, help));
        }
        // A number of three digits: nobody has more peers.
        (!is_key(&name.replace(NUMBER, "999"))).then(|| {
            let help = "write `prefix/name` with a DNS name before the slash, and up to 63 letters, digits, `-`, `_` and `.` behind it";
            Problem::new(path, format!("`{name}` is no name of an annotation"), help)
        })
    })
    .collect()
}

/// Two things under one name: the one would overwrite the other.
fn met(config: &Config) -> Option<Problem> {
    let mut meanings: BTreeMap<String, String> = BTreeMap::new();
    let mut meet = |key: String, meaning: String| {
        let other = meanings.insert(key.clone(), meaning.clone())?;
        (other != meaning).then(|| {
            let message = format!("`{key}` would be {other} and {meaning}");
            let help = "give each setting a name of its own; one without `{{n}}` is for all peers together";
            Problem::new("annotations", message, help)
        })
    };
    for layout in config.layouts() {
        for (field, name) in &layout.fields {
            let keys = if name.is_numbered() { PEERS } else { 1 };
            for n in 0..keys {
                // A list under one name, and one peer of it under the same, are not the same thing either.
                let which = if name.is_numbered() {
                    format!(" of peer {n}")
                } else {
                    String::new()
                };
                let problem = meet(name.of(n), format!("{}{which}", word(*field)));
                if problem.is_some() {
                    return problem;
                }
            }
        }
        if let Some(name) = &layout.network
            && let Some(problem) = meet(name.of(0), "the private network".to_owned())
        {
            return Some(problem);
        }
    }
    // On a Service, where only these two could meet.
    (config.eip_metro() == config.eip_facility()).then(|| {
        Problem::new(
            "annotations.eipFacility",
            format!("`{}` would be metro and facility", config.eip_metro()),
            "give each a name of its own",
        )
    })
}

/// Two formats of which kube-vip would read both: it takes every peer twice then, and fails.
fn read_twice(config: &Config) -> Option<Problem> {
    let layouts = config.layouts();
    let addresses: Vec<&Name> = layouts
        .iter()
        .filter_map(|layout| layout.name(Field::PeerIp))
        .collect();
    let reads = |name: &Name| {
        let of_prefix = |rest: &str| format!("{}/{rest}", name.prefix()) == name.as_str();
        of_prefix("peer-ip") || of_prefix("bgp-peers-{{n}}-peer-ip")
    };
    let mut read = addresses.iter().filter(|name| reads(name));
    let first = read.next()?;
    let second = read.find(|name| name.prefix() == first.prefix() && *name != first)?;
    Some(Problem::new(
        "annotationFormats",
        format!(
            "kube-vip would read each peer twice, from `{}` and `{}`",
            first.as_str(),
            second.as_str()
        ),
        "choose `indexed` or `plain`, or call one of them otherwise",
    ))
}

fn word(field: Field) -> &'static str {
    match field {
        Field::LocalAsn => "our AS number",
        Field::PeerAsn => "the AS number",
        Field::PeerIp => "the address",
        Field::SourceIp => "the source address",
        Field::Password => "the password",
        Field::Multihop => "whether it is far",
    }
}

/// Would the API server take it as the key of an annotation?
pub(in crate::config) fn is_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let is_name = name.len() <= 63
        && ends_well(name)
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    is_name && prefix.is_none_or(is_prefix)
}

/// Can it stand before the slash?
pub(super) fn is_prefix(prefix: &str) -> bool {
    let is_label = |label: &str| {
        let fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        ends_well(label) && label.bytes().all(fine)
    };
    prefix.len() <= 253 && prefix.split('.').all(is_label)
}

/// Does it begin and end with a letter or a digit?
fn ends_well(text: &str) -> bool {
    let alphanumeric = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    alphanumeric(text.as_bytes().first()) && alphanumeric(text.as_bytes().last())
}

#[cfg(test)]
mod tests {
    use groundplane_runtime::config;
    use pretty_assertions::assert_eq;

    use super::*;

    fn told(text: &str) -> Vec<String> {
        let config: Config = config::parse("test.yaml", text).unwrap();
        let problems = config.validate().into_iter();
        problems.map(|problem| problem.path).collect()
    }

    #[test]
    fn names_that_work_are_accepted() {
        for text in [
            "annotationFormats: [indexed, packet, packet-plain]",
            "annotationFormats: [plain, plural]",
            "{annotationPrefix: packet.com, annotationFormats: [plain, packet-plain]}",
            "annotations: {peerIp: 'example.com/peer-{{n}}', localAsn: example.com/asn, networkIpv4Private: private}",
            "annotations: {peerIp: example.com/peers, multihop: 'far-{{n}}', eipMetro: a/metro, eipFacility: a/facility}",
            // One list for both generations.
            "{annotationFormats: [indexed, plain], annotations: {peerIp: metal.equinix.com/peer-ip}}",
        ] {
            assert_eq!(told(text), [""; 0], "{text}");
        }
    }

    /// E7: a name that the API server would refuse with each write is refused at the start.
    #[test]
    fn names_that_are_none_are_refused() {
        for name in [
            "a/b/c",
            "Upper.case/name",
            "-x/name",
            "a..b/name",
            "/name",
            "prefix/",
            "with space",
            "ends-",
            "{{n}}-{{n}}",
            "{{n}}/é",
        ] {
            let text = format!("annotations: {{srcIp: '{name}'}}");
            assert_eq!(told(&text), ["annotations.srcIp"], "{name}");
        }
        let long = "x".repeat(61);
        assert_eq!(
            told(&format!("annotations: {{srcIp: '{long}{{{{n}}}}'}}")),
            ["annotations.srcIp"]
        );
        assert_eq!(
            told("annotations: {networkIpv4Private: 'net-{{n}}', eipMetro: 'm-{{n}}', eipFacility: ' '}"),
            [
                "annotations.networkIpv4Private",
                "annotations.eipMetro",
                "annotations.eipFacility"
            ]
        );
    }

    #[test]
    fn two_things_under_one_name_are_refused() {
        for (text, path) in [
            ("annotations: {srcIp: a/x, peerIp: a/x}", "annotations"),
            (
                "annotations: {srcIp: 'a/x-{{n}}', networkIpv4Private: a/x-1}",
                "annotations",
            ),
            (
                "annotations: {srcIp: 'metal.equinix.com/bgp-peers-{{n}}-peer-ip'}",
                "annotations",
            ),
            (
                "{annotationFormats: [plain], annotations: {srcIp: 'metal.equinix.com/peer-ip'}}",
                "annotations",
            ),
            (
                "annotations: {eipMetro: a/x, eipFacility: a/x}",
                "annotations.eipFacility",
            ),
            (
                "annotations: {eipMetro: metal.equinix.com/eip-facility}",
                "annotations.eipFacility",
            ),
            ("annotationFormats: [indexed, plain]", "annotationFormats"),
            (
                "{annotationPrefix: packet.com, annotationFormats: [packet-plain, indexed]}",
                "annotationFormats",
            ),
            ("annotationFormats: []", "annotationFormats"),
        ] {
            assert_eq!(told(text), [path], "{text}");
        }
    }
}
