use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use groundplane_core::AddressRange;
use pretty_assertions::assert_eq;
use secrecy::ExposeSecret as _;
use serde::Deserialize;

use super::*;

#[derive(Debug, PartialEq, Deserialize)]
struct Root {
    #[serde(default)]
    ipam: Ipam,
    driver: Driver,
    #[serde(default)]
    labels: BTreeMap<String, u16>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Ipam {
    pools: Vec<Pool>,
    cooldown: HumanDuration,
    #[serde(with = "super::duration")]
    scan_every: Duration,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Pool {
    name: String,
    addresses: Vec<AddressRange>,
    #[serde(default)]
    priority: u8,
    #[serde(default)]
    gateway: Option<IpAddr>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Driver {
    Static,
    Equinix { project: String, token_file: SecretFile },
}

fn problems(text: &str) -> String {
    parse::<Root>("groundplane.yaml", text).unwrap_err().to_string()
}

#[test]
fn a_good_file_is_decoded() {
    let text = "
driver:
  equinix:
    project: p1
    token_file: /run/token
labels:
  a.b/c: 7
ipam:
  cooldown: 5m
  scanEvery: 500ms
  pools:
    - name: public
      addresses: [192.0.2.0/28, 2001:db8::1]
      gateway: 192.0.2.1
    - name: more
      addresses:
";
    let root: Root = parse("x", text).unwrap();
    assert_eq!(root.ipam.cooldown.0, Duration::from_secs(300));
    assert_eq!(root.ipam.scan_every, Duration::from_millis(500));
    assert_eq!(root.ipam.pools[0].addresses.len(), 2);
    assert_eq!(
        root.ipam.pools[1].addresses,
        [],
        "a key with nothing behind it is an empty list"
    );
    assert_eq!(root.labels["a.b/c"], 7);
    assert!(matches!(root.driver, Driver::Equinix { .. }));
}

#[test]
fn an_unknown_key_is_refused_with_its_place_and_the_nearest_known_one() {
    assert_eq!(
        problems("driver: static\nipam:\n  poolz: []\n"),
        "groundplane.yaml:3:3: ipam.poolz: unknown key `poolz`; did you mean `pools`?"
    );
    assert_eq!(
        problems("driver: static\nzzz: 1\n"),
        "groundplane.yaml:2:1: zzz: unknown key `zzz`; the keys here are `ipam`, `driver`, `labels`"
    );
}

#[test]
fn all_problems_come_at_once_in_the_order_of_the_file() {
    let text = "
driver: statik
labels:
  a: 70000
ipam:
  cooldown: 5
  scanEvery: soon
  pools:
    - name: 7
      addresses:
        - 192.0.2.9-192.0.2.1
        - 10.0.0.1/8
      prio: 3
    - name: b
      adresses: []
    - addresses: 192.0.2.0/24
";
    assert_eq!(
        problems(text).lines().collect::<Vec<_>>(),
        [
            "groundplane.yaml:2:9: driver: unknown value `statik`; did you mean `static`?",
            "groundplane.yaml:4:6: labels.a: expected a whole number from 0 to 65535, found the number `70000`",
            "groundplane.yaml:6:13: ipam.cooldown: expected a text, found the number `5`; put it in quotes",
            "groundplane.yaml:7:14: ipam.scanEvery: `soon` is not a duration; write a number with a unit (us, ms, s, \
             m, h), such as `500ms`, `30s` or `1h30m`",
            "groundplane.yaml:9:13: ipam.pools[0].name: expected a text, found the number `7`; put it in quotes",
            "groundplane.yaml:11:11: ipam.pools[0].addresses[0]: range `192.0.2.9-192.0.2.1` ends before it starts; \
             swap its ends",
            "groundplane.yaml:12:11: ipam.pools[0].addresses[1]: `10.0.0.1/8` has host bits set; the network is \
             `10.0.0.0/8`",
            "groundplane.yaml:13:7: ipam.pools[0].prio: unknown key `prio`; did you mean `priority`?",
            "groundplane.yaml:15:7: ipam.pools[1].adresses: unknown key `adresses`; did you mean `addresses`?",
            "groundplane.yaml:16:7: ipam.pools[2].name: `name` is missing; add `name`",
            "groundplane.yaml:16:18: ipam.pools[2].addresses: expected a list, found a text; begin each entry on a \
             line of its own with `- `",
        ]
    );
}

#[test]
fn a_text_in_the_wrong_place_is_not_repeated() {
    let text = problems("driver: static\nipam: s3cret\nlabels: {a: s3cret}\n");
    assert!(!text.contains("s3cret"), "{text}");
    assert_eq!(text.lines().count(), 2);
}

#[test]
fn what_is_not_yaml_is_refused_with_its_place() {
    let error = parse::<Root>("f", "driver: [static\n").unwrap_err();
    assert_eq!(error.problems.len(), 1);
    assert!(error.to_string().contains("not valid YAML"), "{error}");
    assert!(error.problems[0].place.is_some());
}

#[test]
fn a_key_given_twice_is_refused() {
    let error = problems("driver: static\ndriver: static\n");
    assert!(error.starts_with("groundplane.yaml:2:1: "), "{error}");
}

#[test]
fn an_empty_file_is_an_empty_map() {
    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct All {
        ipam: Ipam,
    }
    for text in ["", "# nothing yet\n", "---\n"] {
        assert_eq!(parse::<All>("f", text), Ok(All::default()));
    }
    assert_eq!(
        problems(""),
        "groundplane.yaml:1:1: driver: `driver` is missing; add `driver`"
    );
}

#[test]
fn a_services_own_problems_get_their_places() {
    let text = "ipam:\n  pools:\n    - name: a\n      addresses: [192.0.2.0/24]\n    - name: b\n";
    let document = Document::parse("groundplane.yaml", text).unwrap();
    let overlap = Problem::new(
        "pools[0].addresses[0]",
        "overlaps pool `b`",
        "make one of them smaller",
    );
    let deep = Problem::new("pools[1].addresses[3]", "is odd", "");
    let errors = document
        .check(vec![deep.under("ipam"), overlap.under("ipam")])
        .unwrap_err();
    assert_eq!(
        errors.to_string().lines().collect::<Vec<_>>(),
        [
            "groundplane.yaml:4:19: ipam.pools[0].addresses[0]: overlaps pool `b`; make one of them smaller",
            "groundplane.yaml:5:7: ipam.pools[1].addresses[3]: is odd",
        ]
    );
    assert_eq!(document.check(vec![]), Ok(()));
}

#[test]
fn a_missing_file_is_named() {
    let error = load::<Root>(Path::new("/nonexistent/groundplane.yaml")).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("/nonexistent/groundplane.yaml: cannot be read"),
        "{error}"
    );
}

#[test]
fn durations_are_read_and_written_alike() {
    for text in ["0", "500ms", "5m", "1h30m", "2s500ms", "1us"] {
        assert_eq!(text.parse::<HumanDuration>().unwrap().to_string(), text);
    }
    for text in [
        "",
        "5",
        "m",
        "5x",
        "-5m",
        "5m5h",
        "5m5m",
        "1.5s",
        "99999999999999999999h",
        "9999999999h",
    ] {
        assert!(text.parse::<HumanDuration>().is_err(), "{text}");
    }
}

#[test]
fn a_secret_is_read_without_its_newline_and_again_when_the_file_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, "one\r\n").unwrap();
    let file = SecretFile::new(&path);
    assert_eq!(file.read("equinix.tokenFile").unwrap().expose_secret(), "one");
    std::fs::write(&path, "three\n").unwrap();
    assert_eq!(file.read("equinix.tokenFile").unwrap().expose_secret(), "three");
    assert!(!format!("{file:?}").contains("three"), "a secret must not show");
}

