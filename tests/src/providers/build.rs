//! Makes what the example providers run on, once, in the build folder. The tree stays as it is.
//!
//! A stamp says from which files it was made, so that a changed version is made again. Test processes that ask at the same
//! time wait for one build.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};

use super::Example;
use crate::processes::tail_of;
use crate::scratch::{build_folder, workspace_root};

/// The contract and what it imports, below `proto/`.
const CONTRACT: [&str; 2] = [
    "groundplane/provider/v1/provider.proto",
    "groundplane/instances/v1/instances.proto",
];
/// Galaxy's.
const GALAXY: &str = "ip_provider.proto";
/// The module of the Go example, and where its generated code is below it.
const MODULE: &str = "groundplane.example/provider";
/// The plugins which generate Go, as `tool`s of its manifest.
const PLUGINS: [&str; 2] = [
    "google.golang.org/protobuf/cmd/protoc-gen-go",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc",
];

fn place() -> PathBuf {
    build_folder().join("providers")
}

fn python() -> PathBuf {
    place().join("venv/bin/python")
}

/// Python with gRPC, which finds the generated code, and keeps no compiled files in the tree.
pub(super) fn python_with_code() -> Command {
    let mut command = Command::new(python());
    command
        .env("PYTHONPATH", place().join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

pub(super) fn go_program() -> PathBuf {
    place().join("go/bin/provider")
}

/// Makes what `example` needs, where that is not there or was made from other files.
pub(super) fn ensure(example: Example, say: &mut dyn FnMut(&str)) -> Result<()> {
    std::fs::create_dir_all(place()).with_context(|| format!("create {}", place().display()))?;
    let lock = place().join(".lock");
    let lock = File::create(&lock).with_context(|| format!("create {}", lock.display()))?;
    lock.lock().context("lock the folder of the providers")?;
    // The compiler of contracts comes with the Python packages, for Go, too.
    stamped("python", &["python/requirements.txt"], say, make_python)?;
    if example == Example::Go {
        let files = ["go/main.go", "go/go.mod", "go/go.sum", "python/requirements.txt"];
        stamped("go", &files, say, make_go)?;
    }
    Ok(())
}

/// Runs `make` unless it has run for these files, below `tests/providers`, and the contracts.
fn stamped(
    name: &str,
    files: &[&str],
    say: &mut dyn FnMut(&str),
    make: fn(&Log) -> Result<()>,
) -> Result<()> {
    let own = workspace_root().join("tests/providers");
    let proto = workspace_root().join("proto");
    let mut hash = Sha256::new();
    let contracts = CONTRACT.into_iter().chain([GALAXY]).map(|file| proto.join(file));
    for path in files.iter().map(|file| own.join(file)).chain(contracts) {
        hash.update(std::fs::read(&path).with_context(|| format!("read {}", path.display()))?);
    }
    let wanted = hex::encode(hash.finalize());
    let stamp = place().join(format!(".{name}.stamp"));
    if std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    say(&format!(
        "provider in {name}: making what it runs on (a minute, once)"
    ));
    let begun = Instant::now();
    // The stamp goes first and comes last: what has no stamp that fits is made again.
    if stamp.exists() {
        std::fs::remove_file(&stamp).context("remove the old stamp")?;
    }
    let log = Log(place().join(format!("{name}.log")));
    emptied(&place().join(name))?;
    make(&log)?;
    std::fs::write(&stamp, wanted).context("write the stamp")?;
    say(&format!(
        "provider in {name}: made in {} s",
        begun.elapsed().as_secs()
    ));
    Ok(())
}

/// An empty folder.
fn emptied(folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))
}

fn make_python(log: &Log) -> Result<()> {
    let mut venv = Command::new("python3");
    log.run(
        venv.args(["-m", "venv", "--clear"]).arg(place().join("venv")),
        "Python 3.10 or later with its module venv is needed",
    )?;
    let requirements = workspace_root().join("tests/providers/python/requirements.txt");
    let mut pip = Command::new(python());
    pip.args(["-m", "pip", "install", "--quiet", "--requirement"])
        .arg(requirements);
    log.run(
        &mut pip,
        "a package index with the pinned versions, or its cache, is needed",
    )?;
    let out = place().join("python");
    let mut protoc = protoc();
    protoc
        .arg(flag("--python_out=", &out))
        .arg(flag("--grpc_python_out=", &out))
        .args(CONTRACT)
        .arg(GALAXY);
    log.run(&mut protoc, "the contracts cannot be compiled for Python")
}

fn make_go(log: &Log) -> Result<()> {
    let (own, out) = (workspace_root().join("tests/providers/go"), place().join("go"));
    for file in ["main.go", "go.mod", "go.sum"] {
        std::fs::copy(own.join(file), out.join(file)).with_context(|| format!("copy {file}"))?;
    }
    let bin = out.join("bin");
    // With a slash at its end, `go build` takes it for a folder and makes it.
    let mut plugins = go(&out);
    plugins.arg("build").arg("-o").arg(bin.join("")).args(PLUGINS);
    let way_out = "Go 1.26 or later, and a module proxy or its cache, are needed";
    log.run(&mut plugins, way_out)?;
    let mut protoc = protoc();
    for (plugin, option) in [("protoc-gen-go", "go"), ("protoc-gen-go-grpc", "go-grpc")] {
        protoc
            .arg(flag("--plugin=", &bin.join(plugin)))
            .arg(flag(&format!("--{option}_out="), &out))
            .arg(format!("--{option}_opt=module={MODULE}"));
        for file in CONTRACT {
            let (package, _) = file.rsplit_once('/').context("a contract in no package")?;
            protoc.arg(format!("--{option}_opt=M{file}={MODULE}/gen/{package}"));
        }
    }
    log.run(protoc.args(CONTRACT), "the contract cannot be compiled for Go")?;
    log.run(
        go(&out)
            .args(["build", "-mod=readonly", "-o"])
            .arg(go_program())
            .arg("."),
        way_out,
    )
}

fn go(folder: &Path) -> Command {
    let mut command = Command::new("go");
    // A go.work above us is about the user's modules.
    command
        .current_dir(folder)
        .env("GOWORK", "off")
        .env("GOFLAGS", "-buildvcs=false");
    command
}

fn protoc() -> Command {
    let mut command = Command::new(python());
    command
        .args(["-m", "grpc_tools.protoc"])
        .arg(flag("-I", &workspace_root().join("proto")));
    command
}

fn flag(name: &str, path: &Path) -> String {
    format!("{name}{}", path.display())
}

/// The output of the steps of one build.
struct Log(PathBuf);

impl Log {
    fn run(&self, command: &mut Command, way_out: &str) -> Result<()> {
        let output = OpenOptions::new().create(true).append(true).open(&self.0);
        let output = output.with_context(|| format!("open {}", self.0.display()))?;
        let status = command
            .stdout(output.try_clone()?)
            .stderr(output)
            .status()
            .with_context(|| format!("start {}: {way_out}", command.get_program().display()))?;
        ensure!(status.success(), "{way_out} ({status})\n{}", tail_of(&self.0, 15));
        Ok(())
    }
}
