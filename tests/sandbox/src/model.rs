//! The objects of the cloud. What the library hands out are copies: to change the cloud, ask
//! [`crate::Project`].

use std::fmt;
use std::net::IpAddr;

use groundplane_core::Family;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::ident::{AssignmentId, DeviceId, ReservationId, SessionId};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// The word of the API.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words!(
    /// What a machine is doing.
    DeviceState {
        /// Ordered, not begun.
        Queued = "queued",
        /// Being installed.
        Provisioning = "provisioning",
        /// Being given back.
        Deprovisioning = "deprovisioning",
        /// Being installed again.
        Reinstalling = "reinstalling",
        /// On.
        Active = "active",
        /// Off.
        Inactive = "inactive",
        /// Could not be installed.
        Failed = "failed",
        /// On its way up.
        PoweringOn = "powering_on",
        /// On its way down.
        PoweringOff = "powering_off",
        /// Given back, and still answered for.
        Deleted = "deleted",
    }
);

words!(
    /// What kind of address is reserved.
    ReservationKind {
        /// Public IPv4, in one metro.
        PublicIpv4 = "public_ipv4",
        /// Private IPv4, in one metro.
        PrivateIpv4 = "private_ipv4",
        /// Public IPv4, everywhere.
        GlobalIpv4 = "global_ipv4",
        /// Public IPv6, in one metro.
        PublicIpv6 = "public_ipv6",
        /// A block of a VRF. Another schema in the API.
        Vrf = "vrf",
    }
);

words!(
    /// How far a reservation is.
    ReservationState {
        /// Waits for a person; has no address yet.
        Pending = "pending",
        /// Has its address.
        Created = "created",
        /// A person refused it.
        Denied = "denied",
    }
);

words!(
    /// How far BGP is enabled in a project.
    BgpStatus {
        /// Waits for a person.
        Requested = "requested",
        /// Works.
        Enabled = "enabled",
        /// Support took it away.
        Disabled = "disabled",
    }
);

words!(
    /// What a project announces over BGP.
    DeploymentType {
        /// Addresses of the cloud, within a metro.
        Local = "local",
        /// Addresses of one's own, to the world; needs a review.
        Global = "global",
    }
);

/// A machine.
#[derive(Clone, Debug, Serialize)]
pub struct Device {
    /// Its id.
    pub id: DeviceId,
    /// Its id in the API of Cherry Servers, where it is a server.
    pub number: u32,
    /// Its name.
    pub hostname: String,
    /// Slug of its plan.
    pub plan: String,
    /// Code of its metro.
    pub metro: String,
    /// Code of its facility.
    pub facility: String,
    /// What it is doing.
    pub state: DeviceState,
    /// Its tags.
    pub tags: Vec<String>,
    /// When it was ordered.
    pub created_at: Timestamp,
    /// Its addresses, its own first, then those that were assigned.
    pub addresses: Vec<AssignmentId>,
    /// Its BGP sessions.
    pub sessions: Vec<SessionId>,
    /// The switches that it speaks BGP with; empty: none are known yet.
    pub peers: Vec<IpAddr>,
    /// A BGP password of its own; the project's where absent.
    pub bgp_password: Option<String>,
    pub(crate) slot: Option<u32>,
}

/// A reservation of one address or of a block.
#[derive(Clone, Debug, Serialize)]
pub struct Reservation {
    /// Its id.
    pub id: ReservationId,
    /// What kind of address.
    pub kind: ReservationKind,
    /// How far it is.
    pub state: ReservationState,
    /// The first address; none while it is pending.
    pub address: Option<IpAddr>,
    /// Length of the prefix; 0 while it is pending.
    pub cidr: u8,
    /// How many addresses were asked for.
    pub quantity: u32,
    /// A text for people.
    pub details: Option<String>,
    /// Its tags, in the order in which they were given.
    pub tags: Vec<String>,
    /// Anything that the owner left with it.
    pub customdata: Map<String, Value>,
    /// Code of its metro; a global address has none.
    pub metro: Option<String>,
    /// Code of its facility, where it was asked for by facility.
    pub facility: Option<String>,
    /// A block of the machines' own addresses, which nobody asked for and nobody can release.
    pub management: bool,
    /// The VRF of a VRF block.
    pub vrf: Option<Uuid>,
    /// Who holds it.
    pub assignments: Vec<AssignmentId>,
    /// When it was asked for.
    pub created_at: Timestamp,
}

impl Reservation {
    /// How many addresses it has.
    pub(crate) fn length(&self) -> u128 {
        self.address.map_or(0, |address| {
            1_u128
                .checked_shl(u32::from(Family::of(address).bits() - self.cidr))
                .unwrap_or(u128::MAX)
        })
    }

    /// Does it count against the quota?
    pub(crate) fn counts(&self) -> bool {
        !self.management
            && self.state == ReservationState::Created
            && !matches!(self.kind, ReservationKind::Vrf | ReservationKind::PrivateIpv4)
    }
}

/// An address on a machine.
#[derive(Clone, Debug, Serialize)]
pub struct Assignment {
    /// Its id.
    pub id: AssignmentId,
    /// The address.
    pub address: IpAddr,
    /// Length of its prefix.
    pub cidr: u8,
    /// Reachable from the world.
    pub public: bool,
    /// The machine's own: came with it and goes with it.
    pub management: bool,
    /// The machine.
    pub device: DeviceId,
    /// The reservation that it is part of. A machine's own public IPv4 block has none.
    pub reservation: Option<ReservationId>,
    /// When it was assigned.
    pub created_at: Timestamp,
}

/// A BGP session of a machine with its switches, in one family.
#[derive(Clone, Debug, Serialize)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// The machine.
    pub device: DeviceId,
    /// The family.
    pub family: Family,
    /// Whether the switches announce a default route.
    pub default_route: bool,
    /// One word a switch, joined by commas: `unknown`, then `up` or `down`.
    pub status: String,
    /// When it was made.
    pub created_at: Timestamp,
    pub(crate) reads_until_up: Option<u32>,
}

/// The BGP configuration of a project.
#[derive(Clone, Debug, Serialize)]
pub struct BgpConfig {
    /// Its id.
    pub id: Uuid,
    /// How far it is enabled.
    pub status: BgpStatus,
    /// What is announced.
    pub deployment_type: DeploymentType,
    /// ASN of the machines.
    pub asn: u32,
    /// Password of the sessions; none where it is empty.
    pub md5: Option<String>,
    /// What the owner said it is for.
    pub use_case: Option<String>,
    /// Prefixes that a machine may announce.
    pub max_prefix: u32,
    /// When it was asked for.
    pub created_at: Timestamp,
}
