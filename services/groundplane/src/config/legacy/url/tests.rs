use pretty_assertions::assert_eq;

use super::*;

fn config_map(namespace: &str, name: &str) -> Choice {
    Choice::ConfigMap {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn resources(namespace: &str, peer_mode: Option<&'static str>) -> Choice {
    Choice::CustomResources {
        namespace: namespace.to_owned(),
        peer_mode,
    }
}

fn empty(annotation: Option<&str>) -> Choice {
    Choice::Empty {
        ip_annotation: annotation.map(str::to_owned),
    }
}

/// E10: every form that was ever documented, or built in, means what its writer meant.
#[test]
fn every_form_is_understood() {
    for (text, choice) in [
        ("kube-vip://", Choice::KubeVip),
        ("kube-vip:///", Choice::KubeVip),
        ("KUBE-VIP://", Choice::KubeVip),
        ("kuve-vip://", Choice::KubeVip),
        ("empty://", empty(None)),
        ("empty:///", empty(None)),
        ("metallb://", config_map("metallb-system", "config")),
        ("metallb:///", config_map("metallb-system", "config")),
        ("metallb:///ns", config_map("ns", "config")),
        ("metallb:///ns/", config_map("ns", "config")),
        ("metallb:///ns/name", config_map("ns", "name")),
        (
            "metallb:///ns/name?crdConfiguration=false",
            config_map("ns", "name"),
        ),
        ("metallb:///ns/name?crdConfiguration=", config_map("ns", "name")),
        ("metallb:///ns?crdConfiguration=true", resources("ns", None)),
        (
            "metallb:///?crdConfiguration=T",
            resources("metallb-system", None),
        ),
        (
            "metallb://metallb-system:config",
            config_map("metallb-system", "config"),
        ),
        (
            "metallb://foonamespace:myconfig",
            config_map("foonamespace", "myconfig"),
        ),
        ("disabled", Choice::Off),
        ("", Choice::Off),
        (" kube-vip:// ", Choice::KubeVip),
    ] {
        assert_eq!(read(text, false), Ok(plain(choice)), "{text}");
    }
}

/// E10: what the controller before misread, or ignored, is read as it was meant, and its writer is told.
#[test]
fn what_was_misread_is_read_as_meant_and_told() {
    for (text, choice, told) in [
        (
            "metallb://ns/name",
            config_map("ns", "name"),
            "metallb:///ns/name",
        ),
        ("metallb://ns", config_map("ns", "config"), "metallb:///ns"),
        (
            "metallb://ns?crdConfiguration=1",
            resources("ns", None),
            "metallb:///ns",
        ),
        (
            "metallb-system:config",
            config_map("metallb-system", "config"),
            "metallb:///metallb-system/config",
        ),
        ("kube-vip://host", Choice::KubeVip, "`host` behind"),
        (
            "metallb:///ns?crd=true",
            config_map("ns", "config"),
            "`crd` behind the question mark",
        ),
        (
            "metallb:///?bgp-peer-mode=frr",
            config_map("metallb-system", "config"),
            "`bgp-peer-mode` behind",
        ),
    ] {
        let reading = read(text, false).unwrap();
        assert_eq!(reading.choice, choice, "{text}");
        assert_eq!(reading.remarks.len(), 1, "{text}: {:?}", reading.remarks);
        assert!(reading.remarks[0].contains(told), "{text}: {:?}", reading.remarks);
    }
}

/// E10: what cannot be meant is refused, each with the way out.
#[test]
fn what_cannot_be_meant_is_refused_with_the_way_out() {
    for (text, message, help) in [
        ("kube-vip", "`kube-vip` is no URL", "write `kube-vip://`"),
        ("metallb", "`metallb` is no URL", "write `metallb://`"),
        (
            "haproxy://",
            "`haproxy://` is no way to announce",
            "metallb:///NAMESPACE/CONFIGMAP",
        ),
        ("on", "`on` is no URL", "kube-vip://"),
        ("emlb:///sv", "that service is no more", "kube-vip://"),
        ("metallb:///a/b/c", "too many parts", "metallb:///"),
        ("metallb:///Name", "Kubernetes would refuse", "metallb:///"),
        ("metallb://a:b/c", "Kubernetes would refuse", "metallb:///"),
        (
            "metallb:///ns?crdConfiguration=yes",
            "`crdConfiguration` is `yes`",
            "?crdConfiguration=true",
        ),
    ] {
        let refusal = read(text, false).unwrap_err();
        assert!(refusal.message.contains(message), "{text}: {refusal}");
        assert!(refusal.help.contains(help), "{text}: {refusal}");
    }
}

/// E9: the form of packet-ccm, where the namespace is a must.
#[test]
fn the_two_names_of_a_config_map_are_understood() {
    assert_eq!(read_config_map("metallb-system:config"), Ok(plain(of_packet())));
    assert_eq!(
        read_config_map("ns:my.name"),
        Ok(plain(config_map("ns", "my.name")))
    );
    assert_eq!(read_config_map("disabled"), Ok(plain(Choice::Off)));
    for text in ["config", ":config", "ns:", "a:b:c", "metallb:///ns/name"] {
        let refusal = read_config_map(text).unwrap_err();
        assert!(refusal.help.contains("`NAMESPACE:NAME`"), "{text}: {refusal}");
    }
}

/// E10: Cherry Servers' controller knows custom resources alone, and two parameters of its own.
#[test]
fn cherry_writes_custom_resources_and_has_parameters_of_its_own() {
    for (text, choice) in [
        ("metallb:///", resources("metallb-system", None)),
        ("metallb:///ns", resources("ns", None)),
        ("metallb:///ns?bgp-peer-mode=frr", resources("ns", Some("frr"))),
        (
            "metallb:///?bgp-peer-mode=none",
            resources("metallb-system", Some("none")),
        ),
        (
            "metallb:///ns?crdConfiguration=true&bgp-peer-mode=native",
            resources("ns", Some("native")),
        ),
        ("empty://", empty(None)),
        (
            "empty:///?ip-annotation=example.com%2Fips",
            empty(Some("example.com/ips")),
        ),
        (
            "empty://?ip-annotation=example.com/ips",
            empty(Some("example.com/ips")),
        ),
    ] {
        assert_eq!(read(text, true), Ok(plain(choice)), "{text}");
    }
    let refusal = read("metallb:///?bgp-peer-mode=quagga", true).unwrap_err();
    assert!(refusal.help.contains("`native`, `frr` or `none`"), "{refusal}");
}

#[test]
fn switches_are_read_as_go_does() {
    for text in ["1", "t", "T", "TRUE", "true", "True"] {
        assert_eq!(parse_bool(text), Some(true));
    }
    for text in ["0", "f", "F", "FALSE", "false", "False"] {
        assert_eq!(parse_bool(text), Some(false));
    }
    for text in ["", "yes", "tRUE", "on", "2"] {
        assert_eq!(parse_bool(text), None);
    }
}

#[test]
fn pairs_of_hexadecimal_digits_are_taken_apart() {
    for (text, plain) in [
        ("a%2Fb", "a/b"),
        ("%2", "%2"),
        ("%zz", "%zz"),
        ("a+b", "a b"),
        ("%e2%82%ac", "€"),
    ] {
        assert_eq!(decode(text), plain);
    }
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_readers_panic(text in "(metallb|empty|emlb|[a-z]{0,4})(://|:|/){0,2}[ -~é]{0,40}") {
        // Whether it is right is not the question here, but what is read is fit for Kubernetes.
        for reading in [read(&text, false), read(&text, true), read_config_map(&text)].into_iter().flatten() {
            match reading.choice {
                Choice::ConfigMap { namespace, name } => {
                    proptest::prop_assert!(is_label(&namespace) && is_name(&name), "{namespace}/{name}");
                }
                Choice::CustomResources { namespace, .. } => proptest::prop_assert!(is_label(&namespace), "{namespace}"),
                Choice::Off | Choice::KubeVip | Choice::Empty { .. } => {}
            }
        }
    }
}
