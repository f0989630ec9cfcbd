//! The programs of others that the tests run on: where they are, and how they come to be there.
//!
//! Each is built from a Go module manifest in `tests/tools/`, once, into the build folder. A stamp beside the program says
//! from which manifest it was built, so that a changed version is built again. Test processes that ask at the same time
//! wait for one build.
//!
//! - `KUBEBUILDER_ASSETS`, where it is set, is a folder with etcd and kube-apiserver; these are then never built.
//! - `GROUNDPLANE_USE_PATH_TOOLS`, where it is set, lets a helm 3 or 4 and a Jaeger (`jaeger-all-in-one`) in `PATH` be used.

mod build;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail, ensure};

use crate::scratch::workspace_root;

/// A program that tests need and that is not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// The store of the Kubernetes API server.
    Etcd,
    /// The Kubernetes API server.
    KubeApiserver,
    /// Renders the chart.
    Helm,
    /// Takes traces, and gives them back.
    Jaeger,
    /// The part of MetalLB that gives Services their addresses.
    MetallbController,
    /// The part of MetalLB that announces them.
    MetallbSpeaker,
}

impl Tool {
    /// All of them, in the order in which they are built: first what most tests wait for.
    pub const ALL: [Self; 6] = [
        Self::Etcd,
        Self::KubeApiserver,
        Self::Helm,
        Self::Jaeger,
        Self::MetallbController,
        Self::MetallbSpeaker,
    ];

    /// The name of its program.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::Helm => "helm",
            Self::Jaeger => "jaeger",
            Self::MetallbController => "metallb-controller",
            Self::MetallbSpeaker => "metallb-speaker",
        }
    }

    /// The folder with its manifest.
    fn manifest(self) -> PathBuf {
        workspace_root().join("tests/tools").join(match self {
            Self::Etcd | Self::KubeApiserver => "kubernetes",
            Self::Helm => "helm",
            Self::Jaeger => "jaeger",
            Self::MetallbController | Self::MetallbSpeaker => "metallb",
        })
    }

    /// The package to build, which is a `tool` of that manifest.
    fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::KubeApiserver => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::Helm => "helm.sh/helm/v4/cmd/helm",
            Self::Jaeger => "github.com/jaegertracing/jaeger/cmd/all-in-one",
            Self::MetallbController => "go.universe.tf/metallb/controller",
            Self::MetallbSpeaker => "go.universe.tf/metallb/speaker",
        }
    }

    /// The environment variable that supplies it without a build, for a message.
    fn way_around(self) -> &'static str {
        match self {
            Self::Etcd | Self::KubeApiserver => {
                "set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver"
            }
            Self::Helm => "set GROUNDPLANE_USE_PATH_TOOLS=1 with helm 3 or 4 in PATH",
            Self::Jaeger => "set GROUNDPLANE_USE_PATH_TOOLS=1 with jaeger-all-in-one in PATH",
            Self::MetallbController | Self::MetallbSpeaker => "have a module proxy within reach",
        }
    }

    /// Where the environment says it is; `None` when it is to be built.
    fn supplied(self) -> Result<Option<PathBuf>> {
        match self {
            Self::Etcd | Self::KubeApiserver => {
                let Some(folder) = std::env::var_os("KUBEBUILDER_ASSETS") else {
                    return Ok(None);
                };
                let program = Path::new(&folder).join(self.name());
                ensure!(
                    program.is_file(),
                    "KUBEBUILDER_ASSETS is set, and {} is not there: put {self} there, or unset it to build {self}",
                    program.display()
                );
                Ok(Some(program))
            }
            Self::Helm => Ok(in_path("helm").filter(|helm| is_known_helm(helm))),
            Self::Jaeger => Ok(in_path("jaeger-all-in-one")),
            // Only the version of the manifest proves anything.
            Self::MetallbController | Self::MetallbSpeaker => Ok(None),
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Tool {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        match Self::ALL.into_iter().find(|tool| tool.name() == name) {
            Some(tool) => Ok(tool),
            None => bail!(
                "no tool is called {name}; there are etcd, kube-apiserver, helm, jaeger, metallb-controller and metallb-speaker"
            ),
        }
    }
}

/// A program of this name in `PATH`, where the environment lets it be used.
fn in_path(program: &str) -> Option<PathBuf> {
    std::env::var_os("GROUNDPLANE_USE_PATH_TOOLS")?;
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// Whether this helm is of a major version which the chart is written for.
fn is_known_helm(helm: &Path) -> bool {
    let Ok(output) = Command::new(helm)
        .args(["version", "--template", "{{.Version}}"])
        .output()
    else {
        return false;
    };
    let version = String::from_utf8_lossy(&output.stdout);
    output.status.success() && (version.starts_with("v3.") || version.starts_with("v4."))
}

/// Where `tool` is, after building it if that has to be. `say` gets lines about the progress of a build, and none when
/// there is nothing to do. Blocks for minutes when something is built.
///
/// # Errors
/// In one line what this machine lacks and how to get it; or the end of the log of a build that failed.
pub fn ensure_blocking(tool: Tool, say: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    match tool.supplied()? {
        Some(program) => Ok(program),
        None => build::ensure(tool, say),
    }
}

/// [`ensure_blocking`] for async code. Progress goes to standard error.
///
/// # Errors
/// As [`ensure_blocking`].
pub async fn ensure(tool: Tool) -> Result<PathBuf> {
    tokio::task::spawn_blocking(move || ensure_blocking(tool, &mut |line| eprintln!("{line}")))
        .await
        .context("the build of a tool panicked")?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_found_by_its_name() -> Result<()> {
        for tool in Tool::ALL {
            assert_eq!(tool.name().parse::<Tool>()?, tool);
        }
        assert!(
            "kubectl"
                .parse::<Tool>()
                .unwrap_err()
                .to_string()
                .contains("kubectl")
        );
        Ok(())
    }

    #[test]
    fn every_manifest_names_its_package_as_a_tool() -> Result<()> {
        for tool in Tool::ALL {
            let manifest = std::fs::read_to_string(tool.manifest().join("go.mod"))?;
            let (_, tools) = manifest.split_once("\ntool ").context("no tool line")?;
            assert!(tools.contains(tool.package()), "{tool}");
        }
        Ok(())
    }
}
