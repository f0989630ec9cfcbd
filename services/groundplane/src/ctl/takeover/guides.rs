//! The guides are held to the program: each command that they give is one, each key is one, and each name is the one that the program looks
//! for. That the commands of `ctl` work where they are given is shown end to end.

use std::path::{Path, PathBuf};

use clap::Parser as _;
use groundplane_core::older::{self, OlderController};
use serde_json::Value;

use crate::args::Args;
use crate::config::Config;

const COMMON: &str = "takeover.md";

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn text(path: &str) -> String {
    let path = repository(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn guide(one: &OlderController) -> String {
    // The way in which people call it.
    format!("takeover-{}.md", one.name.trim_start_matches("cloud-provider-"))
}

/// Every guide, by its name.
fn guides() -> Vec<(String, String)> {
    let names = older::ALL.into_iter().map(guide).chain([COMMON.to_owned()]);
    names
        .map(|name| (name.clone(), text(&format!("docs/{name}"))))
        .collect()
}

/// Everything that is written as code: the lines of blocks, and what stands between backticks.
fn code(guide: &str) -> Vec<String> {
    let (mut found, mut inside) = (Vec::new(), false);
    // Outside of blocks a piece may go over the end of a line.
    let mut prose = String::new();
    for line in guide.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if inside {
            found.push(line.trim().to_owned());
        } else {
            prose.push_str(line);
            prose.push(' ');
        }
    }
    assert!(!inside, "a block has no end");
    found.extend(prose.split('`').skip(1).step_by(2).map(str::to_owned));
    found
}

/// The arguments of `groundplane`, with something in the place of what a reader puts in.
fn arguments(line: &str) -> Option<Vec<String>> {
    let (_, command) = line.split_once("groundplane ctl ")?;
    let words = command.split_whitespace().map(|word| match word {
        "ID" => "0011223344556677",
        other => other,
    });
    let head = ["groundplane", "ctl"].into_iter();
    Some(head.chain(words).map(str::to_owned).collect())
}

#[test]
fn every_command_of_ctl_is_one() {
    let mut count = 0;
    for (name, text) in guides() {
        for line in code(&text) {
            if let Some(arguments) = arguments(&line) {
                count += 1;
                if let Err(error) = Args::try_parse_from(&arguments) {
                    panic!("{name}: {line}: {error}");
                }
            }
        }
    }
    assert!(count >= 7, "{count} commands");
    assert!(Args::try_parse_from(["groundplane", "ctl", "takeover", "apply", "ID"]).is_err());
}

/// Is there such a key? Paths as in the README.
fn is_key(path: &str) -> bool {
    let mut value = &serde_json::to_value(Config::default()).unwrap();
    path.split('.').all(|name| match value.get(name) {
        Some(below) => {
            value = below;
            true
        }
        None => false,
    })
}

#[test]
fn every_key_is_one() {
    let mut count = 0;
    for (name, text) in guides() {
        for piece in code(&text) {
            let path = piece.split([':', ' ']).next().unwrap_or_default();
            if ["gateway.", "endpoint."]
                .iter()
                .any(|section| path.starts_with(section))
            {
                count += 1;
                assert!(is_key(path), "{name}: there is no `{path}`");
            }
        }
    }
    assert!(count >= 5, "{count} keys");
    assert!(!is_key("gateway.rival") && !is_key("endpoint.tag.x"));
}

/// What `--set` sets is in the chart's schema, or below `config`, where it is a key.
#[test]
fn every_value_of_the_chart_is_one() {
    let schema: Value = serde_json::from_str(&text("charts/groundplane/values.schema.json")).unwrap();
    let mut count = 0;
    for (name, text) in guides() {
        for line in code(&text) {
            for (_, rest) in line
                .match_indices("--set ")
                .map(|(at, set)| line.split_at(at + set.len()))
            {
                let (path, value) = rest.split_once('=').unwrap();
                count += 1;
                let value = value.split_whitespace().next().unwrap_or_default();
                let known = if let Some(key) = path.strip_prefix("config.") {
                    is_key(key)
                } else {
                    let pointer = path.replace('.', "/properties/");
                    schema.pointer(&format!("/properties/{pointer}")).is_some()
                };
                assert!(known && !value.is_empty(), "{name}: {path}={value}");
            }
        }
    }
    assert!(count >= older::ALL.len() + 2, "{count} values");
}

/// Each guide names what its controller is called and leaves, and stops all that runs of it.
#[test]
fn each_guide_names_what_is_looked_for() {
    for one in older::ALL {
        let text = text(&format!("docs/{}", guide(one)));
        let code = code(&text);
        let line = |wanted: &str| code.iter().any(|line| line == wanted);
        for workload in one.workloads {
            let stop = format!(
                "kubectl -n {} delete {} {}",
                older::NAMESPACE,
                workload.kind.as_str(),
                workload.name
            );
            assert!(line(&stop), "{}: {stop}", one.name);
        }
        let external = format!("{}/{}", older::NAMESPACE, one.external_service);
        assert!(line(&external), "{}: {external}", one.name);
        for part in [
            format!("get secret {} ", one.secret),
            format!("cloudConfig.existingSecret={}", one.secret),
            one.usage.trim_start_matches("usage=").to_owned(),
        ] {
            assert!(text.contains(&part), "{}: {part}", one.name);
        }
    }
    let common = code(&text(&format!("docs/{COMMON}")));
    for name in [
        format!("{}/{}", older::NAMESPACE, older::LEASE),
        format!("{}: {}", older::METALLB_LABEL.0, older::METALLB_LABEL.1),
    ] {
        assert!(common.contains(&name), "{name}");
    }
}

/// The guides lead to each other, and the README to all of them.
#[test]
fn every_guide_is_found() {
    let (readme, common) = (text("README.md"), text(&format!("docs/{COMMON}")));
    for one in older::ALL {
        let name = guide(one);
        assert!(readme.contains(&format!("(docs/{name})")), "{name}");
        assert!(common.contains(&format!("({name})")), "{name}");
        assert!(
            text(&format!("docs/{name}")).contains(&format!("({COMMON})")),
            "{name}"
        );
    }
    assert!(readme.contains(&format!("(docs/{COMMON})")));
}

/// What may not be read counts as not there: the chart's role has to name everything that is looked for.
#[test]
fn the_chart_lets_the_gateway_look_for_each() {
    let names = text("charts/groundplane/templates/_names.tpl");
    let listed = |resource: &str| -> Vec<&str> {
        let head = format!("resources: [{resource}]\n  resourceNames: [");
        let (_, rest) = names.split_once(&head).unwrap_or_else(|| panic!("{resource}"));
        rest.split(']').next().unwrap_or_default().split(", ").collect()
    };
    for one in older::ALL {
        for workload in one.workloads {
            let resource = format!("{}s", workload.kind.as_str());
            assert!(
                listed(&resource).contains(&workload.name),
                "{resource}: {}",
                workload.name
            );
        }
        assert!(
            names.contains(&format!("{:?}", one.external_service)),
            "{}",
            one.external_service
        );
    }
    assert_eq!(listed("leases"), [older::LEASE]);
}
