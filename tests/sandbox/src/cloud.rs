//! The state: projects and what is in them. One value behind one mutex; every method is synchronous, so each
//! call of the API happens at one instant.

mod bgp;
mod cherry;
mod devices;
mod reservations;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use jiff::Timestamp;

pub(crate) use bgp::{BgpRequest, SessionRequest};
pub(crate) use reservations::{IfHeld, ReservationRequest};

use crate::addressing::{AddressPlan, UsedBlocks};
use crate::error::ApiError;
use crate::holders::Holders;
use crate::ident::{
    AssignmentId, DeviceId, IdSource, ProjectId, ReservationId, SessionId, digest, mix, uuid_of,
};
use crate::model::{Assignment, BgpConfig, BgpStatus, Device, Reservation, Session};
use crate::options::ProjectOptions;
use crate::ordered::Ordered;
use crate::regions::RegionBgp;

/// The integer id of the first project that says nothing else.
const FIRST_NUMBER: u32 = 1_001;
/// How many servers a project may have had before its integer ids run into the next project's.
const SERVERS: u32 = 10_000;

/// Why the sandbox cannot be furnished as a test asks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// A metro, facility or region that the sandbox does not know.
    #[error("no metro, facility or region `{0}`")]
    UnknownPlace(String),
    /// More machines or addresses than fit into the project's slice.
    #[error("no room for another {0}")]
    Full(&'static str),
    /// The address, id or name is in use.
    #[error("`{0}` is taken")]
    Taken(String),
    /// No such object in the project.
    #[error("no {0} `{1}`")]
    Unknown(&'static str, String),
    /// The request contradicts itself.
    #[error("{0}")]
    Invalid(String),
}

/// What a token opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Account,
    Project(ProjectId),
}

/// All projects.
#[derive(Debug)]
pub(crate) struct Cloud {
    seed: u64,
    projects: Vec<ProjectState>,
    tokens: HashMap<String, Access>,
}

impl Cloud {
    pub(crate) fn new(seed: u64, account_token: String) -> Self {
        Self {
            seed,
            projects: Vec::new(),
            tokens: HashMap::from([(account_token, Access::Account)]),
        }
    }

    pub(crate) fn add_project(
        &mut self,
        options: ProjectOptions,
        now: Timestamp,
    ) -> Result<&mut ProjectState, SetupError> {
        let number = self.projects.len();
        let name = options
            .name
            .clone()
            .unwrap_or_else(|| format!("project-{number}"));
        let seed = digest(self.seed, name.as_bytes());
        let id = options.id.unwrap_or_else(|| uuid_of(seed, 0).into());
        let token = options.token.clone().unwrap_or_else(|| token_of(seed));
        let integer = options.number;
        if self
            .projects
            .iter()
            .any(|project| project.id == id || project.name == name || integer == Some(project.number))
        {
            return Err(SetupError::Taken(name));
        }
        if self.tokens.contains_key(&token) {
            return Err(SetupError::Taken("token".to_owned()));
        }
        let place = u32::try_from(number).map_err(|_| SetupError::Full("project"))?;
        let project = ProjectState::new(id, name, place, mix(seed), options, now)?;
        self.tokens.insert(token, Access::Project(id));
        self.projects.push(project);
        self.projects.last_mut().ok_or(SetupError::Full("project"))
    }

    pub(crate) fn access(&self, token: &str) -> Option<Access> {
        self.tokens.get(token).copied()
    }

    /// The token that opens just this project.
    pub(crate) fn token(&self, project: ProjectId) -> Option<&str> {
        self.tokens
            .iter()
            .find(|(_, access)| **access == Access::Project(project))
            .map(|(token, _)| token.as_str())
    }

    pub(crate) fn projects(&self) -> impl Iterator<Item = &ProjectState> {
        self.projects.iter()
    }

    /// The project with this id in the API of Cherry Servers.
    pub(crate) fn numbered(&self, number: u32) -> Option<ProjectId> {
        let project = self.projects.iter().find(|project| project.number == number)?;
        Some(project.id)
    }

    pub(crate) fn project(&mut self, id: ProjectId) -> Option<&mut ProjectState> {
        self.projects.iter_mut().find(|project| project.id == id)
    }

    /// The project that `holds` says yes to, if the token may see it. 404: there is none. 403: somebody else's.
    pub(crate) fn open(
        &mut self,
        access: Access,
        what: &'static str,
        holds: impl Fn(&ProjectState) -> bool,
    ) -> Result<&mut ProjectState, ApiError> {
        let project = self
            .projects
            .iter_mut()
            .find(|project| holds(project))
            .ok_or(ApiError::NotFound)?;
        if access == Access::Account || access == Access::Project(project.id) {
            Ok(project)
        } else {
            Err(ApiError::Forbidden(what))
        }
    }
}

/// A token for a seed. Guessable, as everything here.
pub(crate) fn token_of(seed: u64) -> String {
    uuid_of(mix(seed ^ 0x7031), 1).simple().to_string()
}

/// A block that is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    id: ReservationId,
    length: u128,
}

