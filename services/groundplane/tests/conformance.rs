//! `groundplane conformance` as an outsider runs it: the program, against a provider that listens on loopback.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "test code outside of test functions"
)]

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use groundplane_cloud::testing::FakeCloud;
use groundplane_cloud::testing::loopback::{Loopback, Passing, tap};
use groundplane_runtime::Context;
use groundplane_runtime::grpc::{BoundAddress, Listen, Server, Target, channel};
use tokio::process::{Child, Command};
use tokio::sync::Notify;
use tonic::service::Routes;

/// Serves on a free port.
async fn serve(routes: Routes, context: &Context) -> String {
    let server = Server::new("provider", context).listen(Listen::Tcp(([127, 0, 0, 1], 0).into()));
    let addresses = server.routes(routes).start().await.unwrap();
    match &addresses[0] {
        BoundAddress::Tcp(address) => address.to_string(),
        other => panic!("bound to {other}"),
    }
}

fn furnished() -> FakeCloud {
    let cloud = FakeCloud::new();
    for name in ["m1", "m2"] {
        cloud.add_machine(name, &["10.0.0.1".parse().unwrap()]).unwrap();
    }
    cloud
}

fn program(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_groundplane"))
        .arg("conformance")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Exit code, standard output, standard error.
async fn ended(child: Child) -> (Option<i32>, String, String) {
    let output = child.wait_with_output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn a_provider_in_order_is_told_so_and_left_as_it_was() {
    let (cloud, context) = (furnished(), Context::new());
    let provider = Loopback::new(cloud.cloud(), None, &context.tasks);
    let address = serve(provider.routes(), &context).await;
    let (code, table, notes) = ended(program(&["--target", &address])).await;
    assert_eq!(code, Some(0), "{table}{notes}");
    assert!(table.lines().next().unwrap().starts_with("ID   RULE"), "{table}");
    let row = |id: &str| table.lines().find(|line| line.starts_with(id)).unwrap();
    assert!(row("P22 ").contains("  pass"), "{table}");
    assert!(
        row("P53 ").contains("skipped") && row("P53 ").ends_with("the provider does not offer `endpoint`"),
        "{table}"
    );
    assert!(
        notes.contains("going to do: reserves up to 4 addresses"),
        "{notes}"
    );
    assert!(cloud.reservations().is_empty());

    let (code, text, _) = ended(program(&["--target", &address, "--rule", "p12", "-o", "json"])).await;
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, Some(0));
    assert_eq!(
        (
            &json["provider"],
            &json["rules"][0]["id"],
            &json["rules"][0]["result"]
        ),
        (&"fake".into(), &"P12".into(), &"pass".into())
    );
}

#[tokio::test]
async fn a_provider_that_breaks_a_rule_is_told_which_and_why() {
    let (cloud, context) = (furnished(), Context::new());
    let behind = Loopback::new(cloud.cloud(), None, &context.tasks);
    let behind = channel(&behind.serve(&context).await.unwrap(), None).unwrap();
    let routes = tap(&behind, |call: Passing| {
        Box::pin(async move {
            match call.method.as_str() {
                "GetMachine" => Ok(Vec::new().into()),
                _ => call.pass().await,
            }
        })
    });
    let address = serve(routes, &context).await;
    let (code, table, _) = ended(program(&["--target", &address, "--capability", "machines"])).await;
    assert_eq!(code, Some(1), "{table}");
    let broken: Vec<_> = table
        .lines()
        .filter(|line| line.contains("  FAIL  "))
        .map(|line| &line[..3])
        .collect();
    assert_eq!(broken, ["P11", "P12"], "{table}");
}

#[tokio::test]
async fn what_cannot_be_checked_is_neither_good_nor_bad() {
    let free = {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let (code, _, notes) = ended(program(&["--target", &free, "--timeout", "2s"])).await;
    assert_eq!(code, Some(2), "{notes}");
    assert!(notes.contains("the provider cannot be asked"), "{notes}");
    for wrong in [
        vec!["--target", "no where"],
        vec![],
        vec!["--target", &free, "--capability", "routes"],
    ] {
        assert_eq!(ended(program(&wrong)).await.0, Some(64), "{wrong:?}");
    }
}

/// Ctrl-C in the middle of a call that has its effect already: it is found by its key, and given back.
#[tokio::test]
async fn stopped_within_a_call_it_leaves_nothing() {
    let (cloud, context) = (furnished(), Context::new());
    let behind = Loopback::new(cloud.cloud(), None, &context.tasks);
    let behind: Target = behind.serve(&context).await.unwrap();
    let behind = channel(&behind, None).unwrap();
    let (made, first) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(true)));
    let told = Arc::clone(&made);
    let routes = tap(&behind, move |call: Passing| {
        let (told, first) = (Arc::clone(&told), Arc::clone(&first));
        Box::pin(async move {
            let answer = call.pass().await;
            if call.method == "CreateReservation" && first.swap(false, Ordering::SeqCst) {
                told.notify_one();
                std::future::pending::<()>().await;
            }
            answer
        })
    });
    let address = serve(routes, &context).await;
    let child = program(&["--target", &address, "--timeout", "60s"]);
    made.notified().await;
    assert_eq!(cloud.reservations().len(), 1);
    let id = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let (code, table, notes) = ended(child).await;
    assert_eq!(code, Some(2), "{table}{notes}");
    assert!(table.contains("the program was stopped"), "{table}");
    assert!(cloud.reservations().is_empty(), "{notes}");
}
