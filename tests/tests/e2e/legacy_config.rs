//! Whoever ran an older controller starts groundplane with the same variables, or the same Secret.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use groundplane_sandbox::ProjectOptions;
use groundplane_tests::groundplane::program;
use groundplane_tests::scratch::Scratch;
use groundplane_tests::{CloudApi, KubeApi, Mode, World, WorldOptions, chart, eventually};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::Api;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// What a run of the program said.
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

/// Runs it with these variables, and the JSON file if there is one.
async fn run(arguments: &[&str], environment: &[(&str, &str)], file: Option<&Path>) -> Result<Said> {
    let mut command = tokio::process::Command::new(program()?);
    command.args(arguments);
    if let Some(file) = file {
        // As the flag was called first.
        command.arg("--provider-config").arg(file);
    }
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy().into_owned();
        if ["METAL_", "PACKET_", "CHERRY_", "GROUNDPLANE_", "KUBECONFIG"]
            .iter()
            .any(|head| text.starts_with(head))
        {
            command.env_remove(name);
        }
    }
    let run = command
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(std::time::Duration::from_secs(60), run).await??;
    Ok(Said {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// A Service gets its address, and the token of the project shows in no log.
async fn a_service_gets_its_address(world: &World) -> Result<()> {
    let (corner, project) = (&world.corner, world.project()?);
    corner.add_service("web").await?;
    let address = corner.addresses_of("web", 1).await?.remove(0);
    let reservations = format!("{:?}", project.reservations());
    ensure!(reservations.contains(&address), "{address}: {reservations}");
    ensure!(
        !world.log_text()?.contains(project.token()),
        "the token stands in the log"
    );
    Ok(())
}

/// The Service says its address in the one field where the controller before said it.
async fn says_its_address(world: &World, said: impl Fn(Service) -> Option<String>) -> Result<()> {
    let address = world.corner.addresses_of("web", 1).await?.remove(0);
    let service: Service = world.corner.api().get("web").await?;
    assert_eq!(said(service), Some(address));
    Ok(())
}

/// The body of the one order of an address.
fn order(world: &World) -> Result<String> {
    let orders = world.project()?.journal().calls(0, "POST", "/projects/{pid}/ips");
    ensure!(orders.len() == 1, "{orders:?}");
    Ok(format!("{orders:?}"))
}

/// E1: the project is told by variables alone, and a Service gets its address.
#[tokio::test]
async fn variables_alone_give_a_service_its_address() -> Result<()> {
    let variables = [("METAL_LOAD_BALANCER", "empty://"), ("METAL_METRO_NAME", "da")];
    let world = WorldOptions::equinix(ProjectOptions::default())
        .older_variables(&variables)
        .start("variables")
        .await?;
    a_service_gets_its_address(&world).await?;
    says_its_address(&world, |service| service.spec?.load_balancer_ip).await?;
    let order = order(&world)?;
    ensure!(
        order.contains("\"da\"") || order.contains("\\\"da\\\""),
        "{order}"
    );
    Ok(())
}

/// E2, E11: the project is told by the JSON file alone, its address of the API included; each service is a process of its own.
#[tokio::test]
async fn the_json_file_alone_gives_a_service_its_address() -> Result<()> {
    let world = WorldOptions::equinix(ProjectOptions::default())
        .older_json(json!({"loadbalancer": "empty:///", "METRO": "sv", "metros": "x"}))
        .mode(Mode::Services)
        .start("json")
        .await?;
    a_service_gets_its_address(&world).await?;
    let log = world.log_text()?;
    ensure!(log.contains("unknown key `metros` is ignored"), "{log}");
    Ok(())
}

/// E3: where both speak, the variable counts.
#[tokio::test]
async fn a_variable_wins_over_the_json_file() -> Result<()> {
    let world = WorldOptions::equinix(ProjectOptions::default())
        .older_json(
            json!({"apiKey": "wrong", "projectID": "wrong", "loadbalancer": "empty:///", "metro": "da"}),
        )
        .older_variables(&[("METAL_METRO_NAME", "ny")])
        .start("precedence")
        .await?;
    a_service_gets_its_address(&world).await?;
    let order = order(&world)?;
    ensure!(order.contains("ny") && !order.contains("\"da\""), "{order}");
    Ok(())
}

/// E90: the same at Cherry Servers, whose file is told by the number of its project.
#[tokio::test]
async fn cherrys_json_file_gives_a_service_its_address() -> Result<()> {
    let world = WorldOptions::cherry(CloudApi::Cherry.project())
        .older_json(json!({"loadbalancer": "empty://"}))
        .older_variables(&[("CHERRY_REGION_NAME", "EU-Nord-1")])
        .start("cherry")
        .await?;
    a_service_gets_its_address(&world).await?;
    says_its_address(&world, |service| {
        service
            .metadata
            .annotations?
            .remove("cherryservers.com/loadBalancerIPs")
    })
    .await
}

/// E9, E50: packet-ccm's own Secret says token and project and nothing else. Called by its name, MetalLB is told as packet-ccm told it, with
/// the rights that the guide's command gives, and what goes with the Service is given back.
#[tokio::test]
async fn the_bare_secret_of_packet_ccm_has_metallb_told() -> Result<()> {
    let corner = KubeApi::shared().await?.corner("bare").await?;
    let metallb = corner.another_namespace("metallb").await?;
    chart::grant_older(&corner.client(), "packet-cloud-config", &metallb).await?;
    let world = WorldOptions::equinix(CloudApi::Equinix.project_of_reservations())
        .older_json(json!({}))
        .env("GROUNDPLANE_CLOUD_CONFIG_OF", "packet-ccm")
        .gateway(&format!("  metallb: {{namespace: {metallb}}}\n"))
        // packet-ccm asked its machine where it is.
        .section("equinix: {metro: sv}\n")
        .start_in(corner)
        .await?;
    world.ready().await?;
    let (corner, project) = (&world.corner, world.project()?);
    corner.add_service("web").await?;
    let config_maps: Api<ConfigMap> = Api::namespaced(corner.client(), &metallb);
    eventually("MetalLB is told the reserved address", async || {
        let reserved = project.reservations();
        ensure!(reserved.len() == 1, "{reserved:?}");
        let address = reserved[0].address.context("no address yet")?.to_string();
        let service: Service = corner.api().get("web").await?;
        let asks = service.spec.and_then(|spec| spec.load_balancer_ip);
        ensure!(asks.as_deref() == Some(&*address), "{asks:?}");
        let told = config_maps.get("config").await?.data.unwrap_or_default();
        let told = told.get("config").context("no text")?;
        ensure!(told.contains(&format!("{address}/32")), "{told}");
        Ok(())
    })
    .await?;
    corner.delete_service("web").await?;
    corner.service_gone("web").await?;
    assert_eq!(project.reservations().len(), 0);
    let log = world.log_text()?;
    ensure!(log.contains("the configuration is that of packet-ccm"), "{log}");
    ensure!(!log.contains("does not tell whose it is"), "{log}");
    Ok(())
}

/// E9: without the name, nobody can tell whose such a Secret is: the configuration that is shown says so, with the way out.
#[tokio::test]
async fn a_bare_secret_is_told_of_until_it_is_called_by_a_name() -> Result<()> {
    let folder = Scratch::new("bare")?;
    let file = folder.write(
        "cloud-sa.json",
        r#"{"apiKey": "s3cret", "projectID": "7a44b778"}"#,
    )?;
    let show = ["ctl", "-o", "json", "config", "show"];
    let announcer = |said: &Said| -> Result<Value> {
        let rows: Vec<Value> = serde_json::from_str(&said.out).with_context(|| said.err.clone())?;
        let row = rows.into_iter().find(|row| row["key"] == "gateway.announcer");
        Ok(row.context("no announcer")?["value"].clone())
    };
    let said = run(&show, &[], Some(&file)).await?;
    assert_eq!((said.code, announcer(&said)?), (Some(0), json!("empty")));
    let told = "does not tell whose it is";
    ensure!(said.err.contains(told), "{}", said.err);
    ensure!(said.err.contains("--cloud-config-of packet-ccm"), "{}", said.err);
    let named = [("GROUNDPLANE_CLOUD_CONFIG_OF", "packet-ccm")];
    let said = run(&show, &named, Some(&file)).await?;
    assert_eq!(announcer(&said)?, json!("metallb-configmap"));
    ensure!(!said.err.contains(told), "{}", said.err);
    ensure!(said.err.contains("no facility is told"), "{}", said.err);
    let wrong = run(
        &[&show[..], &["--cloud-config-of", "packet"]].concat(),
        &[],
        Some(&file),
    )
    .await?;
    assert_eq!(wrong.code, Some(64), "{}", wrong.err);
    ensure!(
        wrong.err.contains("cloud-provider-equinix-metal"),
        "{}",
        wrong.err
    );
    Ok(())
}

/// Nobody was told to announce: Services get nothing, as with the controller before, and its log says why.
#[tokio::test]
async fn without_a_load_balancer_nothing_is_ordered() -> Result<()> {
    let world = WorldOptions::equinix(ProjectOptions::default())
        .older_variables(&[])
        .start("off")
        .await?;
    world.corner.add_service("web").await?;
    // The node after it gets its machine, so that the Service had its turn.
    world.add_machine("one").await?;
    let done = |node: &k8s_openapi::api::core::v1::Node| {
        let spec = node.spec.clone().unwrap_or_default();
        let waits = spec
            .taints
            .iter()
            .flatten()
            .any(|taint| taint.key.ends_with("/uninitialized"));
        (spec.provider_id.is_some() && !waits).then_some(())
    };
    world.corner.node_until("one", "is initialised", done).await?;
    assert_eq!(world.project()?.reservations().len(), 0);
    let log = world.log_text()?;
    ensure!(log.contains("METAL_LOAD_BALANCER or `loadbalancer`"), "{log}");
    Ok(())
}

/// E4, E6, E7, E10: the process does not start with what is missing or wrong, and says all of it by the names that its user knows.
#[tokio::test]
async fn what_is_missing_or_wrong_is_refused_at_the_start() -> Result<()> {
    let all = ["all", "--listen", "127.0.0.1:0"];
    let wrong = [
        ("METAL_API_KEY", "s3cret"),
        ("METAL_LOCAL_ASN", "abc"),
        ("METAL_API_SERVER_PORT", "x"),
        ("METAL_BGP_NODE_SELECTOR", "a in ("),
        ("METAL_LOAD_BALANCER", "haproxy://"),
    ];
    let said = run(&all, &wrong, None).await?;
    assert_eq!(said.code, Some(64), "{}", said.err);
    for part in [
        "METAL_PROJECT_ID: the project is missing",
        "METAL_LOCAL_ASN: \"abc\" is not an AS number",
        "METAL_API_SERVER_PORT: \"x\" is not a port",
        "METAL_BGP_NODE_SELECTOR (gateway.bgpNodeSelector): ",
        "METAL_LOAD_BALANCER: `haproxy://` is no way to announce",
    ] {
        ensure!(said.err.contains(part), "`{part}` is not in:\n{}", said.err);
    }
    for (file, part) in [
        ("", "cloud-sa.json: is empty"),
        (
            "{}",
            "cloud-sa.json: apiKey: the token of the cloud's API is missing",
        ),
        ("{\"apiKey\": \"s3cret\",}", "cloud-sa.json: is not valid JSON"),
    ] {
        let folder = Scratch::new("legacy")?;
        let file = folder.write("cloud-sa.json", file)?;
        let said = run(&all, &[], Some(&file)).await?;
        assert_eq!(said.code, Some(64), "{}", said.err);
        ensure!(said.err.contains(part), "`{part}` is not in:\n{}", said.err);
        ensure!(!said.err.contains("s3cret"), "{}", said.err);
    }
    Ok(())
}

/// What results is shown with where each value comes from, without secrets, and as a file that says the same.
#[tokio::test]
async fn the_configuration_is_shown_with_its_origins() -> Result<()> {
    let variables = [
        ("METAL_API_KEY", "s3cret"),
        ("METAL_PROJECT_ID", "7a44b778"),
        ("METAL_LOAD_BALANCER", "kube-vip://"),
    ];
    let file = r#"{"apiKey": "h1dden", "eipTag": "api", "bgpPass": "Abcdefgh1234"}"#;
    let folder = Scratch::new("shown")?;
    let file = folder.write("cloud-sa.json", file)?;
    let show = async |form: &str| run(&["ctl", "-o", form, "config", "show"], &variables, Some(&file)).await;
    let said = show("json").await?;
    let rows: Vec<Value> = serde_json::from_str(&said.out).with_context(|| said.err.clone())?;
    let row = |key: &str| {
        let row = rows.iter().find(|row| row["key"] == key);
        row.map(|row| {
            (
                row["value"].clone(),
                row["from"].as_str().unwrap_or_default().to_owned(),
            )
        })
        .with_context(|| format!("{key} is not shown"))
    };
    assert_eq!(
        row("equinix.projectId")?,
        (json!("7a44b778"), "environment METAL_PROJECT_ID".to_owned())
    );
    assert_eq!(row("equinix.apiTokenFile")?.0, json!("env:METAL_API_KEY"));
    assert_eq!(row("ipam.cooldown")?, (json!("5m"), "default".to_owned()));
    let (tag, from) = row("endpoint.tag")?;
    assert_eq!(tag, json!("api"));
    ensure!(from.ends_with("cloud-sa.json: eipTag"), "{from}");
    let table = show("table").await?;
    let yaml = show("yaml").await?;
    ensure!(
        yaml.out
            .contains("projectId: \"7a44b778\"  # environment METAL_PROJECT_ID"),
        "{}",
        yaml.out
    );
    for said in [&said, &table, &yaml] {
        for secret in ["s3cret", "h1dden", "Abcdefgh1234"] {
            ensure!(
                !said.out.contains(secret) && !said.err.contains(secret),
                "{}",
                said.out
            );
        }
    }
    let same = folder.write("groundplane.yaml", &yaml.out)?;
    let path = same.display().to_string();
    let again = run(
        &["ctl", "-o", "json", "config", "show", "--config", &path],
        &[],
        None,
    )
    .await?;
    let again: Vec<Value> = serde_json::from_str(&again.out).with_context(|| again.err.clone())?;
    let values = |rows: &[Value]| -> Vec<(Value, Value)> {
        let each = rows.iter().map(|row| (row["key"].clone(), row["value"].clone()));
        each.collect()
    };
    assert_eq!(values(&again), values(&rows));
    Ok(())
}
