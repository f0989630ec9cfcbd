//! The configuration: one document, read by every process; each service owns its section. Under it lie the inputs of the older
//! controllers, where there are any.

mod endpoint;
mod legacy;
pub(crate) mod shown;

use std::path::{Path, PathBuf};

use groundplane_cloud::{CherryConfig, CloudConfig, DriverName, EquinixConfig, RemoteConfig, StaticConfig};
use groundplane_core::{ClusterId, older};
use groundplane_gateway::RivalPolicy;
use groundplane_gateway::endpoint::AgentConfig;
pub(crate) use groundplane_runtime::config::ConfigErrors;
use groundplane_runtime::config::{Document, PlacedProblem, Problem};
use serde::{Deserialize, Serialize};

pub(crate) use endpoint::EndpointConfig;
pub(crate) use legacy::{Legacy, Older, Sources};

use crate::wiring::AddressConfig;

/// The whole file. What is left out has its default.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Config {
    /// Identity of the cluster; the UID of its kube-system namespace unless set.
    pub(crate) cluster: Option<ClusterId>,
    /// Which cloud.
    pub(crate) driver: DriverName,
    /// Pools of addresses.
    pub(crate) pools: Vec<groundplane_ipam::PoolConfig>,
    pub(crate) ipam: groundplane_ipam::IpamConfig,
    pub(crate) eip: groundplane_eip::Config,
    pub(crate) bgp: groundplane_bgp::Config,
    pub(crate) health: groundplane_health::HealthConfig,
    pub(crate) instances: groundplane_instances::Config,
    pub(crate) gateway: groundplane_gateway::Config,
    /// Where the services are that run elsewhere.
    pub(crate) services: AddressConfig,
    /// Tables of the driver `static`.
    #[serde(rename = "static")]
    pub(crate) fixed: StaticConfig,
    pub(crate) equinix: EquinixConfig,
    pub(crate) cherry: CherryConfig,
    pub(crate) remote: RemoteConfig,
    /// The elastic IP of the API server.
    pub(crate) endpoint: EndpointConfig,
}

/// Where a process finds its configuration.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ConfigArgs {
    /// The configuration file, YAML; without it, everything has its default
    #[arg(long, env = "GROUNDPLANE_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The JSON file of an older controller (metal-ccm, packet-ccm, Cherry Servers'), read under the configuration file as are its
    /// environment variables; unless given, `/etc/cloud-sa/cloud-sa.json` if it is there
    #[arg(
        long,
        alias = "provider-config",
        env = "GROUNDPLANE_CLOUD_CONFIG",
        value_name = "FILE"
    )]
    pub(crate) cloud_config: Option<PathBuf>,
    /// The older controller whose file and variables they are. Needed where they do not tell: those of packet-ccm and of Equinix
    /// Metal's controller look the same where they say no more than token and project
    #[arg(
        long,
        env = "GROUNDPLANE_CLOUD_CONFIG_OF",
        value_name = "CONTROLLER",
        value_enum
    )]
    pub(crate) cloud_config_of: Option<Older>,
}

/// What was read, in order or not.
#[derive(Debug)]
pub(crate) struct Examined {
    /// `None`: it cannot even be decoded.
    pub(crate) config: Option<Config>,
    /// Every value with its origin.
    pub(crate) document: Document,
    /// What came of the inputs of the older controllers.
    pub(crate) legacy: Legacy,
    /// Everything that is wrong.
    pub(crate) errors: Option<ConfigErrors>,
}

/// A configuration that is in order.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    /// What came of the inputs of the older controllers.
    pub(crate) legacy: Legacy,
}

impl ConfigArgs {
    /// Reads all of it, and refuses it with everything that is wrong with it. `calls_cloud`: does this process call the cloud? The
    /// others are not given its secrets, so they do not look for them.
    pub(crate) fn load(&self, calls_cloud: bool) -> Result<Loaded, ConfigErrors> {
        match self.examine(calls_cloud)? {
            Examined {
                config: Some(config),
                legacy,
                errors: None,
                ..
            } => Ok(Loaded { config, legacy }),
            Examined { errors, document, .. } => {
                Err(errors.unwrap_or_else(|| ConfigErrors::new(document.name(), Vec::new())))
            }
        }
    }

    /// As [`ConfigArgs::load`], but what is wrong with values is told beside them.
    pub(crate) fn examine(&self, calls_cloud: bool) -> Result<Examined, ConfigErrors> {
        let document = match &self.config {
            Some(path) => Document::load(path)?,
            None => Document::empty(),
        };
        let sources = Sources::of_process(self.cloud_config.as_deref(), self.cloud_config_of);
        Ok(Config::examine(document, &sources, calls_cloud))
    }
}

impl Config {
    fn examine(mut document: Document, sources: &Sources, calls_cloud: bool) -> Examined {
        let mut legacy = legacy::lay_under(&mut document, sources, calls_cloud);
        let (config, found) = match document.decode::<Self>() {
            Ok(config) => {
                let found = document.check(config.validate(calls_cloud)).err();
                (Some(config), found)
            }
            Err(errors) => (None, Some(errors)),
        };
        let mut problems = std::mem::take(&mut legacy.problems);
        let told = |problem: &PlacedProblem| legacy.missing.contains(&problem.problem.path);
        let found = found.map(|errors| errors.problems).unwrap_or_default();
        problems.extend(found.into_iter().filter(|problem| !told(problem)));
        let errors = (!problems.is_empty()).then(|| ConfigErrors::new(document.name(), problems));
        Examined {
            config,
            document,
            legacy,
            errors,
        }
    }

