//! The sandbox as a process.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, ExitStatus, Stdio};

use serde_json::Value;

use crate::{Client, http};

/// A process that does not outlive its test.
struct Process(Child);

impl Process {
    fn start(arguments: &[&str]) -> (Self, Value) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_groundplane-sandbox"))
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        (Self(child), serde_json::from_str(&line).unwrap())
    }

    fn terminate(mut self) -> ExitStatus {
        let id = self.0.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &id])
                .status()
                .unwrap()
                .success()
        );
        self.0.wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Gone already where the test went well.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[tokio::test]
async fn the_process_says_where_it_is_and_stops_when_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let path = file.to_str().unwrap();
    let id = "11111111-1111-4111-8111-111111111111";
    let projects = format!("a={id},b");
    let arguments = [
        "--listen",
        "127.0.0.1:0",
        "--projects",
        &projects,
        "--devices",
        "3",
        "--token-file",
        path,
    ];
    let (process, line) = Process::start(&arguments);
    assert_eq!(
        (&line["project"], &line["projects"][1]["name"]),
        (&id.into(), &"b".into())
    );
    assert!(line.get("token").is_none());
    let token = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    let client = Client {
        http: http(),
        base: line["base_url"].as_str().unwrap().to_owned(),
        token: token.clone(),
        bearer: false,
    };
    assert_eq!(
        client.get(&format!("/projects/{id}/devices")).await.1["meta"]["total"],
        3
    );
    assert!(process.terminate().success());

    // The token stays, so that whoever has read it can go on.
    std::fs::write(&file, "mine\n").unwrap();
    let (process, line) = Process::start(&arguments);
    let client = Client {
        http: http(),
        base: line["base_url"].as_str().unwrap().to_owned(),
        token: "mine".to_owned(),
        bearer: false,
    };
    assert_eq!(client.get(&format!("/projects/{id}/devices")).await.0, 200);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine\n");
    assert!(process.terminate().success());
    assert_ne!(token, "mine");
}

#[tokio::test]
async fn a_process_speaks_the_api_that_it_was_asked_for_and_no_other() {
    for (cloud, metal, cherry) in [("equinix", 200, 404), ("cherry", 404, 200), ("both", 200, 200)] {
        let (process, line) = Process::start(&["--cloud", cloud, "--devices", "2"]);
        let project = &line["projects"][0];
        let origin = line["admin_url"].as_str().unwrap().replace("/sandbox/v1", "");
        let client = |path: &str, bearer| Client {
            http: http(),
            base: format!("{origin}{path}"),
            token: line["token"].as_str().unwrap().to_owned(),
            bearer,
        };
        let devices = format!("/projects/{}/devices", project["id"].as_str().unwrap());
        assert_eq!(client("/metal/v1", false).get(&devices).await.0, metal, "{cloud}");
        let servers = format!("/projects/{}/servers", project["number"]);
        assert_eq!(client("/v1", true).get(&servers).await.0, cherry, "{cloud}");
        let base = line["base_url"].as_str().unwrap();
        let first = if metal == 200 { "/metal/v1" } else { "/v1" };
        assert_eq!(base, format!("{origin}{first}"));
        assert_eq!(line.get("cherry_url").is_some(), cloud == "both");
        assert!(process.terminate().success());
    }
}

#[test]
fn a_bad_project_id_is_an_error_that_names_the_project() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_groundplane-sandbox"))
        .args(["--projects", "a=zz"])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(text.contains("project `a`"), "{text}");
}
