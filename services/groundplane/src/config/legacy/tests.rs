use std::collections::BTreeMap;

use pretty_assertions::assert_eq;
use serde_json::Value;

use super::*;

mod documented;
mod older;
mod rows;

/// What inputs come to.
struct Taken {
    document: Document,
    legacy: Legacy,
    /// The JSON file's name.
    file: String,
    _folder: tempfile::TempDir,
}

fn take(yaml: &str, environment: &[(&str, &str)], json: Option<&str>) -> Taken {
    take_for(yaml, environment, json, true)
}

fn take_for(yaml: &str, environment: &[(&str, &str)], json: Option<&str>, calls_cloud: bool) -> Taken {
    take_of(None, yaml, environment, json, calls_cloud)
}

/// As [`take_for`]; `of`: whoever started us said so.
fn take_of(
    of: Option<Older>,
    yaml: &str,
    environment: &[(&str, &str)],
    json: Option<&str>,
    calls_cloud: bool,
) -> Taken {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud-sa.json");
    if let Some(json) = json {
        std::fs::write(&path, json).unwrap();
    }
    let mut sources = Sources::new(environment, json.map(|_| path.clone()));
    if let Some(of) = of {
        sources = sources.called(of);
    }
    let mut document = Document::parse("groundplane.yaml", yaml).unwrap();
    let legacy = lay_under(&mut document, &sources, calls_cloud);
    Taken {
        document,
        legacy,
        file: path.display().to_string(),
        _folder: folder,
    }
}

impl Taken {
    /// Every value that is set, by its key; `FILE` stands for the name of the JSON file.
    fn values(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let tree: Value = self.document.decode().unwrap();
        flatten("", &tree, &mut found);
        for value in found.values_mut() {
            *value = value.replace(&self.file, "FILE");
        }
        found
    }

    fn problems(&self) -> Vec<String> {
        let errors =
            groundplane_runtime::config::ConfigErrors::new("groundplane.yaml", self.legacy.problems.clone());
        let text = errors.to_string().replace(&self.file, "FILE");
        text.lines().map(str::to_owned).collect()
    }

    fn remarks(&self) -> Vec<String> {
        let remarks = self.legacy.remarks.iter();
        remarks.map(|remark| remark.replace(&self.file, "FILE")).collect()
    }

    fn origin(&self, path: &str) -> String {
        let place = self.document.origin(path).unwrap();
        place.named("groundplane.yaml").replace(&self.file, "FILE")
    }
}

fn flatten(path: &str, value: &Value, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                flatten(&groundplane_runtime::config::join(path, key), value, found);
            }
        }
        Value::String(text) => drop(found.insert(path.to_owned(), text.clone())),
        other => drop(found.insert(path.to_owned(), other.to_string())),
    }
}

fn expected(values: &[(&str, &str)]) -> BTreeMap<String, String> {
    let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    values.iter().map(own).collect()
}

const METAL: [(&str, &str); 3] = [
    ("METAL_API_KEY", "s3cret"),
    ("METAL_PROJECT_ID", "7a44b778"),
    ("METAL_LOAD_BALANCER", "kube-vip://"),
];

/// E1: variables alone are a configuration.
#[test]
fn variables_alone_are_a_configuration() {
    let taken = take("", &METAL, None);
    assert_eq!(taken.problems(), [""; 0]);
    assert_eq!(
        taken.values(),
        expected(&[
            ("driver", "equinix"),
            ("equinix.apiTokenFile", "env:METAL_API_KEY"),
            ("equinix.projectId", "7a44b778"),
            ("equinix.bgp.enabled", "true"),
            ("gateway.announcer", "kube-vip"),
        ])
    );
    assert_eq!(taken.origin("equinix.projectId"), "METAL_PROJECT_ID");
    assert_eq!(taken.origin("gateway.announcer"), "METAL_LOAD_BALANCER");
    assert_eq!(taken.legacy.of, Some("Equinix Metal's controller"));
    assert_eq!(taken.remarks(), [""; 0]);
}

