//! The shape of the tree, as rules that a build would not notice being broken. Each rule is a pure function from text to
//! violations, with a test that shows it failing.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use groundplane_tests::scratch::workspace_root;
use pretty_assertions::assert_eq;

/// Crates that do I/O or speak a protocol. What decides (`domain/`) and what it needs (`ports.rs`) knows none of them.
const OUTER: [&str; 10] = [
    "tokio",
    "tonic",
    "prost",
    "prost_types",
    "groundplane_proto",
    "kube",
    "k8s_openapi",
    "redb",
    "reqwest",
    "tracing",
];

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 8] = [
    "utils", "util", "common", "helpers", "helper", "manager", "types", "misc",
];

/// Lines of a file, its tests aside.
const LONGEST: usize = 600;

/// Who may depend on kube: the gateway talks to the cluster, the runtime holds its lease, the tests look at both.
const KUBE: [&str; 3] = ["services/gateway", "services/runtime", "tests"];

/// A source file, by its path from the root of the workspace.
struct Source {
    path: String,
    text: String,
}

/// Every Rust file of ours below `folders`.
fn sources(folders: &[&str]) -> Result<Vec<Source>> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = folders
        .iter()
        .map(|folder| workspace_root().join(folder))
        .collect();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path)?;
                let path = path.strip_prefix(workspace_root())?.display().to_string();
                found.push(Source { path, text });
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

/// The members as the workspace lists them, each with its manifest.
fn members(workspace: &str) -> Vec<String> {
    let list = workspace
        .split_once("members = [")
        .and_then(|(_, rest)| rest.split_once(']'));
    let list = list.map_or("", |(list, _)| list);
    list.split(',')
        .map(|member| member.trim().trim_matches('"').to_owned())
        .filter(|member| !member.is_empty())
        .collect()
}

fn manifest(folder: &str) -> Result<String> {
    let path = workspace_root().join(folder).join("Cargo.toml");
    std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
}

/// The part of a file that is the program: comments go, and so do the tests at its end.
fn program(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let tests = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let code = |line| match str::find(line, "//") {
        Some(comment) => &line[..comment],
        None => line,
    };
    text[..tests].lines().map(code).enumerate()
}

/// Whether a line of code names the crate: `use tokio;`, `tokio::time`, `pub use tokio::…`.
fn names_crate(line: &str, name: &str) -> bool {
    let is_name = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(name).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + name.len()..]);
        // `crate::tokio` and `self::tokio` would be modules of ours.
        let starts =
            !before.ends_with(is_name) && !before.ends_with("crate::") && !before.ends_with("self::");
        let ends = !after.starts_with(is_name);
        let used =
            after.starts_with("::") || before.trim_start().starts_with("use ") || before.contains(" use ");
        starts && ends && used
    })
}

/// Whether a file is one of those that know nothing of the outer world.
fn is_inner(path: &str) -> bool {
    let inside =
        path.contains("/src/domain/") || path.ends_with("/src/domain.rs") || path.ends_with("/src/ports.rs");
    inside && !is_test(path)
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/") || path.ends_with("_tests.rs")
}

/// Rule: the inner files know nothing of the outer ones.
fn outward_names(source: &Source) -> Vec<String> {
    if !is_inner(&source.path) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (index, line) in program(&source.text) {
        for name in OUTER.iter().filter(|name| names_crate(line, name)) {
            found.push(format!("{}:{}: {name}", source.path, index + 1));
        }
    }
    found
}

/// Rule: what calls the outer world does not lean on what is called by it.
fn sideways_names(source: &Source) -> Vec<String> {
    let adapter = source.path.contains("/src/adapters/") || source.path.ends_with("/src/adapters.rs");
    if !adapter || is_test(&source.path) {
        return Vec::new();
    }
    // Nested imports are read as one text, whatever lines they stand on.
    let code: String = program(&source.text).map(|(_, line)| line.trim()).collect();
    let named = code.split("crate::").skip(1).any(|rest| {
        let list = rest
            .strip_prefix('{')
            .and_then(|rest| rest.split_once(';'))
            .map_or("", |(list, _)| list);
        names_module(rest, "grpc")
            || list
                .split([',', '{'])
                .any(|name| names_module(name.trim(), "grpc"))
    });
    if named {
        vec![format!("{}: crate::grpc", source.path)]
    } else {
        Vec::new()
    }
}

/// Whether a path begins with this module.
fn names_module(path: &str, module: &str) -> bool {
    path.strip_prefix(module)
        .is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
}