/// One project.
#[derive(Debug)]
pub(crate) struct ProjectState {
    pub(crate) id: ProjectId,
    /// The id in the API of Cherry Servers.
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) options: ProjectOptions,
    pub(crate) devices: Ordered<DeviceId, Device>,
    pub(crate) reservations: Ordered<ReservationId, Reservation>,
    pub(crate) assignments: HashMap<AssignmentId, Assignment>,
    pub(crate) sessions: Ordered<SessionId, Session>,
    pub(crate) bgp: Option<BgpConfig>,
    pub(crate) holders: Holders,
    /// Machines by their number.
    pub(crate) servers: HashMap<u32, DeviceId>,
    /// Routers that a test furnished, by the id of their region.
    regions: BTreeMap<u32, RegionBgp>,
    next_server: u32,
    ids: IdSource,
    plan: AddressPlan,
    /// Blocks that can be assigned, by first address.
    blocks: UsedBlocks<Held>,
    /// Blocks of the machines' own addresses, by first address.
    machine_blocks: HashMap<IpAddr, ReservationId>,
    /// Addresses that count against the quota.
    reserved: u128,
    next_name: u32,
    /// Number of the current window of the rate limit, and the calls in it.
    window: (i64, u32),
}

impl ProjectState {
    fn new(
        id: ProjectId,
        name: String,
        number: u32,
        seed: u64,
        options: ProjectOptions,
        now: Timestamp,
    ) -> Result<Self, SetupError> {
        let mut project = Self {
            id,
            number: options.number.unwrap_or(FIRST_NUMBER + number),
            name,
            devices: Ordered::default(),
            reservations: Ordered::default(),
            assignments: HashMap::new(),
            sessions: Ordered::default(),
            bgp: None,
            holders: Holders::new(),
            servers: HashMap::new(),
            regions: BTreeMap::new(),
            next_server: options
                .number
                .unwrap_or(FIRST_NUMBER + number)
                .saturating_mul(SERVERS),
            ids: IdSource::new(seed),
            plan: AddressPlan::new(number),
            blocks: UsedBlocks::new(),
            machine_blocks: HashMap::new(),
            reserved: 0,
            next_name: 0,
            window: (0, 0),
            options,
        };
        // It may be named as a region.
        let metro = project.place(Some(&project.options.metro), None)?.metro;
        metro.clone_into(&mut project.options.metro);
        if let Some(asn) = project.options.asn {
            let (deployment_type, md5) = (project.options.deployment_type, project.options.md5.clone());
            project.configure_bgp(asn, deployment_type, md5, None, BgpStatus::Enabled, now);
        }
        Ok(project)
    }

    /// Counts a call. Returns the limit with what is left of it and the second in which the window ends.
    pub(crate) fn count_call(&mut self, now: Timestamp) -> Option<Allowance> {
        let limit = self.options.rate_limit?;
        let length = i64::from(limit.window_seconds.max(1));
        let window = now.as_second().div_euclid(length);
        if self.window.0 != window {
            self.window = (window, 0);
        }
        let exceeded = self.window.1 >= limit.requests;
        self.window.1 = self.window.1.saturating_add(1);
        Some(Allowance {
            limit: limit.requests,
            remaining: limit.requests.saturating_sub(self.window.1),
            reset: (window + 1) * length,
            refuse: exceeded && limit.enforce,
        })
    }
}

/// What is left of a rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub(crate) limit: u32,
    pub(crate) remaining: u32,
    /// Unix seconds.
    pub(crate) reset: i64,
    /// This call is one too many.
    pub(crate) refuse: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::RateLimit;

    #[test]
    fn a_rate_limit_starts_again_in_the_next_window() {
        let mut cloud = Cloud::new(1, "t".to_owned());
        let at = |second| Timestamp::from_second(second).unwrap();
        let limit = RateLimit {
            requests: 2,
            window_seconds: 10,
            enforce: true,
        };
        let options = ProjectOptions {
            rate_limit: Some(limit),
            ..ProjectOptions::default()
        };
        let project = cloud.add_project(options, at(0)).unwrap();
        let mut take = |second| {
            let allowance = project.count_call(at(second)).unwrap();
            (allowance.remaining, allowance.refuse, allowance.reset)
        };
        assert_eq!(take(1001), (1, false, 1010));
        assert_eq!(take(1002), (0, false, 1010));
        assert_eq!(take(1003), (0, true, 1010));
        assert_eq!(take(1010), (1, false, 1020));
    }

    #[test]
    fn a_project_of_the_same_name_is_the_same_in_every_run_and_only_once_in_one() {
        let make = |name: &str| {
            let mut cloud = Cloud::new(9, "t".to_owned());
            let options = ProjectOptions {
                name: Some(name.to_owned()),
                ..ProjectOptions::default()
            };
            let id = cloud
                .add_project(options.clone(), Timestamp::UNIX_EPOCH)
                .unwrap()
                .id;
            let again = cloud.add_project(options, Timestamp::UNIX_EPOCH).err();
            assert_eq!(again, Some(SetupError::Taken(name.to_owned())));
            (id, cloud.token(id).unwrap().to_owned())
        };
        assert_eq!(make("a"), make("a"));
        assert_ne!(make("a").0, make("b").0);
        assert_ne!(make("a").1, make("b").1);
    }
}
