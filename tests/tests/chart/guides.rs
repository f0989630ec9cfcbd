//! The guides for those who come from an older controller: their commands are run as they stand there.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use groundplane_tests::kube_api::User;
use groundplane_tests::scratch::workspace_root;
use groundplane_tests::{KubeApi, chart};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::rendered::{container, list, objects, of_kind, text, text_of, workloads};

/// Each guide, its Secret, and what the gateway may write of MetalLB's by it.
const GUIDES: [(&str, &str, &str, &[&str]); 3] = [
    ("packet-ccm", "packet-cloud-config", "packet-ccm", &["configmaps"]),
    (
        "equinix-metal",
        "metal-cloud-config",
        "cloud-provider-equinix-metal",
        &["ipaddresspools", "configmaps"],
    ),
    (
        "cherry",
        "cherry-cloud-config",
        "cloud-provider-cherry",
        &["ipaddresspools"],
    ),
];

fn document(name: &str) -> Result<String> {
    let path = workspace_root().join("docs").join(name);
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// The blocks of a document that are written in this language.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let (mut found, mut block): (Vec<String>, Option<String>) = (Vec::new(), None);
    for line in document.lines() {
        match (&mut block, line.trim_start().strip_prefix("```")) {
            (None, Some(opened)) if opened == language => block = Some(String::new()),
            // Another language: until it ends, nothing begins.
            (None, Some(_)) => block = Some("\0".to_owned()),
            (Some(text), Some(_)) => {
                found.extend(Some(std::mem::take(text)).filter(|text| !text.starts_with('\0')));
                block = None;
            }
            (Some(text), None) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    found
}

/// The arguments of every `helm VERB groundplane charts/groundplane` in a document, without the namespace.
fn commands(document: &str, verb: &str) -> Vec<Vec<String>> {
    let start = format!("helm {verb} groundplane charts/groundplane ");
    let shell = blocks(document, "sh").concat().replace("\\\n", " ");
    let lines = shell.lines().filter_map(|line| line.trim().strip_prefix(&*start));
    lines
        .map(|line| {
            let words = line.split_whitespace().map(|word| word.replace(['\'', '"'], ""));
            let mut words = words.peekable();
            let mut arguments = Vec::new();
            while let Some(word) = words.next() {
                match word.as_str() {
                    "--namespace" => drop(words.next()),
                    "--reuse-values" => {}
                    _ => arguments.push(word),
                }
            }
            arguments
        })
        .collect()
}

/// What the guide has installed.
fn installed(guide: &str) -> Result<Vec<String>> {
    let mut commands = commands(&document(&format!("takeover-{guide}.md"))?, "install");
    ensure!(commands.len() == 1, "{guide}: {commands:?}");
    Ok(commands.remove(0))
}

/// What the gateway may write in this namespace, first of each rule.
fn rights(objects: &[Value], namespace: &str) -> Vec<String> {
    let roles = of_kind(objects, "Role");
    let there = roles
        .iter()
        .filter(|role| role["metadata"]["namespace"] == namespace);
    let granted = there.flat_map(|role| list(&role["rules"]));
    granted
        .map(|rule| text(&rule["resources"][0]).to_owned())
        .collect()
}

fn variable<'a>(workload: &'a Value, name: &str) -> Option<&'a str> {
    let variables = list(&container(workload)["env"]);
    let found = variables.iter().find(|variable| variable["name"] == name)?;
    Some(text(&found["value"]))
}

