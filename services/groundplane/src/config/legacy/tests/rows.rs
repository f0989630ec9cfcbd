//! Generations: what each is called, what it did by default, and which cloud it means.

use pretty_assertions::assert_eq;

use super::*;

const PACKET: [(&str, &str); 2] = [("PACKET_API_KEY", "s3cret"), ("PACKET_PROJECT_ID", "p")];

fn packet(more: &[(&str, &str)], json: Option<&str>) -> BTreeMap<String, String> {
    let environment: Vec<_> = PACKET.iter().chain(more).copied().collect();
    let taken = take("", &environment, json);
    assert_eq!(taken.problems(), [""; 0]);
    let mut values = taken.values();
    for key in ["driver", "equinix.apiTokenFile", "equinix.projectId"] {
        assert!(values.remove(key).is_some(), "{key}");
    }
    values
}

const CONFIG_MAP: [(&str, &str); 4] = [
    ("equinix.bgp.enabled", "true"),
    ("gateway.announcer", "metallb-configmap"),
    ("gateway.metallb.namespace", "metallb-system"),
    ("gateway.metallb.configMap", "config"),
];

fn with(base: &[(&str, &str)], more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut values = expected(base);
    values.extend(expected(more));
    values
}

/// E9: packet-ccm told `MetalLB`'s `ConfigMap` and wrote annotations of its own, unless told otherwise.
#[test]
fn packet_ccm_does_what_it_did_by_default() {
    let formats = ("gateway.annotationFormats", r#"["packet"]"#);
    assert_eq!(packet(&[], None), with(&CONFIG_MAP, &[formats]));
    let taken = take("", &PACKET, None);
    assert_eq!(taken.origin("gateway.announcer"), "default of packet-ccm");
    assert_eq!(taken.origin("equinix.apiTokenFile"), "PACKET_API_KEY");

    let other = [
        ("gateway.metallb.namespace", "ns"),
        ("gateway.metallb.configMap", "other"),
        formats,
    ];
    let told = [("PACKET_LB_CONFIGMAP", "ns:other")];
    assert_eq!(packet(&told, None), with(&CONFIG_MAP, &other));
    let json = r#"{"loadbalancer-configmap": "ns:other"}"#;
    assert_eq!(packet(&[], Some(json)), with(&CONFIG_MAP, &other));

    let off = expected(&[("gateway.controllers.service", "false"), formats]);
    assert_eq!(packet(&[("PACKET_LB_CONFIGMAP", "disabled")], None), off);
    assert_eq!(packet(&[("PACKET_DISABLE_LB", "true")], None), off);
    assert_eq!(packet(&[], Some(r#"{"disableLoadBalancer": true}"#)), off);
    let on = packet(&[("PACKET_DISABLE_LB", "false")], None);
    assert_eq!(on, with(&CONFIG_MAP, &[formats]), "it says nothing, after all");
}

/// E9: the other settings of packet-ccm, and names of annotations of one's own.
#[test]
fn packet_ccm_is_understood() {
    let told = [
        ("PACKET_FACILITY_NAME", "ewr1"),
        ("PACKET_LOCAL_ASN", "65001"),
        ("PACKET_PEER_ASN", "65530"),
        ("PACKET_EIP_TAG", "api"),
        ("PACKET_API_SERVER_PORT", "443"),
        ("PACKET_ANNOTATION_PEER_IPS", "example.com/ips"),
    ];
    assert_eq!(
        packet(&told, None),
        with(
            &CONFIG_MAP,
            &[
                ("equinix.facility", "ewr1"),
                ("equinix.bgp.localAsn", "65001"),
                ("endpoint.tag", "api"),
                ("endpoint.port", "443"),
                ("endpoint.service", "kube-system/packet-ccm-kubernetes-external"),
                ("endpoint.ipMode", "VIP"),
                ("gateway.annotationFormats", r#"["plural"]"#),
                ("gateway.annotations.localAsn", "packet.com/node.asn"),
                ("gateway.annotations.peerAsn", "packet.com/peer.asns"),
                ("gateway.annotations.peerIp", "example.com/ips"),
            ]
        )
    );
    let late = packet(
        &[
            ("PACKET_LB", "kube-vip://"),
            ("PACKET_BGP_NODE_SELECTOR", "bgp=1"),
        ],
        None,
    );
    assert_eq!(
        late,
        expected(&[
            ("equinix.bgp.enabled", "true"),
            ("gateway.announcer", "kube-vip"),
            ("gateway.bgpNodeSelector", "bgp=1"),
            ("gateway.annotationFormats", r#"["packet-plain"]"#),
        ])
    );
}

/// E9: the names of the first releases for Equinix Metal, and of its documents before them.
#[test]
fn the_first_names_of_metal_are_understood() {
    let told = [
        ("METAL_API_KEY", "s3cret"),
        ("METAL_PROJECT_ID", "p"),
        ("METAL_LB", "metallb://metallb-system:config"),
        ("METAL_ANNOTATION_PEER_IPS", "example.com/ips"),
    ];
    let values = take("", &told, None).values();
    for (key, value) in CONFIG_MAP {
        assert_eq!(values.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert_eq!(values["gateway.annotationFormats"], r#"["plain"]"#);
    assert_eq!(values["gateway.annotations.peerIp"], "example.com/ips");

    let json = r#"{"apiKey": "s3cret", "projectID": "p", "metalLB": "empty://", "annotationPeerASNs": "example.com/asns"}"#;
    let taken = take("", &[], Some(json));
    assert_eq!(taken.origin("gateway.announcer"), "FILE: metalLB");
    let values = taken.values();
    assert_eq!(values["gateway.annotationFormats"], r#"["plural"]"#);
    assert_eq!(values["gateway.annotations.peerAsn"], "example.com/asns");

    let newer = [
        ("METAL_LOAD_BALANCER", "kube-vip://"),
        ("METAL_LB", "empty://"),
        ("PACKET_LB", "disabled"),
    ];
    let values = take_for("", &newer, None, false).values();
    assert_eq!(values["gateway.announcer"], "kube-vip", "the newest name counts");
}

/// Nobody was told to announce, so Services get nothing, as before, unless groundplane.yaml speaks about it.
#[test]
fn without_a_load_balancer_services_get_nothing_as_before() {
    let told = &METAL[..2];
    let taken = take("", told, None);
    assert_eq!(taken.values()["gateway.controllers.service"], "false");
    assert_eq!(
        taken.origin("gateway.controllers.service"),
        "default of Equinix Metal's controller"
    );
    assert_eq!(
        taken.remarks(),
        [
            "no load balancer is told (METAL_LOAD_BALANCER or `loadbalancer`), so Services get no addresses, as with Equinix Metal's \
             controller"
        ]
    );
    for yaml in [
        "gateway: {announcer: kube-vip}\n",
        "gateway: {controllers: {service: true}}\n",
    ] {
        let taken = take(yaml, told, None);
        assert_eq!(taken.remarks(), [""; 0]);
        let service = taken.document.origin("gateway.controllers.service");
        assert!(service.is_none_or(|place| place.named("f").starts_with("f:")));
    }
    let own = "equinix: {apiTokenFile: /run/token, projectId: p}\n";
    let values = take(own, &[("METAL_METRO_NAME", "sv")], None).values();
    assert!(
        !values.contains_key("gateway.controllers.service"),
        "a stray variable changes nothing else"
    );
}

/// What the older controllers were told of an endpoint without a tag meant nothing, and does so still.
#[test]
fn an_endpoint_needs_its_tag() {
    let port = [("METAL_API_SERVER_PORT", "443")];
    assert!(
        !take_for("", &port, None, false)
            .values()
            .contains_key("endpoint.port")
    );
    let host = ("METAL_EIP_HEALTH_CHECK_USE_HOST_IP", "T");
    let told = [port[0], host, ("METAL_EIP_TAG", "api")];
    let values = take_for("", &told, None, false).values();
    assert_eq!(values["endpoint.port"], "443");
    assert_eq!(values["endpoint.tag"], "api");
    assert_eq!(values["endpoint.healthCheckUseHostIp"], "true");
    let yaml = "endpoint: {address: 192.0.2.9}\n";
    let values = take_for(yaml, &told, None, false).values();
    assert!(
        !values.contains_key("endpoint.tag"),
        "the file has chosen another way to tell it"
    );
}

/// The Service of an endpoint that an older controller told of is its own, and stays in place.
#[test]
fn the_external_service_is_that_of_the_generation() {
    let told = [METAL[0], METAL[1], ("METAL_EIP_TAG", "api")];
    let service = |yaml: &str| take(yaml, &told, None).values().remove("endpoint.service");
    let cherry = take(
        "",
        &[
            ("CHERRY_API_KEY", "t"),
            ("CHERRY_PROJECT_ID", "7"),
            ("CHERRY_FIP_TAG", "a=b"),
        ],
        None,
    );
    assert_eq!(
        cherry.values().remove("endpoint.service").as_deref(),
        Some("kube-system/cloud-provider-cherry-kubernetes-external")
    );
    let theirs = "kube-system/cloud-provider-equinix-metal-kubernetes-external";
    assert_eq!(service("").as_deref(), Some(theirs));
    assert_eq!(service("endpoint: {service: a/b}").as_deref(), Some("a/b"));
    assert_eq!(service("endpoint: {tag: own}"), None, "the endpoint is ours");
}

/// Which cloud: groundplane.yaml, else the variables, else what only Cherry's file has.
#[test]
fn the_cloud_is_told_by_who_speaks_first() {
    let driver = |yaml: &str, environment: &[(&str, &str)], json: Option<&str>| {
        take_for(yaml, environment, json, false).values().remove("driver")
    };
    let equinix = Some("equinix".to_owned());
    let cherry = Some("cherry".to_owned());
    assert_eq!(driver("", &[], None), None);
    assert_eq!(driver("", &[("PACKNGO_DEBUG", "")], None), None);
    assert_eq!(driver("", &[("METAL_EIP_TAG", "")], None), None);
    assert_eq!(driver("", &[("METAL_EIP_TAG", "a")], None), equinix);
    assert_eq!(driver("", &[("PACKET_EIP_TAG", "a")], None), equinix);
    assert_eq!(driver("", &[("CHERRY_FIP_TAG", "a=b")], None), cherry);
    assert_eq!(driver("", &[], Some("{\"projectID\": \"7\"}")), equinix);
    for json in [
        "{\"projectID\": 7}",
        "{\"FIPTag\": \"a=b\"}",
        "{\"region\": \"EU-Nord-1\"}",
        "{\"fipHealthCheckUseHostIP\": true}",
    ] {
        assert_eq!(driver("", &[], Some(json)), cherry, "{json}");
        let metal = [("METAL_EIP_TAG", "a")];
        assert_eq!(driver("", &metal, Some(json)), equinix, "variables come first");
    }
    let both = [("METAL_EIP_TAG", "a"), ("CHERRY_FIP_TAG", "a=b")];
    assert_eq!(driver("driver: cherry\n", &both, None), cherry);
    assert_eq!(driver("driver: equinix\n", &both, None), equinix);
    assert_eq!(
        take("", &both, None).problems(),
        [
            "CHERRY_FIP_TAG: is set, and so is METAL_EIP_TAG: these are two clouds; unset those of one of them, or write \
             `driver: cherry` or `driver: equinix`"
        ]
    );
}

/// A driver that has nothing to do with them leaves them alone, and says so.
#[test]
fn another_driver_ignores_them_and_says_so() {
    for driver in ["static", "remote"] {
        let yaml = format!("driver: {driver}\npools: [{{name: a, addresses: [192.0.2.0/24]}}]\n");
        let taken = take(&yaml, &METAL[..1], Some("no json"));
        assert_eq!(taken.problems(), [""; 0]);
        assert_eq!(
            taken.document.decode::<Value>(),
            Document::parse("groundplane.yaml", &yaml)
                .unwrap()
                .decode::<Value>()
        );
        assert_eq!(
            taken.remarks(),
            [format!(
                "METAL_API_KEY, FILE: not read, since `driver` is `{driver}`; leave `driver` out to have it told by them"
            )]
        );
    }
}

/// E90: every variable and every key of Cherry Servers' controller; those of annotations, which it read from variables alone, too.
#[test]
fn cherrys_controller_is_understood() {
    let told = [
        ("CHERRY_API_KEY", "s3cret"),
        ("CHERRY_PROJECT_ID", "4711"),
        ("CHERRY_REGION_NAME", "EU-Nord-1"),
        ("CHERRY_LOAD_BALANCER", "metallb:///?bgp-peer-mode=frr"),
        ("CHERRY_ANNOTATION_FIP_REGION", "example.com/region"),
        ("CHERRY_ANNOTATION_MULTI_HOP", "example.com/{{n}}-hops"),
        ("CHERRY_FIP_TAG", "kubernetes=api"),
        ("CHERRY_API_SERVER_PORT", "7443"),
        ("CHERRY_FIP_HEALTH_CHECK_USE_HOST_IP", "1"),
    ];
    let values = take("", &told, None).values();
    let same = [
        ("driver", "cherry"),
        ("cherry.projectId", "4711"),
        ("cherry.region", "EU-Nord-1"),
        ("cherry.bgp.enabled", "true"),
        ("gateway.announcer", "metallb"),
        ("gateway.metallb.namespace", "metallb-system"),
        ("gateway.metallb.peerMode", "frr"),
        ("gateway.annotations.eipMetro", "example.com/region"),
        ("gateway.annotations.multihop", "example.com/{{n}}-hops"),
        ("endpoint.tag", "kubernetes=api"),
        (
            "endpoint.service",
            "kube-system/cloud-provider-cherry-kubernetes-external",
        ),
        ("endpoint.port", "7443"),
        ("endpoint.healthCheckUseHostIp", "true"),
    ];
    assert_eq!(
        values,
        with(&same, &[("cherry.apiTokenFile", "env:CHERRY_API_KEY")])
    );
    let json = r#"{"apiKey": "s3cret", "projectID": 4711, "region": "EU-Nord-1", "loadbalancer": "metallb:///?bgp-peer-mode=frr",
        "annotationFIPRegion": "example.com/region", "annotationMultiHop": "example.com/{{n}}-hops", "fipTag": "kubernetes=api",
        "apiServerPort": 7443, "fipHealthCheckUseHostIP": true}"#;
    let values = take("", &[], Some(json)).values();
    assert_eq!(
        values,
        with(&same, &[("cherry.apiTokenFile", "json:FILE#apiKey")])
    );
}

/// E11: where the API is said to be counts, which the older controllers read and forgot.
#[test]
fn the_base_url_counts() {
    let json = r#"{"apiKey": "a", "projectID": "p", "base-url": "https://api.example.com/v1"}"#;
    let taken = take("", &[], Some(json));
    assert_eq!(taken.values()["equinix.baseUrl"], "https://api.example.com/v1");
    let taken = take("driver: cherry\n", &[], Some(json));
    assert_eq!(taken.values()["cherry.baseUrl"], "https://api.example.com/v1");
}

/// A variable that is nearly one of ours is a slip; what others have there is not.
#[test]
fn a_misspelt_variable_is_told() {
    let told = [
        ("METAL_LOADBALANCER", "kube-vip://"),
        ("METAL_SERVICE_HOST", "10.0.0.1"),
        ("METAL_PORT_80_TCP", "tcp://10.0.0.1:80"),
        ("METAL_EIP_TAG", "a"),
    ];
    assert_eq!(
        take_for("", &told, None, false).remarks(),
        [
            "the environment variable METAL_LOADBALANCER is not known and ignored; did you mean METAL_LOAD_BALANCER?"
        ]
    );
}

/// What is no longer needed is said, and not refused.
#[test]
fn what_is_not_used_is_told() {
    let told = [("METAL_PEER_ASN", "65530"), ("PACKNGO_DEBUG", "")];
    assert_eq!(
        take_for("", &told, None, false).remarks(),
        [
            "METAL_PEER_ASN: is not used: the cloud's API says which AS number its routers have",
            "PACKNGO_DEBUG: is not used: `--log debug` shows every call of the API, without secrets",
        ]
    );
}