    /// Everything that is wrong with the values; paths from the top of the file.
    fn validate(&self, calls_cloud: bool) -> Vec<Problem> {
        let under = |section: &'static str| move |problem: Problem| problem.under(section);
        let mut problems = if calls_cloud {
            self.cloud().validate()
        } else {
            Vec::new()
        };
        problems.extend(
            groundplane_ipam::validate_pools(&self.pools)
                .into_iter()
                .map(under("pools")),
        );
        problems.extend(self.ipam.validate().into_iter().map(under("ipam")));
        problems.extend(self.eip.validate().into_iter().map(under("eip")));
        problems.extend(self.bgp.validate().into_iter().map(under("bgp")));
        problems.extend(self.health.validate().into_iter().map(under("health")));
        problems.extend(self.instances.validate().into_iter().map(under("instances")));
        problems.extend(self.gateway(None).validate().into_iter().map(under("gateway")));
        problems.extend(
            self.endpoint
                .missing_capability(self.driver, &self.remote.capabilities),
        );
        problems.extend(
            self.endpoint
                .validate(self.driver)
                .into_iter()
                .map(under("endpoint")),
        );
        problems.extend(self.services.validate().into_iter().map(under("services")));
        problems
    }

    /// The part that chooses a cloud.
    pub(crate) fn cloud(&self) -> CloudConfig {
        CloudConfig {
            driver: self.driver,
            fixed: self.fixed.clone(),
            equinix: self.equinix.clone(),
            cherry: self.cherry.clone(),
            remote: self.remote.clone(),
            endpoint: self.endpoint.selector(),
        }
    }

    /// The part of an agent on this node, which reaches Kubernetes by this kubeconfig; `None`: no endpoint is configured.
    pub(crate) fn agent(&self, node: &str, kubeconfig: Option<&Path>) -> Option<AgentConfig> {
        let endpoint = &self.endpoint;
        endpoint.selector()?;
        let cluster = self.cluster.as_ref().map(ToString::to_string);
        Some(AgentConfig {
            node: node.to_owned(),
            // eip wants one, and does not ask which: the endpoint is told by its tag or address.
            cluster: cluster.unwrap_or_else(|| "this".to_owned()),
            kubeconfig: kubeconfig
                .map(Path::to_owned)
                .or_else(|| self.gateway.kubeconfig.clone()),
            address: endpoint.address,
            port: endpoint.port,
            node_port: endpoint.node_port,
            node_selector: endpoint.node_selector.clone(),
            node_prefix: self.gateway.node_prefix.clone(),
            refresh: endpoint.refresh.0,
            rank_step: endpoint.rank_step.0,
            own_addresses_only: endpoint.own_addresses_only(),
            candidates_file: endpoint.candidates_file.clone(),
            service: endpoint.service(),
            rivals: self.rivals(),
        })
    }

    /// The cloud whose older controllers an agent gives way to; `None`: there never was one, or we are told to write beside it.
    fn rivals(&self) -> Option<DriverName> {
        let some = older::of(self.driver).next().is_some();
        (some && self.gateway.rivals == RivalPolicy::Refuse).then_some(self.driver)
    }

    /// The gateway's part, with what stands elsewhere.
    pub(crate) fn gateway(&self, kubeconfig: Option<&Path>) -> groundplane_gateway::Config {
        let mut gateway = self.gateway.clone();
        gateway.cluster.clone_from(&self.cluster);
        gateway.driver = self.driver;
        gateway.external = self.endpoint.external();
        gateway.pools = Some(self.cloud().addresses_from_pools());
        if let Some(path) = kubeconfig {
            gateway.kubeconfig = Some(path.to_owned());
        }
        gateway
    }
}

#[cfg(test)]
mod documented;

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a file alone.
    pub(super) fn read(text: &str) -> Result<Config, String> {
        read_for(text, true)
    }

    fn read_for(text: &str, calls_cloud: bool) -> Result<Config, String> {
        let document = Document::parse("groundplane.yaml", text).map_err(|error| error.to_string())?;
        let examined = Config::examine(document, &Sources::new(&[], None), calls_cloud);
        match examined.errors {
            Some(errors) => Err(errors.to_string()),
            None => Ok(examined.config.unwrap()),
        }
    }

    #[test]
    fn nothing_at_all_is_a_configuration() {
        let examined = Config::examine(Document::empty(), &Sources::new(&[], None), true);
        let config = examined.config.unwrap();
        assert_eq!(config.driver, DriverName::Static);
        assert!(config.validate(true).is_empty(), "{:?}", config.validate(true));
        assert!(read("pools: []\n").is_ok());
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_place_and_the_nearest_known_one() {
        let error = read("ipam:\n  coldown: 5m\n").unwrap_err();
        assert!(
            error.contains("groundplane.yaml:2:") && error.contains("cooldown"),
            "{error}"
        );
    }

    #[test]
    fn problems_of_several_sections_are_told_together() {
        let text = "pools:\n  - {name: a, addresses: [10.0.0.1/8]}\nservices: {eip: nowhere}\n";
        let error = read(text).unwrap_err();
        assert!(
            error.contains("pools[0]") && error.contains("services.eip"),
            "{error}"
        );
    }

    /// The gateway and ipam run without the cloud's secrets, which are mounted for those who call it.
    #[test]
    fn who_calls_no_cloud_needs_none_of_its_secrets() {
        let text = "driver: equinix\nequinix: {projectId: p, apiTokenFile: /there/is/no/such/file}\n";
        assert!(
            read(text).unwrap_err().contains("equinix.apiTokenFile"),
            "it is looked for by default"
        );
        assert!(read_for(text, false).is_ok());
    }
}
