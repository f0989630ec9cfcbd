//! Configuration that is wrong is refused at the start: everything at once, each with its place and the way out.

use std::process::Stdio;

use anyhow::Result;
use groundplane_tests::groundplane::program;
use groundplane_tests::scratch::Scratch;

/// Runs `groundplane all` on this file and returns its exit code and what it said.
async fn refused(yaml: &str) -> Result<(Option<i32>, String)> {
    let folder = Scratch::new("config")?;
    let file = folder.write("groundplane.yaml", yaml)?;
    let run = tokio::process::Command::new(program()?)
        .args(["all", "--listen", "127.0.0.1:0", "--config"])
        .arg(file)
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(std::time::Duration::from_secs(60), run).await??;
    Ok((
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    ))
}

/// Overlap, reversed range, host bits, mixed families: all of them in one go, each with line, path and help.
#[tokio::test]
async fn every_problem_of_the_pools_is_told_at_once() -> Result<()> {
    let yaml = r#"pools:
  - name: one
    addresses: ["192.0.2.0/24"]
  - name: two
    addresses: ["192.0.2.128-192.0.2.130"]
  - name: three
    addresses: ["198.51.100.9-198.51.100.1", "10.0.0.1/8", "10.0.0.1-2001:db8::1"]
"#;
    let (code, said) = refused(yaml).await?;
    assert_eq!(code, Some(64), "{said}");
    for part in [
        "groundplane.yaml:5:",
        "groundplane.yaml:7:",
        "pools[1]",
        "ends before it starts",
        "host bits",
        "mixes",
    ] {
        assert!(said.contains(part), "`{part}` is not in:\n{said}");
    }
    Ok(())
}

/// An unknown key names its nearest, an unknown driver the known ones, a missing token file its path.
#[tokio::test]
async fn unknown_keys_drivers_and_files_are_named() -> Result<()> {
    let (code, said) = refused("pols: []\n").await?;
    assert_eq!(code, Some(64), "{said}");
    assert!(said.contains("pols") && said.contains("pools"), "{said}");

    let (code, said) = refused("driver: awz\n").await?;
    assert_eq!(code, Some(64), "{said}");
    assert!(said.contains("static") && said.contains("equinix"), "{said}");

    let yaml = "driver: equinix\nequinix: {projectId: p, metro: sv, apiTokenFile: /nowhere/token}\n";
    let (code, said) = refused(yaml).await?;
    assert_eq!(code, Some(64), "{said}");
    assert!(
        said.contains("/nowhere/token") && said.contains("apiTokenFile"),
        "{said}"
    );
    Ok(())
}
