use groundplane_runtime::config::parse;

use super::*;
use crate::AddressBackend;

fn config(text: &str) -> CloudConfig {
    parse("test.yaml", text).unwrap()
}

fn paths(text: &str) -> Vec<String> {
    config(text)
        .validate()
        .into_iter()
        .map(|problem| problem.path)
        .collect()
}

/// A token in a file, and the section that names it.
fn equinix(extra: &str) -> (tempfile::NamedTempFile, String) {
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "tok").unwrap();
    let text = format!(
        "driver: equinix\nequinix:\n  apiTokenFile: {}\n  projectId: 1111-aaaa\n{extra}",
        token.path().display()
    );
    (token, text)
}

/// E6: nothing at all is hardware of one's own.
#[test]
fn nothing_configured_is_the_static_driver() {
    let cloud = connect(&config("{}"), &Context::new()).unwrap();
    assert_eq!(cloud.name, "static");
    assert!(matches!(cloud.addresses, AddressBackend::Ipam));
}

#[test]
fn an_unknown_driver_is_told_which_there_are() {
    let error = "cheri".parse::<DriverName>().unwrap_err().to_string();
    assert_eq!(
        error,
        "there is no driver `cheri`; choose one of: static, equinix, cherry, remote"
    );
    let error = parse::<CloudConfig>("test.yaml", "driver: cheri")
        .unwrap_err()
        .to_string();
    assert!(error.contains("static, equinix"), "{error}");
    for name in DriverName::ALL {
        assert_eq!(name.to_string().parse(), Ok(name));
    }
}

/// E4
#[test]
fn what_is_missing_is_named_with_its_place() {
    assert_eq!(
        paths("driver: equinix"),
        ["equinix.apiTokenFile", "equinix.projectId"]
    );
    let problems =
        config("driver: equinix\nequinix: {apiTokenFile: /nowhere/token, projectId: p}").validate();
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].path, "equinix.apiTokenFile");
    assert!(
        problems[0].message.contains("/nowhere/token"),
        "{}",
        problems[0].message
    );
    let error = connect(&config("driver: equinix"), &Context::new())
        .unwrap_err()
        .to_string();
    assert!(error.contains("equinix.projectId"), "{error}");
}

/// E11: any place that does not give the token away.
#[test]
fn the_token_is_sent_in_the_clear_to_loopback_only() {
    for (url, good) in [
        ("https://api.equinix.com/metal/v1", true),
        ("http://127.0.0.1:8080/metal/v1", true),
        ("http://[::1]:8080", true),
        ("http://localhost/metal/v1", true),
        ("http://api.equinix.com/metal/v1", false),
        ("http://127.0.0.1.example.com", false),
        ("https://user:word@api.equinix.com", false),
        ("https://api.equinix.com/?x=1", false),
        ("ftp://127.0.0.1", false),
        ("api.equinix.com", false),
        ("", false),
    ] {
        let (_token, text) = equinix(&format!("  baseUrl: '{url}'\n"));
        let expected: &[&str] = if good { &[] } else { &["equinix.baseUrl"] };
        assert_eq!(paths(&text), expected, "{url}");
    }
}

/// E7
#[test]
fn numbers_out_of_range_are_refused() {
    for (line, path) in [
        ("  pageSize: 0\n", "equinix.pageSize"),
        ("  pageSize: 1001\n", "equinix.pageSize"),
        ("  maxConcurrency: 0\n", "equinix.maxConcurrency"),
        ("  requestTimeout: 10ms\n", "equinix.requestTimeout"),
        ("  bgp: {enabled: true, localAsn: 0}\n", "equinix.bgp.localAsn"),
        (
            "  bgp: {enabled: true, passwordFile: /nowhere}\n",
            "equinix.bgp.passwordFile",
        ),
    ] {
        let (_token, text) = equinix(line);
        assert_eq!(paths(&text), [path]);
    }
    assert!(
        parse::<CloudConfig>("test.yaml", "equinix: {pagesize: 3}").is_err(),
        "a misspelt key"
    );
}

#[test]
fn a_password_that_the_api_would_refuse_is_refused_without_being_shown() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "tooshort").unwrap();
    let (_token, text) = equinix(&format!(
        "  bgp: {{enabled: true, passwordFile: {}}}\n",
        file.path().display()
    ));
    let problems = config(&text).validate();
    assert_eq!(problems.len(), 1);
    assert!(!format!("{problems:?}").contains("tooshort"));
}

