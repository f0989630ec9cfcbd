//! A corner of a cluster with groundplane at work in it: what most scenarios start from.
//!
//! Each world has its own lease, namespace, node prefix and cluster identity, so that many share one API server. It runs
//! either as one process or as one process a service; the scenarios are the same.

mod cloud;
pub mod endpoint;
mod older;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use groundplane_sandbox::{DeviceId, DeviceOptions, Project, ProjectOptions};

use crate::certs::Certs;
use crate::groundplane::{Launch, Process};
use crate::kube_api::proxy::{ApiProxy, Rule};
use crate::kube_api::{Corner, KubeApi, User};
use crate::scratch::Scratch;
pub use cloud::{CloudApi, CloudCorner};
use older::Older;

/// How groundplane runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `groundplane all`.
    One,
    /// Each service as a process of its own.
    Services,
}

/// The services that others call.
const CALLED: [&str; 4] = ["ipam", "eip", "bgp", "instances"];

/// What to start.
#[derive(Debug)]
#[must_use]
pub struct WorldOptions {
    mode: Mode,
    tls: bool,
    pools: String,
    cooldown: &'static str,
    gateway: String,
    more: String,
    project: Option<(CloudApi, ProjectOptions)>,
    older: Option<Older>,
    driver: String,
    environment: Vec<(String, String)>,
    gateway_environment: Vec<(String, String)>,
    api_faults: Option<Vec<Rule>>,
    api_page: Option<u32>,
    /// Further namespaces whose Services are served.
    namespaces: Vec<String>,
}

/// One IPv4 pool of 61 addresses and one of IPv6, enough for most scenarios.
pub const POOLS: &str = r#"
pools:
  - name: public
    addresses: ["192.0.2.0/26"]
  - name: public6
    addresses: ["2001:db8:1::/112"]
"#;

impl WorldOptions {
    /// Driver `static`, the usual pools, one process.
    pub fn fixed() -> Self {
        Self {
            mode: Mode::One,
            tls: false,
            pools: POOLS.to_owned(),
            cooldown: "1h",
            gateway: String::new(),
            more: String::new(),
            project: None,
            older: None,
            driver: "driver: static\n".to_owned(),
            environment: Vec::new(),
            gateway_environment: Vec::new(),
            api_faults: None,
            api_page: None,
            namespaces: Vec::new(),
        }
    }

    /// Driver `equinix`, on a project of the sandbox cloud.
    pub fn equinix(project: ProjectOptions) -> Self {
        Self::on(CloudApi::Equinix, project)
    }

    /// Driver `cherry`, on a project of the sandbox cloud.
    pub fn cherry(project: ProjectOptions) -> Self {
        Self::on(CloudApi::Cherry, project)
    }

    /// The driver of this cloud, on a project of the sandbox cloud. Its machines may announce any number of prefixes, unless the options
    /// name another limit than every project has at first.
    pub fn on(cloud: CloudApi, mut project: ProjectOptions) -> Self {
        if project.max_prefix == ProjectOptions::default().max_prefix {
            project.max_prefix = u32::MAX;
        }
        Self {
            project: Some((cloud, project)),
            pools: String::new(),
            ..Self::fixed()
        }
    }

    /// Driver `remote`: a provider at this address, used for these capabilities (`machines, addresses`).
    pub fn remote(address: &str, capabilities: &str) -> Self {
        Self {
            driver: format!(
                "driver: remote\nremote: {{address: {address:?}, capabilities: [{capabilities}], requestTimeout: 2s}}\n"
            ),
            pools: String::new(),
            ..Self::fixed()
        }
    }

    /// With the project told by variables of the cloud's own controller instead of the file: token, project and these further ones.
    pub fn older_variables(mut self, more: &[(&str, &str)]) -> Self {
        self.older.get_or_insert_default().variables = true;
        for (name, value) in more {
            self = self.env(name, value);
        }
        self
    }

    /// With the project told by the JSON file of the cloud's own controller instead of the file: token, project and where the API is,
    /// unless these entries say otherwise, and these.
    pub fn older_json(mut self, entries: serde_json::Value) -> Self {
        self.older.get_or_insert_default().json = Some(entries);
        self
    }

