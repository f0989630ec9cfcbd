//! A project of the sandbox cloud, and how each of the clouds that it plays speaks of it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use groundplane_sandbox::{DeviceId, Entry, Project, ProjectOptions, Sandbox};
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::scratch::Scratch;

/// The AS number of whom machines speak BGP with, unless a project says otherwise.
const PEER_ASN: u32 = 65_530;

/// A cloud that the sandbox plays, with the driver for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CloudApi {
    /// Equinix Metal.
    #[default]
    Equinix,
    /// Cherry Servers.
    Cherry,
}

impl CloudApi {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Equinix, Self::Cherry];

    /// A project as one has it there.
    #[must_use]
    pub fn project(self) -> ProjectOptions {
        match self {
            Self::Equinix => ProjectOptions::default(),
            Self::Cherry => ProjectOptions::cherry(),
        }
    }

    /// The same, whose lists of addresses leave out those that machines came with: what is there was reserved.
    #[must_use]
    pub fn project_of_reservations(self) -> ProjectOptions {
        ProjectOptions {
            list_machine_blocks: false,
            ..self.project()
        }
    }

    /// What groundplane is told of a project whose token is in this file.
    pub(super) fn config(self, project: &Project, token: &Path) -> String {
        match self {
            Self::Equinix => project.config(token),
            Self::Cherry => project.cherry_config(token),
        }
    }

    /// The provider id of a machine.
    ///
    /// # Errors
    /// When the project has no such machine.
    pub fn provider_id(self, project: &Project, device: DeviceId) -> Result<String> {
        Ok(match self {
            Self::Equinix => format!("equinixmetal://{device}"),
            Self::Cherry => format!("cherryservers://{}", self.bare_id(project, device)?),
        })
    }

    /// The same without its scheme.
    ///
    /// # Errors
    /// When the project has no such machine.
    pub fn bare_id(self, project: &Project, device: DeviceId) -> Result<String> {
        Ok(match self {
            Self::Equinix => device.to_string(),
            Self::Cherry => {
                let found = project.device(device).context("there is no such machine")?;
                found.number.to_string()
            }
        })
    }

    /// The annotation of this name, as the cloud's own controller prefixes it.
    #[must_use]
    pub fn annotation(self, name: &str) -> String {
        match self {
            Self::Equinix => format!("metal.equinix.com/{name}"),
            Self::Cherry => format!("cherryservers.com/{name}"),
        }
    }

    /// Who machines speak BGP with from now on: of this machine, or, where a region has its routers in common, of all in its region.
    pub fn set_peers(self, project: &Project, device: DeviceId, peers: impl IntoIterator<Item = IpAddr>) {
        match self {
            Self::Equinix => project.set_peers(device, peers),
            Self::Cherry => project.set_region_bgp(project.region(), peers, PEER_ASN),
        }
    }

    /// The calls that switched BGP of the project on.
    #[must_use]
    pub fn switched_on(self, project: &Project) -> Vec<Entry> {
        let journal = project.journal();
        match self {
            Self::Equinix => journal.calls(0, "POST", "/projects/{pid}/bgp-configs"),
            Self::Cherry => journal.calls(0, "PUT", "/projects/{pid}"),
        }
    }

    /// The tags that an order of an address asks for, `key=value`.
    ///
    /// # Errors
    /// When there are none.
    pub fn tags(self, order: &Entry) -> Result<Vec<String>> {
        let body = order.body.as_ref().context("an order without a body")?;
        match (self, &body["tags"]) {
            (Self::Equinix, Value::Array(tags)) => {
                Ok(tags.iter().filter_map(Value::as_str).map(str::to_owned).collect())
            }
            (Self::Cherry, Value::Object(tags)) => {
                let text = |(key, value): (&String, &Value)| Some(format!("{key}={}", value.as_str()?));
                Ok(tags.iter().filter_map(text).collect())
            }
            (_, other) => anyhow::bail!("tags are {other}"),
        }
    }

    /// The tag that says whose the others are.
    #[must_use]
    pub fn usage(self) -> &'static str {
        match self {
            Self::Equinix => "usage=cloud-provider-equinix-metal-auto",
            Self::Cherry => "usage=cloud-provider-cherry-auto",
        }
    }

    /// Takes a reservation away behind groundplane's back.
    ///
    /// # Errors
    /// When the cloud refuses.
    pub async fn delete_reservation(self, project: &Project, id: &str) -> Result<()> {
        let http = reqwest::Client::builder().no_proxy().build()?;
        let request = match self {
            Self::Equinix => http
                .delete(format!("{}/ips/{id}", project.base_url()))
                .header("X-Auth-Token", project.token()),
            Self::Cherry => http
                .delete(format!("{}/ips/{id}", project.cherry_url()))
                .bearer_auth(project.token()),
        };
        request.send().await?.error_for_status()?;
        Ok(())
    }
}

/// A project of the sandbox cloud, and its token in a file.
#[derive(Debug)]
pub struct CloudCorner {
    /// The cloud, shared by this test process.
    pub sandbox: Arc<Sandbox>,
    /// The project.
    pub project: Project,
    /// The file with its token.
    pub token: PathBuf,
}

impl CloudCorner {
    pub(super) async fn new(options: ProjectOptions, state: &Scratch) -> Result<Self> {
        static SANDBOX: OnceCell<Arc<Sandbox>> = OnceCell::const_new();
        let sandbox = SANDBOX
            .get_or_init(|| async { Arc::new(Sandbox::start().await) })
            .await;
        let project = sandbox.project(options);
        let token = state.write("token", project.token())?;
        Ok(Self {
            sandbox: Arc::clone(sandbox),
            project,
            token,
        })
    }

    /// Another project of the account. The token in the file is the account's from now on, which opens both.
    pub(super) fn another_project(&self, options: ProjectOptions) -> Result<Project> {
        std::fs::write(&self.token, self.sandbox.account_token()).context("write the token")?;
        Ok(self.sandbox.project(options))
    }
}
