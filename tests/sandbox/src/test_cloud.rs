//! A sandbox for one test: with one project, and with the project's token in a file, as drivers want it.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::{Project, ProjectOptions, Sandbox};

/// A cloud with one project. It ends with this value.
#[derive(Debug)]
#[must_use]
pub struct TestCloud {
    project: Project,
    token: PathBuf,
    _folder: TempDir,
    _sandbox: Sandbox,
}

impl TestCloud {
    /// Starts it.
    ///
    /// # Panics
    /// Where it cannot keep the token: no test can go on then.
    #[allow(clippy::panic, reason = "a test without its cloud cannot go on")]
    pub async fn start(options: ProjectOptions) -> Self {
        let sandbox = Sandbox::start().await;
        let project = sandbox.project(options);
        let write = || {
            let folder = tempfile::tempdir()?;
            let token = folder.path().join("token");
            std::fs::write(&token, project.token())?;
            Ok::<_, std::io::Error>((folder, token))
        };
        let (folder, token) = write().unwrap_or_else(|error| panic!("cannot keep the token: {error}"));
        Self {
            project,
            token,
            _folder: folder,
            _sandbox: sandbox,
        }
    }

    /// Its project.
    pub fn project(&self) -> &Project {
        &self.project
    }

    /// The file that its token stands in.
    pub fn token_file(&self) -> &Path {
        &self.token
    }

    /// What groundplane is told of it as a cloud of Cherry Servers: [`Project::cherry_config`].
    pub fn cherry_config(&self) -> String {
        self.project.cherry_config(&self.token)
    }

    /// What groundplane is told of it: [`Project::config`].
    pub fn config(&self) -> String {
        self.project.config(&self.token)
    }
}
