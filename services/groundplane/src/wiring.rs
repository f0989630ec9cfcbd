//! Where the services are that run in other processes.

use groundplane_runtime::config::Problem;
use groundplane_runtime::grpc::{Channel, ChannelError, Target, channel_with};
use groundplane_runtime::tls::{ClientCredentials, ClientTls};
use serde::{Deserialize, Serialize};

/// Where the services are that this process calls and does not run itself.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Where the other services are")]
pub(crate) struct Addresses {
    /// Where ipam is: `http://host:port`, `https://host:port` or `unix:/path`
    #[arg(long, env = "GROUNDPLANE_IPAM", value_name = "ADDRESS")]
    pub(crate) ipam: Option<Target>,
    /// Where eip is
    #[arg(long, env = "GROUNDPLANE_EIP", value_name = "ADDRESS")]
    pub(crate) eip: Option<Target>,
    /// Where bgp is
    #[arg(long, env = "GROUNDPLANE_BGP", value_name = "ADDRESS")]
    pub(crate) bgp: Option<Target>,
    /// Where instances is
    #[arg(long, env = "GROUNDPLANE_INSTANCES", value_name = "ADDRESS")]
    pub(crate) instances: Option<Target>,
}

/// The same, as the configuration file says it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct AddressConfig {
    pub(crate) ipam: Option<String>,
    pub(crate) eip: Option<String>,
    pub(crate) bgp: Option<String>,
    pub(crate) instances: Option<String>,
}

impl AddressConfig {
    fn entries(&self) -> [(&'static str, Option<&str>); 4] {
        let Self {
            ipam,
            eip,
            bgp,
            instances,
        } = self;
        [
            ("ipam", ipam.as_deref()),
            ("eip", eip.as_deref()),
            ("bgp", bgp.as_deref()),
            ("instances", instances.as_deref()),
        ]
    }

    /// What is wrong; paths from this section.
    pub(crate) fn validate(&self) -> Vec<Problem> {
        let wrong = |(name, text): (&str, Option<&str>)| {
            let error = text?.parse::<Target>().err()?;
            let help = "write `http://host:port`, `https://host:port` or `unix:/path`";
            Some(Problem::new(name, error.to_string(), help))
        };
        self.entries().into_iter().filter_map(wrong).collect()
    }
}

impl Addresses {
    /// What the flags leave open, from the file, which was validated.
    pub(crate) fn or(self, file: &AddressConfig) -> Self {
        let parse = |text: &Option<String>| text.as_deref().and_then(|text| text.parse().ok());
        Self {
            ipam: self.ipam.or_else(|| parse(&file.ipam)),
            eip: self.eip.or_else(|| parse(&file.eip)),
            bgp: self.bgp.or_else(|| parse(&file.bgp)),
            instances: self.instances.or_else(|| parse(&file.instances)),
        }
    }
}

/// A channel that knows our contracts, and so which methods stream and where deadlines are sent.
pub(crate) fn connect_with(target: &Target, tls: Option<&ClientCredentials>) -> anyhow::Result<Channel> {
    let channel = channel_with(target, tls).map_err(|error: ChannelError| anyhow::anyhow!(error))?;
    Ok(channel.describe(groundplane_proto::FILE_DESCRIPTOR_SET)?)
}

/// As [`connect_with`], for a process that does not last.
pub(crate) fn connect(target: &Target, tls: Option<&ClientTls>) -> anyhow::Result<Channel> {
    let tls = tls.map(ClientCredentials::load).transpose()?;
    connect_with(target, tls.as_ref())
}