/// Rule: a file whose head says that it is pure waits for nobody and asks for no time. A time may be an argument.
fn impure_names(source: &Source) -> Vec<String> {
    let head = source.text.lines().take_while(|line| line.len() > "//!".len());
    let head = head
        .map_while(|line| line.strip_prefix("//!"))
        .collect::<String>();
    let claimed = [" Pure.", " Pure:", ": pure."]
        .iter()
        .any(|claim| head.contains(claim));
    if !claimed || is_test(&source.path) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (index, line) in program(&source.text) {
        let line = line.replace("use tokio::time::Instant;", "");
        let named = ["tokio", "tonic", "redb", "reqwest"].map(|name| names_crate(&line, name));
        let waits =
            ["async fn ", "async move ", "async {", "async |", "::now()"].map(|what| line.contains(what));
        if named.contains(&true) || waits.contains(&true) {
            found.push(format!("{}:{}: {}", source.path, index + 1, line.trim()));
        }
    }
    found
}

/// Rule: a file can be read in one sitting.
fn too_long(source: &Source) -> Option<String> {
    let lines = program(&source.text).count();
    (!is_test(&source.path) && lines > LONGEST).then(|| format!("{}: {lines} lines", source.path))
}

/// Rule: a name says what is inside.
fn empty_names(source: &Source) -> Vec<String> {
    let path = Path::new(&source.path);
    let steps = path.components().map(|step| step.as_os_str().to_string_lossy());
    let modules = program(&source.text).filter_map(|(_, line)| {
        let line = line.trim_start();
        let line = line
            .strip_prefix("pub(crate) ")
            .or_else(|| line.strip_prefix("pub "))
            .unwrap_or(line);
        let name = line.strip_prefix("mod ")?.trim_end_matches([' ', '{', ';', '}']);
        Some(name.to_owned())
    });
    let names = steps
        .map(|step| step.trim_end_matches(".rs").to_owned())
        .chain(modules);
    names
        .filter(|name| EMPTY_NAMES.contains(&name.as_str()))
        .map(|name| format!("{}: {name}", source.path))
        .collect()
}

/// Rule: only they depend on kube, the runtime's lease included.
fn kube_users(member: &str, manifest: &str) -> Option<String> {
    let mut section = "";
    let depends = manifest.lines().any(|line| {
        if line.starts_with('[') {
            section = line;
        }
        let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
        let kube = matches!(name, "kube" | "k8s-openapi")
            || (name == "groundplane-runtime" && line.contains("\"lease\""));
        kube && section == "[dependencies]"
    });
    (depends && !KUBE.contains(&member)).then(|| format!("{member} depends on kube"))
}

#[test]
fn what_decides_does_no_io() -> Result<()> {
    let sources = sources(&["services"])?;
    assert!(
        sources.iter().any(|source| is_inner(&source.path)),
        "no inner file was found"
    );
    assert_eq!(
        sources.iter().flat_map(outward_names).collect::<Vec<_>>(),
        Vec::<String>::new()
    );
    Ok(())
}

#[test]
fn what_says_that_it_is_pure_is() -> Result<()> {
    let sources = sources(&["services"])?;
    assert_eq!(
        sources.iter().flat_map(impure_names).collect::<Vec<_>>(),
        Vec::<String>::new()
    );
    Ok(())
}

#[test]
fn adapters_do_not_lean_on_the_rpc_surface() -> Result<()> {
    let sources = sources(&["services"])?;
    assert!(
        sources
            .iter()
            .any(|source| source.path.contains("/src/adapters/")),
        "no adapter was found"
    );
    assert_eq!(
        sources.iter().flat_map(sideways_names).collect::<Vec<_>>(),
        Vec::<String>::new()
    );
    Ok(())
}

#[test]
fn files_are_short_and_their_names_say_something() -> Result<()> {
    let sources = sources(&[
        "services",
        "proto/src",
        "tests/src",
        "tests/sandbox/src",
        "tests/tests",
    ])?;
    assert_eq!(
        sources.iter().filter_map(too_long).collect::<Vec<_>>(),
        Vec::<String>::new()
    );
    assert_eq!(
        sources.iter().flat_map(empty_names).collect::<Vec<_>>(),
        Vec::<String>::new()
    );
    Ok(())
}

#[test]
fn only_the_gateway_talks_to_kubernetes() -> Result<()> {
    let members = members(&manifest("")?);
    let mut found = Vec::new();
    for member in &members {
        found.extend(kube_users(member, &manifest(member)?));
    }
    assert_eq!(found, Vec::<String>::new());
    for user in KUBE {
        assert!(
            members.iter().any(|member| member == user),
            "{user} is gone: take it off the list"
        );
    }
    Ok(())
}

