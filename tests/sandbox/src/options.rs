//! What a test asks of the sandbox: how a project, a machine or a reservation should look. Every field has a
//! default, and all of it can be sent as JSON to the admin API.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use groundplane_core::{Clock, SystemClock};
use serde::{Deserialize, Serialize};

use crate::ident::ProjectId;
use crate::model::{DeploymentType, DeviceState, ReservationKind};

/// Entries that the journal keeps unless told otherwise; the oldest go first.
const JOURNAL_CAPACITY: usize = 1_000_000;

/// How the sandbox runs.
#[derive(Clone)]
pub struct SandboxOptions {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// All ids and tokens follow from it.
    pub seed: u64,
    /// Tells `created_at` and the window of a rate limit.
    pub clock: Arc<dyn Clock>,
    /// A token that opens every project; made from the seed where it is absent.
    pub account_token: Option<String>,
    /// How many calls the journal remembers.
    pub journal_capacity: usize,
    /// Whose API it speaks.
    pub clouds: Clouds,
}

/// Whose API the sandbox speaks. The world behind is one: what is made by one API is seen by the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Clouds {
    /// Equinix Metal's, under `/metal/v1`.
    Equinix,
    /// Cherry Servers', under `/v1`.
    Cherry,
    /// Both.
    #[default]
    Both,
}

impl Default for SandboxOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            seed: 1,
            clock: Arc::new(SystemClock),
            account_token: None,
            journal_capacity: JOURNAL_CAPACITY,
            clouds: Clouds::default(),
        }
    }
}

impl std::fmt::Debug for SandboxOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SandboxOptions")
            .field("listen", &self.listen)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// A project.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProjectOptions {
    /// Its name; `project-N` where absent. The id follows from the name.
    pub name: Option<String>,
    /// Its id, where it must be known beforehand.
    pub id: Option<ProjectId>,
    /// Its id in the API of Cherry Servers, where it must be known beforehand.
    pub number: Option<u32>,
    /// Its token, where it must be known beforehand.
    pub token: Option<String>,
    /// How many addresses may be reserved without a person's approval; `None`: any number.
    pub quota: Option<u32>,
    /// With a number: BGP is enabled from the start, with this ASN (and `md5`, `deployment_type`).
    pub asn: Option<u32>,
    /// The BGP password, where BGP is enabled from the start.
    pub md5: Option<String>,
    /// Kind of BGP, where it is enabled from the start.
    pub deployment_type: DeploymentType,
    /// ASN of the switches.
    pub peer_asn: u32,
    /// Prefixes that a machine may announce.
    pub max_prefix: u32,
    /// Where machines stand unless they say otherwise: a metro, or a region of Cherry Servers.
    pub metro: String,
    /// Facility of machines unless they say otherwise.
    pub facility: String,
    /// Pages never get longer than this, whatever `per_page` says.
    pub max_per_page: u32,
    /// Counts the project's calls; `None`: no `X-RateLimit-*` headers.
    pub rate_limit: Option<RateLimit>,
    /// How often a new BGP session is shown as `unknown` before it is `up`; `None`: until a test says so.
    pub session_reads_until_up: Option<u32>,
    /// Whether lists of addresses hold the blocks of the machines' own addresses, as the real API's do.
    pub list_machine_blocks: bool,
}

impl Default for ProjectOptions {
    fn default() -> Self {
        Self {
            name: None,
            id: None,
            number: None,
            token: None,
            quota: None,
            asn: None,
            md5: None,
            deployment_type: DeploymentType::Local,
            peer_asn: 65_530,
            max_prefix: 10,
            metro: "sv".to_owned(),
            facility: "sv15".to_owned(),
            max_per_page: 1_000,
            rate_limit: None,
            session_reads_until_up: Some(1),
            list_machine_blocks: true,
        }
    }
}

impl ProjectOptions {
    /// A project as one has it at Cherry Servers: in the region `EU-Nord-1`, all else by default.
    pub fn cherry() -> Self {
        Self {
            metro: "lt".to_owned(),
            facility: "lt1".to_owned(),
            ..Self::default()
        }
    }
}

/// Calls per window. Windows start at multiples of their length since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// Calls in one window.
    pub requests: u32,
    /// Length of a window in seconds; at least 1.
    pub window_seconds: u32,
    /// Answer 429 when the window is used up, or only tell in headers.
    pub enforce: bool,
}

/// An address of a machine: one that fits, none, or this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String", bound = "A: FromStr")]
pub enum Choice<A> {
    /// The next one of the project's slice; `"auto"` in JSON.
    #[default]
    Auto,
    /// The machine has none; `"none"` in JSON.
    Absent,
    /// This one; the address in JSON.
    Given(A),
}

impl<A: FromStr> TryFrom<String> for Choice<A> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match text.as_str() {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::Absent),
            other => other
                .parse()
                .map(Self::Given)
                .map_err(|_| format!("`{other}` is not auto, none or an address")),
        }
    }
}

/// A machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeviceOptions {
    /// Its name; `node-NNNNN` where absent.
    pub hostname: Option<String>,
    /// Slug of its plan.
    pub plan: String,
    /// Where it stands, a metro or a region of Cherry Servers; the project's default where absent.
    pub metro: Option<String>,
    /// Its facility; the project's default where absent.
    pub facility: Option<String>,
    /// Its state.
    pub state: DeviceState,
    /// Its tags.
    pub tags: Vec<String>,
    /// Public IPv4 address.
    pub public_ipv4: Choice<Ipv4Addr>,
    /// Private IPv4 address, on which BGP is spoken.
    pub private_ipv4: Choice<Ipv4Addr>,
    /// Public IPv6 address.
    pub public_ipv6: Choice<Ipv6Addr>,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            hostname: None,
            plan: "c3.small.x86".to_owned(),
            metro: None,
            facility: None,
            state: DeviceState::Active,
            tags: Vec::new(),
            public_ipv4: Choice::Auto,
            private_ipv4: Choice::Auto,
            public_ipv6: Choice::Auto,
        }
    }
}

impl DeviceOptions {
    /// A machine of this name, all else by default.
    pub fn named(hostname: impl Into<String>) -> Self {
        Self {
            hostname: Some(hostname.into()),
            ..Self::default()
        }
    }
}

/// A reservation that somebody made by hand: no quota applies.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReservationOptions {
    /// What kind of address.
    pub kind: ReservationKind,
    /// The address; the next free one where absent.
    pub address: Option<IpAddr>,
    /// How many addresses; a power of two.
    pub quantity: u32,
    /// Its tags.
    pub tags: Vec<String>,
    /// A text for people.
    pub details: Option<String>,
    /// Its metro, or its region of Cherry Servers; the project's default where absent. A global address has none.
    pub metro: Option<String>,
    /// Waits for approval.
    pub pending: bool,
}

impl Default for ReservationOptions {
    fn default() -> Self {
        Self {
            kind: ReservationKind::PublicIpv4,
            address: None,
            quantity: 1,
            tags: Vec::new(),
            details: None,
            metro: None,
            pending: false,
        }
    }
}

impl ReservationOptions {
    /// One public IPv4 address with these tags.
    pub fn tagged<T: Into<String>>(tags: impl IntoIterator<Item = T>) -> Self {
        Self {
            tags: tags.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }
}
