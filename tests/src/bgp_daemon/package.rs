//! Where bird comes from: Debian's packages, unpacked into the build folder, so that nothing is installed and nobody is root.
//!
//! Where there is no Debian, a bird 2 in `PATH` is used. apt checks what it fetches against the signed lists of the archive. Lists that
//! the machine has are used; where it has none, they are fetched into the build folder, too.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail, ensure as must};

use crate::scratch::build_folder;

/// The packages: bird, and the one library of it that a machine may lack.
const PACKAGES: [&str; 2] = ["bird2", "libssh-gcrypt-4"];

/// Written last: what is there is whole.
const STAMP: &str = "complete";

/// Where bird is.
#[derive(Clone, Debug)]
pub struct Package {
    /// The folder with `bird` and `birdcl`.
    programs: PathBuf,
    /// Folders with their libraries.
    libraries: Vec<PathBuf>,
}

impl Package {
    /// A command of the package.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        if !self.libraries.is_empty() {
            let mut path = OsString::new();
            for folder in &self.libraries {
                path.push(folder);
                path.push(":");
            }
            command.env("LD_LIBRARY_PATH", path);
        }
        command
    }

    /// Which version it is, in its own words.
    ///
    /// # Errors
    /// When it does not run, or is not of version 2.
    pub fn version(&self) -> Result<String> {
        let output = self.command("bird").arg("--version").output();
        let output = output.with_context(|| format!("start bird of {}", self.programs.display()))?;
        // It says so on standard error.
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        must!(
            output.status.success() && said.contains("BIRD version 2."),
            "this is no bird 2: {said}"
        );
        Ok(said)
    }
}

/// [`ensure`] for async code. Progress goes to standard error.
pub(super) async fn get() -> Result<Package> {
    tokio::task::spawn_blocking(|| ensure(&mut |line| eprintln!("{line}")))
        .await
        .context("getting bird panicked")?
}

/// Where bird is, after getting it if it is not there. Blocks while it is fetched.
///
/// # Errors
/// In one line what this machine lacks and how to get it.
pub fn ensure(say: &mut dyn FnMut(&str)) -> Result<Package> {
    let folder = build_folder().join("bird");
    std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let lock = File::create(folder.join("lock")).context("create bird's lock")?;
    lock.lock().context("lock bird's folder")?;
    let package = match unpacked(&folder) {
        Some(package) => package,
        None if runs("dpkg") && runs("apt-get") => {
            say("bird: fetching Debian's package (once)");
            fetch(&folder).context("bird cannot be fetched from Debian's packages: install bird2, or put bird and birdcl in PATH")?;
            unpacked(&folder).context("the package of bird holds no bird")?
        }
        None => in_path().context(
            "bird 2 is missing, a BGP daemon that the tests peer with: apt-get install bird2, or dnf install bird, so that \
             bird and birdcl are in PATH",
        )?,
    };
    package.version()?;
    Ok(package)
}

/// Does this machine have the program?
fn runs(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

/// What was unpacked before.
fn unpacked(folder: &Path) -> Option<Package> {
    let root = folder.join("root");
    let libraries = root.join("usr/lib");
    let mut found: Vec<PathBuf> = std::fs::read_dir(&libraries)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    let package = Package {
        programs: root.join("usr/sbin"),
        libraries: found,
    };
    (folder.join(STAMP).is_file() && package.programs.join("bird").is_file()).then_some(package)
}

/// One that is installed.
fn in_path() -> Option<Package> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .find(|folder| folder.join("bird").is_file() && folder.join("birdcl").is_file())
        .map(|programs| Package {
            programs,
            libraries: Vec::new(),
        })
}

fn fetch(folder: &Path) -> Result<()> {
    let partial = folder.join("partial");
    for old in [&partial, &folder.join("root")] {
        if old.exists() {
            std::fs::remove_dir_all(old).with_context(|| format!("remove {}", old.display()))?;
        }
    }
    std::fs::create_dir_all(&partial).context("create a folder for packages")?;
    if download(&partial, &[]).is_err() {
        // The machine has no lists, or old ones. Ours need no rights.
        let own = own_lists(folder)?;
        run(Command::new("apt-get").args(&own).arg("update"))?;
        download(&partial, &own)?;
    }
    let root = folder.join("root");
    for entry in std::fs::read_dir(&partial).context("read the folder of packages")? {
        let package = entry?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg").arg("-x").arg(&package).arg(&root))?;
        }
    }
    std::fs::write(folder.join(STAMP), "").context("write bird's stamp")
}

fn download(folder: &Path, options: &[OsString]) -> Result<()> {
    let mut command = Command::new("apt-get");
    command
        .args(options)
        .arg("download")
        .args(PACKAGES)
        .current_dir(folder);
    run(&mut command).map(drop)
}

/// Options by which apt keeps its lists in the build folder.
fn own_lists(folder: &Path) -> Result<Vec<OsString>> {
    let mut options = Vec::new();
    for (option, name, partial) in [
        ("Dir::State::lists", "lists", "lists/partial"),
        ("Dir::Cache", "cache", "cache/archives/partial"),
    ] {
        let path = folder.join(name);
        std::fs::create_dir_all(folder.join(partial))
            .with_context(|| format!("create {}", path.display()))?;
        let mut value = OsString::from(format!("{option}="));
        value.push(&path);
        options.extend([OsString::from("-o"), value]);
    }
    Ok(options)
}

fn run(command: &mut Command) -> Result<Output> {
    let output = command.env("LC_ALL", "C").output();
    let output = output.with_context(|| format!("start {}", command.get_program().display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rev().take(5).collect::<Vec<_>>();
        let last: Vec<&str> = last.into_iter().rev().collect();
        bail!(
            "{} failed ({}): {}",
            command.get_program().display(),
            output.status,
            last.join("; ")
        );
    }
    Ok(output)
}
