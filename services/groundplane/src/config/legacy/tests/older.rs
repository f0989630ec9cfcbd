//! Whose inputs they are, where they do not tell, or whoever starts us does.

use pretty_assertions::assert_eq;

use super::*;

/// The Secret as packet-ccm's documents have it, and Equinix Metal's after them.
const BARE: &str = r#"{"apiKey": "s3cret", "projectID": "7a44b778"}"#;

fn of(older: Older, environment: &[(&str, &str)], json: Option<&str>) -> Taken {
    let taken = take_of(Some(older), "", environment, json, true);
    assert_eq!(taken.problems(), [""; 0]);
    taken
}

/// What counts of a bare file, beside what it says itself.
fn of_bare(older: Older) -> BTreeMap<String, String> {
    let taken = of(older, &[], Some(BARE));
    assert!(
        !taken
            .remarks()
            .iter()
            .any(|remark| remark.contains("whose it is"))
    );
    let mut values = taken.values();
    assert_eq!(values.remove("equinix.projectId").as_deref(), Some("7a44b778"));
    assert_eq!(
        values.remove("equinix.apiTokenFile").as_deref(),
        Some("json:FILE#apiKey")
    );
    assert_eq!(values.remove("driver").as_deref(), Some("equinix"));
    values
}

/// E9: packet-ccm's own Secret says no more than token and project; called by its name, it does what packet-ccm did.
#[test]
fn the_bare_secret_of_packet_ccm_does_what_packet_ccm_did() {
    assert_eq!(
        of_bare(Older::PacketCcm),
        expected(&[
            ("equinix.bgp.enabled", "true"),
            ("gateway.announcer", "metallb-configmap"),
            ("gateway.metallb.namespace", "metallb-system"),
            ("gateway.metallb.configMap", "config"),
            ("gateway.annotationFormats", r#"["packet"]"#),
        ])
    );
    let taken = of(Older::PacketCcm, &[], Some(BARE));
    assert_eq!(taken.legacy.of, Some("packet-ccm"));
    let facility = "no facility is told (PACKET_FACILITY_NAME, METAL_FACILITY_NAME or `facility`); packet-ccm asked its machine for it. New \
                    addresses need it, or a metro: say `equinix.facility` or `equinix.metro`, or have each Service say it by its annotation";
    assert_eq!(taken.remarks(), [facility]);
    let located = BARE.replace('}', r#", "facility": "ewr1"}"#);
    for (environment, json) in [
        (&[][..], &*located),
        (&[("PACKET_FACILITY_NAME", "ewr1")], BARE),
        (&[("PACKET_LB_CONFIGMAP", "disabled")], BARE),
    ] {
        let taken = of(Older::PacketCcm, environment, Some(json));
        assert_eq!(taken.remarks(), [""; 0], "{environment:?} {json}");
    }
    assert_eq!(taken.origin("driver"), "--cloud-config-of packet-ccm");
    assert_eq!(taken.origin("gateway.announcer"), "default of packet-ccm");
    let tagged = r#"{"apiKey": "s3cret", "projectID": "7a44b778", "eipTag": "api"}"#;
    let values = of(Older::PacketCcm, &[], Some(tagged)).values();
    assert_eq!(
        values["endpoint.service"],
        "kube-system/packet-ccm-kubernetes-external"
    );
    let late = of(Older::PacketCcm, &[("PACKET_LB", "kube-vip://")], Some(BARE)).values();
    assert_eq!(late["gateway.announcer"], "kube-vip");
    assert_eq!(late["gateway.annotationFormats"], r#"["packet-plain"]"#);
}

/// The same file, called by the name of a controller of Equinix Metal.
#[test]
fn the_bare_secret_of_equinix_metals_does_what_that_did() {
    let off = ("gateway.controllers.service", "false");
    assert_eq!(of_bare(Older::CloudProviderEquinixMetal), expected(&[off]));
    let plural = ("gateway.annotationFormats", r#"["plural"]"#);
    assert_eq!(of_bare(Older::MetalCcm), expected(&[off, plural]));
    // What its documents had, its variable included.
    let told = [
        ("METAL_LB", "metallb://metallb-system:config"),
        ("METAL_EIP_TAG", "api"),
    ];
    let values = of(Older::MetalCcm, &told, Some(BARE)).values();
    assert_eq!(values["gateway.annotationFormats"], plural.1);
    assert_eq!(values["gateway.announcer"], "metallb-configmap");
    assert_eq!(
        values["endpoint.service"],
        "kube-system/metal-ccm-kubernetes-external"
    );
    // Its releases are told from one another as ever.
    let early = of(Older::CloudProviderEquinixMetal, &told[..1], Some(BARE)).values();
    assert_eq!(early["gateway.annotationFormats"], r#"["plain"]"#);
}

#[test]
fn cherrys_is_told_by_its_name_too() {
    let taken = of(
        Older::CloudProviderCherry,
        &[],
        Some(r#"{"apiKey": "a", "projectID": "4711"}"#),
    );
    assert_eq!(taken.values()["driver"], "cherry");
    assert_eq!(taken.values()["cherry.projectId"], "4711");
}

/// Where nothing tells, the remark says so and names the way out; anything that tells ends the doubt.
#[test]
fn a_file_that_does_not_tell_is_told_of() {
    let remarks = |yaml: &str, environment: &[(&str, &str)], json: &str| {
        let taken = take(yaml, environment, Some(json));
        let doubts = taken
            .remarks()
            .into_iter()
            .filter(|remark| remark.contains("whose it is"));
        doubts.collect::<Vec<_>>()
    };
    let doubt = "FILE does not tell whose it is, and is taken for that of Equinix Metal's controller. packet-ccm's looks the same, which \
                 told MetalLB by the ConfigMap `metallb-system:config` and wrote annotations `packet.com/…` unless told otherwise. Say \
                 which it is: --cloud-config-of packet-ccm or cloud-provider-equinix-metal (GROUNDPLANE_CLOUD_CONFIG_OF; in the chart \
                 `cloudConfig.of`), or by the keys `gateway.announcer` and `gateway.annotationFormats`";
    assert_eq!(remarks("", &[], BARE), [doubt]);
    let early = r#"{"apiKey": "a", "projectID": "p", "annotationPeerIPs": "example.com/ips"}"#;
    assert_eq!(remarks("", &[], early).len(), 1);
    let half = "gateway: {announcer: kube-vip}\n";
    assert_eq!(remarks(half, &[], BARE).len(), 1);
    let whole = "gateway: {announcer: kube-vip, annotationFormats: [indexed]}\n";
    let more = |entry: &str| BARE.replace('}', &format!(", {entry}}}"));
    for (yaml, environment, json) in [
        (whole, &[][..], BARE.to_owned()),
        ("", &[("METAL_EIP_TAG", "api")], BARE.to_owned()),
        ("", &[("PACKET_EIP_TAG", "api")], BARE.to_owned()),
        ("", &[], more(r#""loadbalancer": "kube-vip://""#)),
        ("", &[], more(r#""loadbalancer-configmap": "ns:name""#)),
        ("", &[], more(r#""metro": "sv""#)),
        ("driver: cherry\n", &[], BARE.to_owned()),
        // The token and the project are ours, and so nothing follows from the file.
        (
            "equinix: {apiTokenFile: /run/token, projectId: p}\n",
            &[],
            BARE.to_owned(),
        ),
    ] {
        assert_eq!(
            remarks(yaml, environment, &json),
            [""; 0],
            "{yaml} {environment:?} {json}"
        );
    }
}

/// What is said twice must agree, and what is said of nothing is told.
#[test]
fn a_name_that_cannot_be_is_refused_or_told_of() {
    let contradicts = |yaml: &str| take_of(Some(Older::PacketCcm), yaml, &[], Some(BARE), true);
    assert_eq!(
        contradicts("driver: cherry\n").problems(),
        [
            "--cloud-config-of packet-ccm: means the driver `equinix`, and `driver` is `cherry`; leave one of them out"
        ]
    );
    assert_eq!(contradicts("driver: equinix\n").problems(), [""; 0]);
    assert_eq!(
        contradicts("driver: cloudy\n").problems(),
        [""; 0],
        "told where it is decoded"
    );
    let both = [("METAL_EIP_TAG", "a"), ("CHERRY_FIP_TAG", "a=b")];
    let taken = take_of(Some(Older::CloudProviderCherry), "", &both, None, false);
    assert_eq!(taken.problems(), [""; 0]);
    assert_eq!(taken.values()["endpoint.tag"], "a=b");
    let taken = take_of(Some(Older::PacketCcm), "", &[], None, true);
    assert_eq!(taken.values(), expected(&[]));
    assert_eq!(
        taken.remarks(),
        [
            "--cloud-config-of packet-ccm: there is neither a variable of it nor its JSON file (--cloud-config), so nothing comes of it"
        ]
    );
}

/// The names are those of the controllers themselves, and the flag takes them.
#[test]
fn they_are_called_as_they_are_called() {
    use clap::ValueEnum as _;
    for older in Older::value_variants() {
        let name = older.to_string();
        assert_eq!(Older::from_str(&name, false), Ok(*older));
        let known = groundplane_core::older::ALL
            .into_iter()
            .any(|one| one.name == name);
        assert!(known || *older == Older::MetalCcm, "{name}");
    }
}

/// E35: where the controller before wrote addresses for a program of its user's own, we do.
#[test]
fn empty_tells_where_it_told_before() {
    let tell = |environment: &[(&str, &str)]| {
        let values = take_for("", environment, None, false).values();
        assert_eq!(values["gateway.announcer"], "empty");
        values["gateway.empty.tell"].clone()
    };
    assert_eq!(
        tell(&[("METAL_LOAD_BALANCER", "empty://")]),
        r#"["spec.loadBalancerIP"]"#
    );
    let parameter = ("METAL_LOAD_BALANCER", "empty://?ip-annotation=example.com/ips");
    assert_eq!(
        tell(&[parameter]),
        r#"["spec.loadBalancerIP"]"#,
        "it is Cherry's alone"
    );
    assert_eq!(
        tell(&[("CHERRY_LOAD_BALANCER", "empty://")]),
        r#"["cherryservers.com/loadBalancerIPs"]"#
    );
    assert_eq!(
        tell(&[("CHERRY_LOAD_BALANCER", "empty://?ip-annotation=example.com%2Fips")]),
        r#"["example.com/ips"]"#
    );
    let sources = Sources::new(
        &[("CHERRY_LOAD_BALANCER", "empty://?ip-annotation=nothing")],
        None,
    );
    let examined = super::super::super::Config::examine(Document::empty(), &sources, false);
    let told = examined.errors.unwrap().to_string();
    assert!(
        told.starts_with("CHERRY_LOAD_BALANCER (gateway.empty.tell"),
        "{told}"
    );
}