#[test]
fn an_empty_or_missing_secret_names_the_field_and_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    let text = |file: &SecretFile| file.read("equinix.tokenFile").unwrap_err().to_string();
    let file = SecretFile::new(&path);
    assert_eq!(
        text(&file),
        format!(
            "equinix.tokenFile: cannot read the secret file `{}`",
            path.display()
        )
    );
    std::fs::write(&path, " \n").unwrap();
    assert_eq!(
        text(&file),
        format!("equinix.tokenFile: the secret file `{}` is empty", path.display())
    );
}

#[test]
fn a_secret_at_a_key_of_a_json_file_is_read_in_any_case_and_again_when_it_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cloud-sa.json");
    std::fs::write(&path, r#"{"APIKEY": "one", "projectID": 7}"#).unwrap();
    let written = format!("json:{}#apiKey", path.display());
    let secret = SecretFile::from(written.clone());
    assert_eq!(secret, SecretFile::json(&path, "apiKey"));
    assert_eq!(secret.to_string(), written);
    assert_eq!(secret.read("apiTokenFile").unwrap().expose_secret(), "one");
    std::fs::write(&path, r#"{"apiKey": "three"}"#).unwrap();
    assert_eq!(secret.read("apiTokenFile").unwrap().expose_secret(), "three");
    assert!(!format!("{secret:?}").contains("three"), "a secret must not show");

    let said = |key: &str, text: &str| {
        std::fs::write(&path, text).unwrap();
        let read = SecretFile::json(&path, key).read("equinix.apiTokenFile");
        read.unwrap_err().to_string()
    };
    let file = format!("equinix.apiTokenFile: the secret file `{}`", path.display());
    for (text, problem) in [
        ("{}", "has no text at its key `apiKey`"),
        (r#"{"apiKey": 7}"#, "has no text at its key `apiKey`"),
        (r#"{"apiKey": "\n"}"#, "has no text at its key `apiKey`"),
        ("[\"s3cret\"]", "is JSON, but not an object with keys"),
        ("", "is empty"),
    ] {
        assert_eq!(said("apiKey", text), format!("{file} {problem}"));
    }
    assert!(said("apiKey", "{]").starts_with(&format!("{file} is not valid JSON: ")));
}

#[test]
fn a_secret_of_the_environment_is_named_and_never_shown() {
    let secret = SecretFile::from("env:GROUNDPLANE_NO_SUCH_TOKEN".to_owned());
    assert_eq!(secret, SecretFile::environment("GROUNDPLANE_NO_SUCH_TOKEN"));
    assert_eq!(
        secret.read("equinix.apiTokenFile").unwrap_err().to_string(),
        "equinix.apiTokenFile: the environment variable `GROUNDPLANE_NO_SUCH_TOKEN` is not set, or empty, or no text"
    );
    // cargo sets it for every test.
    let set = SecretFile::environment("CARGO_PKG_NAME");
    assert_eq!(set.read("x").unwrap().expose_secret(), "groundplane-runtime");
    assert!(!format!("{set:?}{set}").contains("groundplane-runtime"));
    let path = SecretFile::from("env:file-with-a-dash".to_owned());
    assert_eq!(path, SecretFile::new("env:file-with-a-dash"), "a path after all");
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "[ -~\n]{0,80}") {
        // Whether it is right is not the question here.
        let read = parse::<Root>("f", &text);
        proptest::prop_assert!(read.is_ok() || read.is_err_and(|errors| !errors.problems.is_empty()));
    }

    #[test]
    fn every_duration_is_read_back(micros in 0_u64..u64::MAX / 1_000) {
        let duration = HumanDuration(Duration::from_micros(micros));
        proptest::prop_assert_eq!(duration.to_string().parse::<HumanDuration>(), Ok(duration));
    }
}
