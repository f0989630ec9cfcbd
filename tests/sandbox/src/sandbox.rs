//! A sandbox that runs: the thread that serves, and the handle that stops it.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::{fmt, io};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::api::Api;
use crate::cloud::{Cloud, SetupError, token_of};
use crate::fault::Faults;
use crate::http::{Shared, serve};
use crate::ident::mix;
use crate::journal::Journal;
use crate::options::{ProjectOptions, SandboxOptions};
use crate::project::Project;

/// Why a sandbox did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The machine has no thread or no event queue to spare.
    #[error("cannot start the server's thread")]
    Thread(#[source] io::Error),
}

/// A cloud that runs until it is dropped. It has a thread and a runtime of its own: tests on several runtimes
/// may share it, and pausing a test's clock does not stop it.
pub struct Sandbox {
    shared: Shared,
    address: SocketAddr,
    account_token: String,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Sandbox {
    /// Starts on a free port of the loopback interface, with defaults.
    ///
    /// # Panics
    /// Where the machine has neither port nor thread: no test can go on then. [`Self::start_with`] returns the
    /// error.
    // `async`, so that callers stay as they are should starting ever have to wait.
    #[allow(
        clippy::unused_async,
        reason = "part of the interface that tests are written against"
    )]
    pub async fn start() -> Self {
        match Self::start_with(SandboxOptions::default()) {
            Ok(sandbox) => sandbox,
            #[allow(clippy::panic, reason = "a test cannot go on without its cloud")]
            Err(error) => panic!("the sandbox does not start: {error}"),
        }
    }

    /// Starts as the options say. When it returns, connections are accepted.
    ///
    /// # Errors
    /// The address cannot be listened on, or the thread cannot be started.
    pub fn start_with(options: SandboxOptions) -> Result<Self, StartError> {
        let SandboxOptions {
            listen,
            seed,
            clock,
            account_token,
            journal_capacity,
            clouds,
        } = options;
        let refused = |source| StartError::Listen {
            address: listen,
            source,
        };
        let listener = TcpListener::bind(listen).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let account_token = account_token.unwrap_or_else(|| token_of(mix(seed)));
        let shared = Shared {
            cloud: Arc::new(Mutex::new(Cloud::new(seed, account_token.clone()))),
            faults: Arc::new(Faults::default()),
            journal: Journal::new(journal_capacity),
            clock,
            base_url: format!("http://{address}{}", Api::Equinix.base()).into(),
            cherry_url: format!("http://{address}{}", Api::Cherry.base()).into(),
            clouds,
            stop: CancellationToken::new(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(StartError::Thread)?;
        let serving = shared.clone();
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(refused)?
        };
        let thread = std::thread::Builder::new()
            .name("sandbox".to_owned())
            .spawn(move || runtime.block_on(serve(listener, serving)))
            .map_err(StartError::Thread)?;
        Ok(Self {
            shared,
            address,
            account_token,
            thread: Some(thread),
        })
    }

    /// Where the API of Equinix Metal is, `/metal/v1` included.
    pub fn base_url(&self) -> &str {
        &self.shared.base_url
    }

    /// Where the API of Cherry Servers is, `/v1` included.
    pub fn cherry_url(&self) -> &str {
        &self.shared.cherry_url
    }

    /// Where the admin API is, `/sandbox/v1` included.
    pub fn admin_url(&self) -> String {
        format!("http://{}/sandbox/v1", self.address)
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A token that opens every project.
    pub fn account_token(&self) -> &str {
        &self.account_token
    }

    /// Adds a project.
    ///
    /// # Panics
    /// Where the options cannot be met, a name that is taken for one. [`Self::try_project`] returns the error.
    #[track_caller]
    pub fn project(&self, options: ProjectOptions) -> Project {
        crate::project::must(self.try_project(options))
    }

    /// Adds a project.
    ///
    /// # Errors
    /// The name, id or token is taken, or the place is unknown.
    pub fn try_project(&self, options: ProjectOptions) -> Result<Project, SetupError> {
        let now = self.shared.now();
        let mut cloud = self.shared.cloud.lock();
        let id = cloud.add_project(options, now)?.id;
        let token = cloud.token(id).unwrap_or_default().to_owned();
        drop(cloud);
        Ok(Project::new(self.shared.clone(), id, token))
    }

    /// The faults of all projects.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// The calls to all projects.
    pub fn journal(&self) -> Journal {
        self.shared.journal.clone()
    }

    /// Ends it: closes the port, and cuts every connection. Dropping it does the same.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.shared.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic over there was reported there.
            thread.join().ok();
        }
    }
}