/// E2: the JSON file alone is one, too, with its keys in any case; what it does not know is ignored, and told.
#[test]
fn the_json_file_alone_is_a_configuration() {
    let json = r#"{
        "apiKey": "s3cret", "PROJECTID": "7a44b778", "loadBalancer": "empty:///", "metro": "sv", "localASN": 65100,
        "bgpPass": "hidden", "eipTag": "", "facility": null, "eipHealthCheckUseHostIP": false, "metros": "x", "zzz": 1
    }"#;
    let taken = take("", &[], Some(json));
    assert_eq!(taken.problems(), [""; 0]);
    assert_eq!(
        taken.values(),
        expected(&[
            ("driver", "equinix"),
            ("equinix.apiTokenFile", "json:FILE#apiKey"),
            ("equinix.projectId", "7a44b778"),
            ("equinix.metro", "sv"),
            ("equinix.bgp.enabled", "true"),
            ("equinix.bgp.localAsn", "65100"),
            ("equinix.bgp.passwordFile", "json:FILE#bgpPass"),
            ("gateway.announcer", "empty"),
            ("gateway.empty.tell", r#"["spec.loadBalancerIP"]"#),
        ])
    );
    assert_eq!(taken.origin("equinix.projectId"), "FILE: PROJECTID");
    assert_eq!(
        taken.remarks(),
        [
            "FILE: unknown key `metros` is ignored; did you mean `metro`?",
            "FILE: unknown key `zzz` is ignored",
        ]
    );
}

/// E3: a variable wins over the file, but not an empty one; groundplane.yaml wins over both.
#[test]
fn variables_win_over_the_file_and_yaml_over_both() {
    let json =
        r#"{"apiKey": "a", "projectID": "of-file", "metro": "sv", "facility": "sv15", "eipTag": "of-file"}"#;
    let environment = [
        ("METAL_PROJECT_ID", "of-environment"),
        ("METAL_METRO_NAME", "da"),
        ("METAL_FACILITY_NAME", "da11"),
        ("METAL_EIP_TAG", ""),
        ("METAL_LOAD_BALANCER", "kube-vip://"),
    ];
    let yaml = "equinix: {metro: ny}\ngateway: {announcer: empty}\n";
    let taken = take(yaml, &environment, Some(json));
    assert_eq!(
        taken.values(),
        expected(&[
            ("driver", "equinix"),
            ("equinix.apiTokenFile", "json:FILE#apiKey"),
            ("equinix.projectId", "of-environment"),
            ("equinix.metro", "ny"),
            ("equinix.facility", "da11"),
            ("equinix.bgp.enabled", "true"),
            ("endpoint.tag", "of-file"),
            (
                "endpoint.service",
                "kube-system/cloud-provider-equinix-metal-kubernetes-external",
            ),
            ("endpoint.ipMode", "VIP"),
            ("gateway.announcer", "empty"),
        ])
    );
    assert_eq!(taken.origin("equinix.metro"), "groundplane.yaml:1:18");
    assert_eq!(taken.origin("endpoint.tag"), "FILE: eipTag");
}

