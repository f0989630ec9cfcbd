//! Builds one tool from its manifest.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use super::Tool;
use crate::processes::tail_of;
use crate::scratch::build_folder;

/// The variables of the Kubernetes version. Built as a module the program does not know it, and clients that look at the
/// version of the API (helm's `Capabilities`) would be told `v0.0.0-master`.
const KUBE_VERSION: &str = "k8s.io/component-base/version";

/// The program, built if it is not there or was built from another manifest.
pub(super) fn ensure(tool: Tool, say: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    let place = Place::new(tool)?;
    let wanted = fingerprint(tool)?;
    if place.is_built_from(&wanted) {
        return Ok(place.program);
    }
    let lock = File::create(&place.lock).with_context(|| format!("create {}", place.lock.display()))?;
    if lock.try_lock().is_err() {
        say(&format!("{tool}: waiting for another process that builds it"));
        lock.lock()
            .with_context(|| format!("lock {}", place.lock.display()))?;
    }
    // Somebody else may have built it while we waited.
    if !place.is_built_from(&wanted) {
        build(tool, &place, &wanted, say)?;
    }
    Ok(place.program)
}

/// Where the files of one tool are.
struct Place {
    program: PathBuf,
    stamp: PathBuf,
    partial: PathBuf,
    lock: PathBuf,
    log: PathBuf,
}

impl Place {
    fn new(tool: Tool) -> Result<Self> {
        let (bin, logs) = (build_folder().join("bin"), build_folder().join("logs"));
        for folder in [&bin, &logs] {
            std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        }
        Ok(Self {
            program: bin.join(tool.name()),
            stamp: bin.join(format!(".{tool}.stamp")),
            partial: bin.join(format!(".{tool}.partial")),
            lock: bin.join(format!(".{tool}.lock")),
            log: logs.join(format!("{tool}.log")),
        })
    }

    fn is_built_from(&self, wanted: &str) -> bool {
        self.program.is_file() && std::fs::read_to_string(&self.stamp).is_ok_and(|found| found == wanted)
    }
}

/// What the program depends on: the manifest, its sums and our arguments to the compiler.
fn fingerprint(tool: Tool) -> Result<String> {
    let mut hash = Sha256::new();
    for file in ["go.mod", "go.sum"] {
        let path = tool.manifest().join(file);
        hash.update(std::fs::read(&path).with_context(|| format!("read {}", path.display()))?);
    }
    for argument in arguments(tool)? {
        hash.update(argument.as_bytes());
    }
    Ok(hex::encode(hash.finalize()))
}

/// The arguments of `go` that do not name a place of this machine.
fn arguments(tool: Tool) -> Result<Vec<String>> {
    let mut flags = "-s -w".to_owned();
    if tool == Tool::KubeApiserver {
        let version = required_version(tool, "k8s.io/kubernetes")?;
        let mut numbers = version.trim_start_matches('v').split('.');
        for (variable, value) in [
            ("gitVersion", Some(version.as_str())),
            ("gitMajor", numbers.next()),
            ("gitMinor", numbers.next()),
        ] {
            let value = value.with_context(|| format!("{version} is not a version of Kubernetes"))?;
            flags += &[" -X ", KUBE_VERSION, ".", variable, "=", value].concat();
        }
    }
    let fixed = [
        "build",
        "-trimpath",
        "-buildvcs=false",
        "-mod=readonly",
        "-ldflags",
    ];
    Ok(fixed.into_iter().map(str::to_owned).chain([flags]).collect())
}

/// The version of `module` that the manifest requires.
fn required_version(tool: Tool, module: &str) -> Result<String> {
    let path = tool.manifest().join("go.mod");
    let manifest = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let version = manifest.lines().find_map(|line| {
        let mut words = line.trim().trim_start_matches("require ").split_whitespace();
        (words.next() == Some(module)).then(|| words.next()).flatten()
    });
    Ok(version
        .with_context(|| format!("{} does not require {module}", path.display()))?
        .to_owned())
}

fn build(tool: Tool, place: &Place, wanted: &str, say: &mut dyn FnMut(&str)) -> Result<()> {
    say(&format!(
        "{tool}: building from {} (minutes, once)",
        relative(&tool.manifest())
    ));
    let begun = Instant::now();
    let log = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .open(&place.log);
    let log = log.with_context(|| format!("open {}", place.log.display()))?;
    let status = Command::new("go")
        .args(arguments(tool)?)
        .arg("-o")
        .arg(&place.partial)
        .arg(tool.package())
        .current_dir(tool.manifest())
        // A go.work above us is about the user's modules.
        .env("GOWORK", "off")
        .stdout(log.try_clone()?)
        .stderr(log)
        .status();
    let status = match status {
        Ok(status) => status,
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "{tool} is missing, and building it takes Go {} or later, which is not in PATH: get it from \
             https://go.dev/dl/ or your package manager, or {}",
            required_go(tool)?,
            tool.way_around()
        ),
        Err(error) => return Err(error).context("start go"),
    };
    if !status.success() {
        bail!(
            "{tool} cannot be built ({status}; it takes Go {} or later and a module proxy or its cache); or {}\n{}",
            required_go(tool)?,
            tool.way_around(),
            tail_of(&place.log, 15)
        );
    }
    // The stamp goes first and comes last: a program without a stamp that fits is built again.
    if place.stamp.exists() {
        std::fs::remove_file(&place.stamp).context("remove the old stamp")?;
    }
    std::fs::rename(&place.partial, &place.program).context("put the program in its place")?;
    std::fs::write(&place.stamp, wanted).context("write the stamp")?;
    say(&format!("{tool}: built in {} s", begun.elapsed().as_secs()));
    Ok(())
}

/// The Go version that the manifest asks for.
fn required_go(tool: Tool) -> Result<String> {
    required_version(tool, "go").map(|version| version.trim_end_matches(".0").to_owned())
}

fn relative(path: &Path) -> String {
    path.strip_prefix(crate::scratch::workspace_root())
        .unwrap_or(path)
        .display()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_server_is_told_the_version_that_the_manifest_requires() -> Result<()> {
        let version = required_version(Tool::KubeApiserver, "k8s.io/kubernetes")?;
        let flags = arguments(Tool::KubeApiserver)?.pop().context("no flags")?;
        assert!(
            flags.contains(&format!("{KUBE_VERSION}.gitVersion={version}")),
            "{flags}"
        );
        assert!(flags.contains(&format!("{KUBE_VERSION}.gitMajor=1 ")), "{flags}");
        Ok(())
    }

    #[test]
    fn etcd_and_the_api_server_come_from_one_manifest_and_are_told_apart() -> Result<()> {
        assert_ne!(fingerprint(Tool::Etcd)?, fingerprint(Tool::KubeApiserver)?);
        assert_ne!(fingerprint(Tool::Helm)?, fingerprint(Tool::Jaeger)?);
        assert_eq!(fingerprint(Tool::Helm)?, fingerprint(Tool::Helm)?);
        Ok(())
    }

    #[test]
    fn a_manifest_says_which_go_it_takes() -> Result<()> {
        for tool in Tool::ALL {
            assert!(required_go(tool)?.starts_with("1."), "{tool}");
        }
        Ok(())
    }
}