    /// In this mode.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// As a process a service, which talk by mutual TLS over TCP. The gateway's socket is there, too.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self.mode(Mode::Services)
    }

    /// With these pools instead: YAML, with its key.
    pub fn pools(mut self, yaml: &str) -> Self {
        yaml.clone_into(&mut self.pools);
        self
    }

    /// With this pause before an address is given again.
    pub fn cooldown(mut self, cooldown: &'static str) -> Self {
        self.cooldown = cooldown;
        self
    }

    /// With further keys of the section `gateway`: YAML, indented by two blanks.
    pub fn gateway(mut self, yaml: &str) -> Self {
        self.gateway.push_str(yaml);
        self
    }

    /// With the Services of another namespace served, too.
    pub fn namespace(mut self, name: &str) -> Self {
        self.namespaces.push(name.to_owned());
        self
    }

    /// With further sections.
    pub fn section(mut self, yaml: &str) -> Self {
        self.more.push_str(yaml);
        self
    }

    /// With an environment variable for every process.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With a fail point: the gateway's process ends there as by `kill -9`.
    pub fn fail_point(mut self, name: &str) -> Self {
        self.gateway_environment
            .push(("GROUNDPLANE_FAILPOINT".to_owned(), name.to_owned()));
        self
    }

    /// With a proxy between groundplane and the API server, [`World::api`], and these faults from the start.
    pub fn api_faults(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.api_faults.get_or_insert_default().extend(rules);
        self
    }

    /// With a proxy as by [`WorldOptions::api_faults`], and lists in pages of no more than that.
    pub fn api_page(mut self, objects: u32) -> Self {
        self.api_page = Some(objects);
        self.api_faults([])
    }

    /// Starts it in a corner of the API server that this test process shares, and waits until it is ready.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn start(self, name: &str) -> Result<World> {
        let world = self
            .start_in(KubeApi::shared().await?.corner(name).await?)
            .await?;
        world.ready().await?;
        Ok(world)
    }

    /// Starts it in this corner, without waiting.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn start_in(mut self, corner: Corner) -> Result<World> {
        crate::chart::grant(&corner.client(), corner.namespace()).await?;
        let state = Scratch::new("world")?;
        // Unix sockets need short paths.
        let sockets = tempfile::tempdir().context("a folder for sockets")?;
        let cloud = match &self.project {
            Some((_, options)) => Some(CloudCorner::new(options.clone(), &state).await?),
            None => None,
        };
        if let (Some(older), Some((api, _)), Some(cloud)) = (&self.older, &self.project, &cloud) {
            let told = older.tell(*api, cloud, &state)?;
            self.environment.extend(told);
        }
        let api = match &self.api_faults {
            Some(rules) => {
                let proxy = ApiProxy::start(corner.connection(), self.api_page).await?;
                proxy.add(rules.clone());
                Some(proxy)
            }
            None => None,
        };
        let kubeconfig = match &api {
            Some(proxy) => proxy.kubeconfig(),
            None => corner.kubeconfig(User::Gateway),
        };
        let config = self.config(&corner, &state, &kubeconfig, cloud.as_ref());
        let certs = if self.tls {
            Some(Certs::make(state.join("certs")).await?)
        } else {
            None
        };
        let mut world = World {
            corner,
            api,
            cloud,
            mode: self.mode,
            config,
            processes: Vec::new(),
            certs,
            addresses: BTreeMap::new(),
            sockets,
            state,
        };
        world.launch(&self).await?;
        Ok(world)
    }

    fn config(
        &self,
        corner: &Corner,
        state: &Scratch,
        kubeconfig: &Path,
        cloud: Option<&CloudCorner>,
    ) -> String {
        let name = corner.name();
        let driver = match (&self.project, cloud) {
            (Some((api, _)), Some(cloud)) => match &self.older {
                Some(older) => older.config(*api, cloud),
                None => api.config(&cloud.project, &cloud.token),
            },
            _ => self.driver.clone(),
        };
        format!(
            "cluster: {name:?}\n{driver}{pools}\nipam:\n  store: {{kind: redb, path: \"{store}\"}}\n  cooldown: {cooldown}\ngateway:\n  kubeconfig: \"{kubeconfig}\"\n  \
             namespaces: {namespaces:?}\n  nodePrefix: \"{name}-\"\n  namespace: {name:?}\n  lease: {{duration: 5s, retry: 500ms}}\n  resync: 1s\n  \
             cloudResync: 2s\n  nodeMonitorPeriod: 500ms\n{gateway}{more}",
            namespaces = [&[name.to_owned()], &self.namespaces[..]].concat(),
            pools = self.pools,
            cooldown = self.cooldown,
            store = state.join("ipam.redb").display(),
            kubeconfig = kubeconfig.display(),
            gateway = self.gateway,
            more = self.more,
        )
    }
}

