//! Which cloud a configuration chooses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Which cloud.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DriverName {
    /// Hardware that the user owns.
    #[default]
    Static,
    /// Equinix Metal's API.
    Equinix,
    /// Cherry Servers' API.
    Cherry,
    /// A provider of its own, which speaks `provider.v1`.
    Remote,
}

impl DriverName {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Static, Self::Equinix, Self::Cherry, Self::Remote];

    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Equinix => "equinix",
            Self::Cherry => "cherry",
            Self::Remote => "remote",
        }
    }

    /// Can it say how many prefixes a BGP session carries? Of a table nobody knows it, and Cherry Servers tells nothing that is documented to
    /// be that. Where it can, nobody goes on before it has.
    pub const fn tells_prefix_limit(self) -> bool {
        match self {
            Self::Equinix | Self::Remote => true,
            Self::Static | Self::Cherry => false,
        }
    }

    /// Does it know every address that a machine may have? A cloud does not know those that a user gives to machines in networks of their
    /// own (VLANs), so that there kubelet's word (`--node-ip`) is good for one that the cloud does not list. A table says what it says, and
    /// a provider of one's own can say all of it.
    pub const fn knows_every_address(self) -> bool {
        match self {
            Self::Static | Self::Remote => true,
            Self::Equinix | Self::Cherry => false,
        }
    }
}

impl fmt::Display for DriverName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Not a driver that we have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no driver `{given}`; choose one of: {}", DriverName::ALL.map(DriverName::as_str).join(", "))]
pub struct UnknownDriver {
    /// What was asked for.
    pub given: String,
}

impl FromStr for DriverName {
    type Err = UnknownDriver;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|name| name.as_str() == text);
        known.ok_or_else(|| UnknownDriver {
            given: text.to_owned(),
        })
    }
}

impl TryFrom<String> for DriverName {
    type Error = UnknownDriver;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<DriverName> for String {
    fn from(name: DriverName) -> Self {
        name.as_str().to_owned()
    }
}