#[test]
fn every_crate_is_listed_by_name() -> Result<()> {
    let members = members(&manifest("")?);
    for member in &members {
        assert!(!member.contains('*'), "{member} is a glob");
    }
    for entry in std::fs::read_dir(workspace_root().join("services"))? {
        let folder = format!("services/{}", entry?.file_name().to_string_lossy());
        assert!(members.contains(&folder), "{folder} is not a member");
    }
    Ok(())
}

#[test]
fn the_rules_can_be_broken() {
    let source = |path: &str, text: &str| Source {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let domain = |text: &str| outward_names(&source("services/x/src/domain/plan.rs", text)).len();
    assert_eq!(domain("use tokio::sync::watch;"), 1);
    assert_eq!(domain("pub use redb;"), 1);
    assert_eq!(domain("fn f() { tracing::info!(\"x\"); }"), 1);
    assert_eq!(
        domain("/// As tokio::time does.\nfn tokio_like() { let kube = 1; my_tokio::f(); }"),
        0
    );
    assert_eq!(
        domain("fn f() {}\n#[cfg(test)]\nmod tests {\n    use tokio::test;\n}"),
        0
    );
    assert_eq!(
        outward_names(&source("services/x/src/ports.rs", "use kube::Api;")).len(),
        1
    );
    assert_eq!(
        outward_names(&source("services/x/src/adapters/redb.rs", "use redb::Database;")).len(),
        0
    );
    assert_eq!(
        outward_names(&source("services/x/src/domain/tests.rs", "use tokio::test;")).len(),
        0
    );

    let said = |head: &str, text: &str| {
        impure_names(&source("services/x/src/plan.rs", &format!("{head}\n\n{text}")))
    };
    for text in ["use tokio::time::sleep;", "async fn f() {}", "    Instant::now()"] {
        assert_eq!(said("//! What is lacking. Pure.", text).len(), 1, "{text}");
        assert_eq!(
            said("//! What is lacking: pure.\n//!\n//! More.", text).len(),
            1,
            "{text}"
        );
        assert_eq!(
            said("//! What is done.\n//!\n//! Pure. Or not.", text).len(),
            0,
            "{text}"
        );
    }
    assert_eq!(
        said("//! Pure.", "use tokio::time::Instant;\n// as tokio::time").len(),
        0
    );

    let adapter = |text: &str| sideways_names(&source("services/x/src/adapters/y.rs", text)).len();
    assert_eq!(adapter("use crate::grpc::timestamp;"), 1);
    assert_eq!(adapter("fn f() { crate::grpc::timestamp(); }"), 1);
    assert_eq!(
        adapter("use crate::{\n    error::Error,\n    grpc::timestamp,\n};"),
        1
    );
    assert_eq!(adapter("use groundplane_runtime::grpc::timestamp;"), 0);
    assert_eq!(
        adapter("use crate::grpc_like::f;\nuse crate::{error, x::grpc};\n// crate::grpc"),
        0
    );
    assert_eq!(
        sideways_names(&source("services/x/src/app.rs", "use crate::grpc::f;")).len(),
        0
    );

    assert!(too_long(&source("services/x/src/app.rs", &"x\n".repeat(601))).is_some());
    assert!(too_long(&source("services/x/src/app.rs", &"x\n".repeat(600))).is_none());
    assert!(too_long(&source("services/x/src/app/tests.rs", &"x\n".repeat(900))).is_none());

    assert_eq!(empty_names(&source("services/x/src/utils.rs", "")).len(), 1);
    assert_eq!(
        empty_names(&source("services/common/src/lib.rs", "pub(crate) mod types;")).len(),
        2
    );
    assert_eq!(
        empty_names(&source("services/x/src/lib.rs", "mod helpers {\n}")).len(),
        1
    );
    assert_eq!(
        empty_names(&source("services/x/src/lib.rs", "mod names;")).len(),
        0
    );

    assert!(kube_users("services/ipam", "[dependencies]\nkube.workspace = true").is_some());
    assert!(kube_users("services/eip", "[dependencies]\nk8s-openapi = \"0\"").is_some());
    let lease = "[dependencies]\ngroundplane-runtime = { workspace = true, features = [\"lease\"] }";
    assert!(kube_users("services/bgp", lease).is_some());
    assert!(kube_users("services/gateway", lease).is_none());
    assert!(kube_users("services/ipam", "[dev-dependencies]\nkube.workspace = true").is_none());
    assert_eq!(
        members("members = [\n  \"proto\",\n  \"services/*\",\n]"),
        ["proto", "services/*"]
    );
}