/// E9: the command of each guide mounts its Secret, says whose it is, and gives the right to write what that controller wrote for MetalLB
/// and for the API endpoint, though the chart sees nothing of what is in the Secret.
#[tokio::test]
async fn the_commands_of_the_guides_give_what_the_secret_asks_for() -> Result<()> {
    for (guide, secret, of, metallb) in GUIDES {
        let arguments = installed(guide)?;
        ensure!(arguments.concat().contains(secret), "{guide}: {arguments:?}");
        let objects = objects(&arguments).await?;
        let workloads = workloads(&objects);
        assert_eq!(workloads.keys().collect::<Vec<_>>(), ["all"], "{guide}");
        assert_eq!(
            variable(workloads["all"], "GROUNDPLANE_CLOUD_CONFIG_OF"),
            Some(of),
            "{guide}"
        );
        let mut may = rights(&objects, "metallb-system");
        may.retain(|resource| ["ipaddresspools", "configmaps"].contains(&resource.as_str()));
        may.dedup();
        assert_eq!(may, metallb, "{guide}");
        let file = text_of(of_kind(&objects, "ConfigMap")[0]);
        assert!(
            !file.contains("driver:") && !file.contains("announcer:"),
            "{guide}: {file}"
        );
        let external = rights(&objects, "kube-system");
        assert!(
            external.contains(&"endpointslices".to_owned()),
            "{guide}: {external:?}"
        );
        assert!(
            of_kind(&objects, "DaemonSet").is_empty(),
            "{guide}: nobody moves the endpoint yet"
        );
    }
    Ok(())
}

/// After the older controller is gone, agents move the endpoint: by the guide's last command, which keeps what was installed.
#[tokio::test]
async fn the_last_command_of_the_guide_starts_the_agents() -> Result<()> {
    let upgrades = commands(&document("takeover.md")?, "upgrade");
    ensure!(upgrades.len() == 1, "{upgrades:?}");
    for (guide, secret, of, _) in GUIDES {
        let objects = objects(&[installed(guide)?, upgrades[0].clone()].concat()).await?;
        let agents = of_kind(&objects, "DaemonSet");
        ensure!(agents.len() == 1, "{guide}: no agents");
        assert_eq!(
            variable(agents[0], "GROUNDPLANE_CLOUD_CONFIG_OF"),
            Some(of),
            "{guide}"
        );
        let volumes = list(&agents[0]["spec"]["template"]["spec"]["volumes"]);
        let mounted = volumes
            .iter()
            .any(|volume| volume["secret"]["secretName"] == secret);
        ensure!(mounted, "{guide}: {volumes:?}");
    }
    Ok(())
}

/// Variables of the older controller's manifest, as the guide has them written, reach everybody who reads them, in both modes.
#[tokio::test]
async fn the_variables_of_the_guide_reach_who_reads_them() -> Result<()> {
    let yaml = blocks(&document("takeover.md")?, "yaml");
    let example = yaml.iter().find(|block| block.contains("extraEnv:"));
    let example = example.context("no example of extraEnv")?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("older.yaml");
    std::fs::write(&file, example)?;
    let values: Value = serde_saphyr::from_str(example)?;
    let first = &values["cloudConfig"]["extraEnv"][0];
    let (name, value) = (text(&first["name"]), text(&first["value"]));
    ensure!(
        ["METAL_", "PACKET_", "CHERRY_"]
            .iter()
            .any(|head| name.starts_with(head)),
        "{name}"
    );
    let with = |more: &str| -> Vec<String> {
        let file = file.display().to_string();
        ["-f", &file, "--set", more].map(str::to_owned).to_vec()
    };
    let services = objects(&with("mode=services,agent.enabled=true")).await?;
    let mut workloads = workloads(&services);
    workloads.insert("agent".to_owned(), of_kind(&services, "DaemonSet")[0]);
    for (service, workload) in &workloads {
        let told = (service != "ipam").then_some(value);
        assert_eq!(variable(workload, name), told, "{service}");
        assert_eq!(
            variable(workload, "GROUNDPLANE_CLOUD_CONFIG_OF"),
            None,
            "nothing tells it"
        );
    }
    // They tell the driver, too, and may tell MetalLB and an endpoint.
    assert!(!text_of(of_kind(&services, "ConfigMap")[0]).contains("driver:"));
    ensure!(
        !rights(&services, "metallb-system").is_empty(),
        "no right on MetalLB's objects"
    );
    ensure!(
        rights(&services, "kube-system").contains(&"endpointslices".to_owned()),
        "no endpoint"
    );
    let named = objects(&with("cloudConfig.of=metal-ccm")).await?;
    let all = crate::rendered::workloads(&named)["all"];
    assert_eq!(variable(all, name), Some(value));
    assert_eq!(variable(all, "GROUNDPLANE_CLOUD_CONFIG_OF"), Some("metal-ccm"));
    Ok(())
}