/// groundplane at work in a corner.
#[derive(Debug)]
pub struct World {
    /// Where.
    pub corner: Corner,
    /// The cloud, where the driver has one.
    cloud: Option<CloudCorner>,
    mode: Mode,
    config: String,
    api: Option<ApiProxy>,
    processes: Vec<(&'static str, Process)>,
    certs: Option<Certs>,
    /// Where processes listen that talk by TLS.
    addresses: BTreeMap<&'static str, String>,
    sockets: tempfile::TempDir,
    state: Scratch,
}

impl World {
    /// The project of the sandbox cloud.
    ///
    /// # Errors
    /// When the driver is `static`.
    pub fn project(&self) -> Result<&Project> {
        Ok(&self.cloud.as_ref().context("this world has no cloud")?.project)
    }

    /// Another project, which groundplane's token opens from now on, too, and which its configuration does not name.
    ///
    /// # Errors
    /// When the driver is `static`, or the token cannot be written.
    pub fn another_project(&self, options: ProjectOptions) -> Result<Project> {
        let cloud = self.cloud.as_ref().context("this world has no cloud")?;
        cloud.another_project(options)
    }

    /// A new machine of the cloud, and its node, which waits to be initialised.
    ///
    /// # Errors
    /// When there is no cloud, and the API's.
    pub async fn add_machine(&self, suffix: &str) -> Result<DeviceId> {
        let device = DeviceOptions::named(self.corner.node_name(suffix));
        let device = self.project()?.add_device(device);
        let node = self.corner.node_draft(suffix).uninitialized();
        self.corner.create_node(node).await?;
        Ok(device)
    }

    /// The proxy between groundplane and the API server.
    ///
    /// # Errors
    /// When the options asked for none.
    pub fn api(&self) -> Result<&ApiProxy> {
        self.api.as_ref().context("this world has no proxy")
    }

    /// The certificates.
    ///
    /// # Errors
    /// When the options asked for no TLS.
    pub fn certs(&self) -> Result<&Certs> {
        self.certs.as_ref().context("this world has no certificates")
    }

    /// Where a role listens with TLS.
    ///
    /// # Errors
    /// When the options asked for no TLS.
    pub fn secure(&self, role: &str) -> Result<&str> {
        let address = self.addresses.get(role);
        address
            .map(String::as_str)
            .with_context(|| format!("{role} does not listen with TLS"))
    }

    /// The configuration file that every process reads.
    pub fn config(&self) -> &str {
        &self.config
    }

    /// How it runs.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The file of ipam's store.
    pub fn store(&self) -> PathBuf {
        self.state.join("ipam.redb")
    }

    /// Where `groundplane ctl` finds the gateway.
    pub fn gateway(&self) -> String {
        self.socket("gateway")
    }

    fn socket(&self, role: &str) -> String {
        format!("unix:{}", self.sockets.path().join(role).display())
    }

    fn roles(&self) -> &'static [&'static str] {
        match self.mode {
            Mode::One => &["all"],
            Mode::Services => &["ipam", "eip", "bgp", "instances", "gateway"],
        }
    }

