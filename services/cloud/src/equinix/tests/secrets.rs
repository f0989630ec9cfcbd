//! No secret is ever shown: not in a log at its finest, not in an error, not in what a value says of itself, whatever the cloud does.

use groundplane_core::Family;
use groundplane_runtime::config::SecretFile;
use groundplane_sandbox::{Action, DeviceOptions, ProjectOptions, StatusFault};
use http::Method;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::NeighborQuery;
use crate::testing::overheard::{self, Log, told};

/// What the project has, and neighbours are told.
const THEIRS: &str = "Theirs4711Pw";
/// What we are configured with.
const OURS: &str = "Ours815Pw";

/// A driver with a password of its own, in a project which has another.
async fn bench() -> Bench {
    let options = ProjectOptions {
        asn: Some(65_123),
        md5: Some(THEIRS.to_owned()),
        ..ProjectOptions::default()
    };
    Bench::with_files(options, |config, folder| {
        std::fs::write(folder.join("password"), format!("{OURS}\n")).unwrap();
        config.bgp.password_file = Some(SecretFile::new(folder.join("password")));
    })
    .await
}

/// One call of each kind that carries a secret or brings one.
async fn calls(driver: &Equinix, machine: &ProviderId) -> String {
    let query = NeighborQuery {
        machine: machine.clone(),
        node: String::new(),
        labels: std::collections::BTreeMap::new(),
        addresses: vec![],
    };
    let address = wanted(Family::V4, vec![]);
    let (machines, made, enabled, project, session, neighbors) = tokio::join!(
        MachineSource::list(driver),
        driver.create(&address),
        driver.enable(),
        driver.project(),
        driver.create_session(machine, Family::V4),
        driver.neighbors(&query),
    );
    let told = [
        told(machines),
        told(made),
        told(enabled),
        told(project),
        told(session),
        told(neighbors),
    ];
    told.join("\n")
}

/// Fails where a secret is in the text.
fn check(what: &str, text: &str, token: &str) {
    overheard::check(what, text, &[token, THEIRS, OURS]);
}

#[tokio::test]
async fn whatever_the_cloud_answers_no_secret_is_logged_or_told() {
    let (log, _guard) = Log::begin();
    let bench = bench().await;
    let token = bench.project.token();
    let machine = bench.project.add_device(DeviceOptions::named("n1"));
    let machine = format!("equinixmetal://{machine}").parse().unwrap();
    let mut said = calls(&bench.driver, &machine).await;
    assert!(said.contains("password: Some("), "the password arrived: {said}");

    let echo = format!("bad X-Auth-Token {token}, md5 {OURS}");
    // Just so long that the cut goes through the token.
    let straddling = format!("{}{token}", "x".repeat(300 - 9));
    let answers = [
        (401, json!({ "errors": [echo] })),
        (500, json!({ "error": echo })),
        (422, json!({ "errors": [echo, "md5 is invalid"] })),
        (422, json!({ "errors": [straddling] })),
        (302, json!({ "errors": [echo] })),
        (200, json!(echo)),
        (
            200,
            json!({ "devices": echo, "bgp_neighbors": echo, "id": [echo], "status": { "a": echo } }),
        ),
    ];
    for (status, body) in answers {
        let fault = StatusFault {
            body: Some(body),
            ..StatusFault::new(status)
        };
        bench.project.fault(FaultRule::new(Action::Status(fault)));
        said.push_str(&calls(&bench.driver, &machine).await);
        bench.project.clear_faults();
    }
    for action in [Action::MalformedJson, Action::HalfBody, Action::DropBefore] {
        bench.project.fault(FaultRule::new(action));
        said.push_str(&calls(&bench.driver, &machine).await);
        bench.project.clear_faults();
    }
    let log = log.text();
    assert!(
        log.contains("trying again") && log.contains("cloud.http") && log.contains("hyper"),
        "{log}"
    );
    assert!(said.contains("bad X-Auth-Token [token], md5 [secret]"), "{said}");
    check("the log", &log, token);
    check("an outcome", &said, token);
    check("a metric", &bench.context.metrics.encode().unwrap(), token);
}

/// A number is no password; the decoder's own words would show it.
#[tokio::test]
async fn a_password_of_another_type_is_refused_unseen() {
    let bench = bench().await;
    let machine = bench.project.add_device(DeviceOptions::named("n1"));
    let machine: ProviderId = format!("equinixmetal://{machine}").parse().unwrap();
    let strange = |body: Value| {
        Action::Status(StatusFault {
            body: Some(body),
            ..StatusFault::new(200)
        })
    };
    let config = json!({ "id": "1", "status": "enabled", "asn": 65_000, "md5": 4_711_081_500_u64 });
    bench.project.fault(FaultRule::new(strange(config)));
    let project = told(bench.driver.project().await);
    bench.project.clear_faults();
    let row = json!({ "peer_as": 65_530, "peer_ips": ["169.254.255.1"], "md5_password": { "a": 4_711_081_500_u64 } });
    let rows = json!({ "bgp_neighbors": [row] });
    bench
        .project
        .fault(rule("GET", "/devices/{id}/bgp/neighbors", strange(rows)));
    let neighbors = calls(&bench.driver, &machine).await;
    for said in [project, neighbors] {
        assert!(said.contains("a password that is not a text"), "{said}");
        assert!(!said.contains("4711081500"), "{said}");
    }
}

#[tokio::test]
async fn what_holds_a_secret_does_not_say_it() {
    let bench = bench().await;
    // What was read is remembered.
    bench.driver.enable().await.unwrap();
    MachineSource::list(&bench.driver).await.unwrap();
    let call = Call::new("enable BGP", Method::POST, "/x", "/x").body(json!({ "md5": OURS }));
    for text in [
        format!("{:?}", bench.driver),
        format!("{:#?}", bench.driver.config),
        format!("{:?}", bench.driver.http),
        format!("{call:?}"),
    ] {
        check("a value", &text, bench.project.token());
    }
}

/// A redirect would take the token elsewhere: it is not followed, and where it leads is not told.
#[tokio::test]
async fn a_redirect_is_not_followed_and_not_told() {
    let (log, _guard) = Log::begin();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let bench = Bench::with(ProjectOptions::default(), |config| {
        config.base_url = format!("http://{address}");
    })
    .await;
    let token = bench.project.token().to_owned();
    let redirect = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://{address}/elsewhere?token={token}\r\n\
         content-length: 0\r\nconnection: close\r\n\r\n"
    );
    let serve = async {
        let mut heard = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0, "half a request");
            }
            heard.push(String::from_utf8(request).unwrap());
            stream.write_all(redirect.as_bytes()).await.unwrap();
            // One more would be the redirect that was followed.
            if heard.len() == 2 {
                break heard;
            }
        }
    };
    let list = || MachineSource::list(&bench.driver);
    let (heard, first, second) = tokio::join!(serve, list(), list());
    for request in &heard {
        assert!(
            request.starts_with("GET /projects/") && request.contains(&token),
            "{request}"
        );
    }
    for outcome in [first, second] {
        assert_eq!(outcome.as_ref().unwrap_err().kind, CloudErrorKind::Refused);
        check("an outcome", &told(outcome), &token);
    }
    let log = log.text();
    assert!(log.contains("307"), "{log}");
    check("the log", &log, &token);
}