/// What is said of rights: by the configuration alone where it says who announces; only the forms and in the place that were chosen else.
#[tokio::test]
async fn rights_on_metallbs_objects_can_be_narrowed_down() -> Result<()> {
    let secret = "cloudConfig.existingSecret=metal-cloud-config";
    for (more, namespace, expected) in [
        ("config.gateway.announcer=kube-vip", "metallb-system", &[][..]),
        (
            "config.gateway.announcer=metallb-configmap",
            "metallb-system",
            &["configmaps", "configmaps"],
        ),
        ("cloudConfig.metallb.forms=null", "metallb-system", &[]),
        (
            "cloudConfig.metallb.forms={metallb-configmap},cloudConfig.metallb.namespace=elsewhere",
            "elsewhere",
            &["configmaps", "configmaps"],
        ),
        ("config.gateway.metallb.namespace=told", "metallb-system", &[]),
    ] {
        let objects = crate::rendered::objects_set(&format!("{secret},{more}")).await?;
        assert_eq!(rights(&objects, namespace), expected, "{more}");
    }
    let none = objects(&[]).await?;
    assert_eq!(rights(&none, "metallb-system"), [""; 0], "without older inputs");
    Ok(())
}

async fn rendered_by(kubeconfig: &Path, values: &str) -> Result<Vec<Value>> {
    let kubeconfig = kubeconfig.display().to_string();
    chart::render(&["--dry-run=server", "--kubeconfig", &kubeconfig, "--set", values]).await
}

/// A Role cannot be where there is no namespace: without MetalLB, the guide's command would fail. Helm asks the cluster.
#[tokio::test]
async fn without_metallbs_namespace_there_is_no_right_in_it() -> Result<()> {
    let api = KubeApi::shared().await?;
    let corner = api.corner("older").await?;
    let kubeconfig = api.kubeconfig(User::Admin);
    let namespace = format!("{}-metallb", corner.name());
    let values =
        format!("cloudConfig.existingSecret=metal-cloud-config,cloudConfig.metallb.namespace={namespace}");
    let before = rendered_by(&kubeconfig, &values).await?;
    assert_eq!(rights(&before, &namespace), [""; 0]);
    assert_eq!(corner.another_namespace("metallb").await?, namespace);
    let after = rendered_by(&kubeconfig, &values).await?;
    assert!(rights(&after, &namespace).contains(&"configmaps".to_owned()));
    // Who is told in so many words is believed.
    let told = format!("config.gateway.announcer=metallb,config.gateway.metallb.namespace={namespace}-x");
    let told = rendered_by(&kubeconfig, &told).await?;
    assert!(!rights(&told, &format!("{namespace}-x")).is_empty());
    Ok(())
}

#[test]
fn commands_are_found_in_their_blocks() {
    let text = "```yaml\nhelm install groundplane charts/groundplane --no\n```\n  ```sh\nhelm install groundplane charts/groundplane \\\n  \
                --namespace groundplane --set 'a=b'\nkubectl\n  ```\nhelm install groundplane charts/groundplane --no\n";
    assert_eq!(json!(commands(text, "install")), json!([["--set", "a=b"]]));
    assert_eq!(commands(text, "upgrade"), Vec::<Vec<String>>::new());
    assert_eq!(blocks(text, "yaml").len(), 1);
}