    /// The role whose process runs the controllers.
    pub fn gateway_role(&self) -> &'static str {
        if self.mode == Mode::One { "all" } else { "gateway" }
    }

    async fn launch(&mut self, options: &WorldOptions) -> Result<()> {
        // Who is called is started before who calls, which is told its port.
        for role in self.roles() {
            let own = if *role == "all" { "gateway" } else { role };
            let mut launch = Launch::new(role)?
                .config(self.config.clone())
                .arg("--listen")
                .arg(self.socket(own));
            if let Some(certs) = &self.certs {
                launch = launch.args(["--listen", "127.0.0.1:0"]).args(certs.flags(role));
            }
            for called in CALLED.iter().filter(|_| self.mode == Mode::Services) {
                let target = match &self.certs {
                    None => Some(self.socket(called)),
                    Some(_) => self.addresses.get(called).cloned(),
                };
                if let Some(target) = target {
                    launch = launch.arg(format!("--{called}")).arg(target);
                }
            }
            for (name, value) in &options.environment {
                launch = launch.env(name, value);
            }
            if *role == self.gateway_role() {
                for (name, value) in &options.gateway_environment {
                    launch = launch.env(name, value);
                }
            }
            let process = launch.start()?;
            if self.certs.is_some() {
                let port = process.address(role).await?.port();
                self.addresses.insert(role, format!("https://localhost:{port}"));
            }
            self.processes.push((*role, process));
        }
        Ok(())
    }

    /// Another gateway beside that of this world, which runs each service as a process of its own. It reaches the API server
    /// directly.
    ///
    /// # Errors
    /// When it does not start.
    pub fn second_gateway(&self) -> Result<Process> {
        let mut config = self.config.clone();
        if let Some(proxy) = &self.api {
            let direct = self.corner.kubeconfig(User::Gateway);
            config = config.replace(
                &proxy.kubeconfig().display().to_string(),
                &direct.display().to_string(),
            );
        }
        let mut launch = Launch::new("gateway")?.config(config);
        for called in CALLED {
            launch = launch.arg(format!("--{called}")).arg(self.socket(called));
        }
        launch.args(["--listen", "127.0.0.1:0"]).start()
    }

    /// Waits until every process says that it is ready.
    ///
    /// # Errors
    /// When one does not, or has ended.
    pub async fn ready(&self) -> Result<()> {
        for (_, process) in &self.processes {
            process.ready().await?;
        }
        Ok(())
    }

    /// The process of a role (`ipam`); in one process, that one.
    ///
    /// # Errors
    /// When there is none.
    pub fn process(&mut self, role: &str) -> Result<&mut Process> {
        let role = if self.mode == Mode::One { "all" } else { role };
        let found = self.processes.iter_mut().find(|(name, _)| *name == role);
        Ok(&mut found.with_context(|| format!("no process runs {role}"))?.1)
    }

    /// Kills every process as `kill -9` does, and starts it again without any fail point.
    ///
    /// # Errors
    /// When one does not start.
    pub async fn kill_and_restart(&mut self) -> Result<()> {
        for (_, process) in &mut self.processes {
            process
                .restart_with(|environment| environment.retain(|(name, _)| name != "GROUNDPLANE_FAILPOINT"))
                .await?;
        }
        Ok(())
    }

    /// The log lines of each process, by its role.
    ///
    /// # Errors
    /// When a log cannot be read.
    pub fn logs(&self) -> Result<Vec<(&'static str, Vec<serde_json::Value>)>> {
        self.processes
            .iter()
            .map(|(role, process)| Ok((*role, process.logs()?)))
            .collect()
    }

    /// The logs of every process.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn log_text(&self) -> Result<String> {
        self.processes
            .iter()
            .map(|(_, process)| process.log_text())
            .collect()
    }

    /// Runs `groundplane ctl` and returns what it printed, as JSON.
    ///
    /// # Errors
    /// When it fails, with what it said.
    pub async fn ctl(&self, arguments: &[&str]) -> Result<serde_json::Value> {
        let output = tokio::process::Command::new(crate::groundplane::program()?)
            .args(["ctl", "--gateway", &self.gateway(), "-o", "json"])
            .args(arguments)
            .output()
            .await
            .context("run groundplane ctl")?;
        let said = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "groundplane ctl {arguments:?}: {said}");
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}