/// E4: what is missing is told in the spelling of whoever should have said it, and only where the cloud is called.
#[test]
fn a_missing_token_or_project_is_told_in_the_users_words() {
    let told = |environment: &[(&str, &str)], json: Option<&str>| take("", environment, json).problems();
    assert_eq!(
        told(&METAL[..1], None),
        [
            "METAL_PROJECT_ID: the project is missing; set it, or write `projectID` into the JSON file of --cloud-config"
        ]
    );
    assert_eq!(
        told(&[("PACKET_PROJECT_ID", "p")], None),
        [
            "PACKET_API_KEY: the token of the cloud's API is missing; set it, or write `apiKey` into the JSON file of --cloud-config"
        ]
    );
    assert_eq!(
        told(&[("CHERRY_REGION_NAME", "EU-Nord-1")], None),
        [
            "CHERRY_API_KEY: the token of the cloud's API is missing; set it, or write `apiKey` into the JSON file of --cloud-config",
            "CHERRY_PROJECT_ID: the project is missing; set it, or write `projectID` into the JSON file of --cloud-config",
        ]
    );
    assert_eq!(
        told(&[], Some(r#"{"apiKey": "s3cret"}"#)),
        ["FILE: projectID: the project is missing; write it there, or set METAL_PROJECT_ID"]
    );
    let taken = take(
        "equinix: {apiTokenFile: /run/token, projectId: p}",
        &METAL[2..],
        None,
    );
    assert_eq!(taken.problems(), [""; 0], "the file says both");
    let taken = take_for("", &METAL[2..], None, false);
    assert_eq!(taken.problems(), [""; 0], "who calls no cloud needs neither");
}

/// E6: a file that is empty, no JSON, or an empty object is refused, and nothing of it is repeated.
#[test]
fn a_file_that_is_no_json_object_is_refused() {
    let help = r#"write one JSON object, such as {"apiKey": "…", "projectID": "…"}"#;
    for (json, problem) in [
        ("", "is empty"),
        ("\n", "is empty"),
        ("[\"s3cret\"]", "is JSON, but not an object with keys"),
        (
            "{\"apiKey\": \"s3cret\",}",
            "is not valid JSON: trailing comma at line 1 column 21",
        ),
        ("{]", "is not valid JSON: key must be a string at line 1 column 2"),
    ] {
        let told = take("", &[], Some(json)).problems();
        assert_eq!(told, [format!("FILE: {problem}; {help}")], "{json}");
    }
    assert_eq!(
        take("", &[], Some("{}")).problems(),
        [
            "FILE: apiKey: the token of the cloud's API is missing; write it there, or set METAL_API_KEY",
            "FILE: projectID: the project is missing; write it there, or set METAL_PROJECT_ID",
        ]
    );
    let sources = Sources::new(&[], Some("/nonexistent/cloud-sa.json".into()));
    let legacy = lay_under(&mut Document::empty(), &sources, true);
    let errors = groundplane_runtime::config::ConfigErrors::new("", legacy.problems);
    assert!(
        errors
            .to_string()
            .starts_with("/nonexistent/cloud-sa.json: cannot be read: "),
        "{errors}"
    );
}

/// E7: an AS number, a port, a switch or a URL that is none is refused by its name; the others are still taken.
#[test]
fn what_is_wrong_is_refused_by_its_name() {
    let mut environment = METAL.to_vec();
    environment.extend([
        ("METAL_LOCAL_ASN", "abc"),
        ("METAL_API_SERVER_PORT", "70000"),
        ("METAL_EIP_HEALTH_CHECK_USE_HOST_IP", "yes"),
        ("METAL_PEER_ASN", "0"),
    ]);
    let json = r#"{"localASN": "x", "bgpNodeSelector": 7, "annotationSrcIP": ["a"], "loadBalancerID": "b"}"#;
    assert_eq!(
        take("", &environment, Some(json)).problems(),
        [
            "METAL_API_SERVER_PORT: \"70000\" is not a port; write a number from 1 to 65535, or leave it out for that of the API servers",
            "METAL_EIP_HEALTH_CHECK_USE_HOST_IP: \"yes\" is neither true nor false; write `true` or `false`",
            "METAL_LOCAL_ASN: \"abc\" is not an AS number; write a number from 1 to 4294967294, such as 65000",
            "METAL_PEER_ASN: \"0\" is not an AS number; write a number from 1 to 4294967294, such as 65000",
            "FILE: annotationSrcIP: is a list or an object; write a text",
            "FILE: bgpNodeSelector: `7` is no text; put it in quotes",
            "FILE: loadBalancerID: names a load balancer of Equinix Metal, and that service is no more; remove it; the \
             API endpoint is an elastic IP with a tag (METAL_EIP_TAG, `eipTag`)",
        ]
    );
    let taken = take("", &[("METAL_LOAD_BALANCER", "emlb:///sv")], None);
    let told = taken.problems().concat();
    assert!(
        told.contains("METAL_LOAD_BALANCER: `emlb:///sv` asks for a load balancer of Equinix Metal"),
        "{told}"
    );
}

/// E7: a selector is judged by the rules of the key that it sets, and still told by its own name.
#[test]
fn a_value_that_our_own_rules_refuse_is_told_by_its_name() {
    let mut environment = METAL.to_vec();
    environment.push(("METAL_BGP_NODE_SELECTOR", "a in ("));
    let sources = Sources::new(&environment, None);
    let examined = super::super::Config::examine(Document::empty(), &sources, false);
    let told = examined.errors.unwrap().to_string();
    assert!(
        told.starts_with("METAL_BGP_NODE_SELECTOR (gateway.bgpNodeSelector): "),
        "{told}"
    );
}

/// E8: every name of an annotation can be told, by a variable and by the file.
#[test]
fn every_name_of_an_annotation_can_be_told() {
    let rows = TABLE
        .iter()
        .filter(|row| row.path.starts_with("gateway.annotations."));
    let mut seen = 0;
    for row in rows {
        for name in row.environment {
            let value = format!("example.com/{}", name.to_lowercase());
            let taken = take_for("", &[(name, &value)], None, false);
            assert_eq!(taken.values().get(row.path), Some(&value), "{name}");
            assert_eq!(taken.origin(row.path), *name);
            seen += 1;
        }
        for (keys, driver) in [(row.equinix, "equinix"), (row.cherry, "cherry")] {
            for key in keys {
                let json = format!("{{\"{key}\": \"example.com/x\"}}");
                let taken = take_for(&format!("driver: {driver}\n"), &[], Some(&json), false);
                let value = taken.values().get(row.path).cloned();
                assert_eq!(value.as_deref(), Some("example.com/x"), "{key}");
                seen += 1;
            }
        }
    }
    assert!(seen >= 38, "only {seen} names");
}

/// Every key that a setting sets is one that there is, and takes what it is set to.
#[test]
fn every_setting_sets_a_key_that_there_is() {
    let plain = |row: &Row, name: &str| match row.kind {
        Kind::Asn | Kind::PeerAsn => "65001",
        Kind::Port => "7443",
        Kind::Flag => "true",
        Kind::Id => "4711",
        Kind::LoadBalancer if name.ends_with("CONFIGMAP") => "ns:name",
        Kind::LoadBalancer if name.contains("DISABLE") => "true",
        Kind::LoadBalancer => "metallb:///ns?crdConfiguration=true&bgp-peer-mode=frr",
        _ if row.path == "gateway.bgpNodeSelector" => "bgp=true",
        Kind::Secret | Kind::Text | Kind::LoadBalancerId | Kind::Debug => "x",
    };
    // A name of its own for each annotation, for they must differ.
    let value = |row: &Row, name: &str| match row.path.strip_prefix("gateway.annotations.") {
        Some(field) => format!("example.com/{}", field.to_lowercase()),
        None => plain(row, name).to_owned(),
    };
    for prefix in [table::METAL, PACKET, CHERRY] {
        let mut environment: Vec<(&str, String)> = Vec::new();
        for row in TABLE.iter().filter(|row| row.kind != Kind::LoadBalancerId) {
            let names = row.environment.iter().filter(|name| name.starts_with(prefix));
            environment.extend(names.map(|name| (*name, value(row, name))));
        }
        // Each by itself, and all of them.
        for told in environment.chunks(1).chain([&environment[..]]) {
            let told: Vec<_> = told.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let sources = Sources::new(&told, None);
            let examined = super::super::Config::examine(Document::empty(), &sources, false);
            let errors = examined.errors.map(|errors| errors.to_string());
            assert_eq!(errors, None, "{told:?}");
        }
    }
}

/// Secrets are told by their place, in no message and in no value.
#[test]
fn secrets_show_nowhere() {
    let mut environment = METAL.to_vec();
    environment.extend([("METAL_BGP_PASS", "h1dden"), ("METAL_LOCAL_ASN", "x")]);
    let json = r#"{"apiKey": "s3cret", "bgpPass": "h1dden", "projectID": []}"#;
    for environment in [&environment[..], &[]] {
        let taken = take("", environment, Some(json));
        let shown = format!(
            "{:?} {:?} {:?} {:?}",
            taken.values(),
            taken.document,
            taken.legacy,
            Sources::new(environment, None)
        );
        assert!(!shown.contains("s3cret") && !shown.contains("h1dden"), "{shown}");
    }
}