#[test]
fn bgp_and_metrics_come_as_configured() {
    let (_token, text) = equinix("  requestTimeout: 3s\n");
    let cloud = connect(&config(&text), &Context::new()).unwrap();
    assert!(cloud.bgp.is_none() && cloud.machines.is_some());
    let (_token, text) = equinix("  bgp: {enabled: true}\n");
    assert!(connect(&config(&text), &Context::new()).unwrap().bgp.is_some());
}

/// A token in a file, and the section `cherry` that names it.
fn cherry(extra: &str) -> (tempfile::NamedTempFile, String) {
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "tok").unwrap();
    let text = format!(
        "driver: cherry\ncherry:\n  apiTokenFile: {}\n{extra}",
        token.path().display()
    );
    (token, text)
}

#[test]
fn the_number_of_a_project_may_be_written_as_a_text() {
    for line in ["  projectId: 123456\n", "  projectId: '123456'\n"] {
        let (_token, text) = cherry(line);
        let config = config(&text);
        assert_eq!(config.validate(), []);
        assert_eq!(config.cherry.project_id, "123456");
        let cloud = connect(&config, &Context::new()).unwrap();
        assert_eq!(cloud.name, "cherry");
        assert!(cloud.bgp.is_none() && cloud.machines.is_some() && cloud.endpoint.is_none());
    }
    let (_token, text) = cherry("  projectId: 1\n  bgp: {enabled: true}\n");
    assert!(connect(&config(&text), &Context::new()).unwrap().bgp.is_some());
}

/// E4, E7, E11, E90
#[test]
fn what_is_wrong_with_the_section_cherry_is_told_by_its_place() {
    assert_eq!(
        paths("driver: cherry"),
        ["cherry.apiTokenFile", "cherry.projectId"]
    );
    for (line, path) in [
        ("  projectId: abc\n", "cherry.projectId"),
        ("  projectId: 0\n", "cherry.projectId"),
        ("  projectId: '-1'\n", "cherry.projectId"),
        ("  projectId: 1\n  pageSize: 0\n", "cherry.pageSize"),
        ("  projectId: 1\n  maxConcurrency: 0\n", "cherry.maxConcurrency"),
        (
            "  projectId: 1\n  requestTimeout: 10ms\n",
            "cherry.requestTimeout",
        ),
        (
            "  projectId: 1\n  baseUrl: 'http://api.cherryservers.com/v1'\n",
            "cherry.baseUrl",
        ),
    ] {
        let (_token, text) = cherry(line);
        assert_eq!(paths(&text), [path], "{line}");
    }
    for wrong in [
        "cherry: {projectId: [1]}",
        "cherry: {projectID: 1}",
        "cherry: {projectId: -1}",
    ] {
        assert!(parse::<CloudConfig>("test.yaml", wrong).is_err(), "{wrong}");
    }
}

#[test]
fn tables_that_contradict_themselves_are_refused() {
    let text = "
static:
  machines:
    - {name: a}
    - {name: a}
    - {name: b, providerId: 'static://a'}
    - {name: ''}
    - {name: c, addresses: [{type: InternalIP, address: host}, {type: Hostname, address: host}]}
    - {name: 'd e'}
  bgp:
    localAsn: 65000
    peers:
      - {address: 10.0.0.1, asn: 65001}
      - {address: 10.0.0.1, asn: 65002}
      - {address: 10.0.0.1, asn: 65002, nodeSelector: {rack: a}}
      - {address: 10.0.0.2, asn: 0, port: 0, sourceAddress: 'fd00::1', passwordFile: /nowhere}
";
    assert_eq!(
        paths(text),
        [
            "static.machines[1].name",
            "static.machines[2].providerId",
            "static.machines[3].name",
            "static.machines[4].addresses[0].address",
            "static.machines[5].name",
            "static.bgp.peers[1].address",
            "static.bgp.peers[3].asn",
            "static.bgp.peers[3].port",
            "static.bgp.peers[3].sourceAddress",
            "static.bgp.peers[3].passwordFile",
        ]
    );
}
