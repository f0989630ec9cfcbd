//! Addresses: those of machines, and floating ones, which lead to one machine or to none.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde::{Deserialize, Deserializer, de};

use super::shapes::{IpBody, kind_of_own, kind_of_reservation};
use super::{page, project, tags_of};
use crate::api::{Ask, Reply};
use crate::cloud::{Cloud, ProjectState, ReservationRequest};
use crate::error::ApiError;
use crate::ident::{AssignmentId, DeviceId, ReservationId};
use crate::model::{Assignment, Reservation};
use crate::regions;

/// What an id under `/ips` stands for.
#[derive(Clone, Copy, Debug)]
enum Target {
    Floating(ReservationId),
    Own(AssignmentId),
}

/// An entry of the list.
#[derive(Clone, Copy, Debug)]
enum Row<'a> {
    Floating(&'a Reservation),
    Own(&'a Assignment),
}

impl<'a> Row<'a> {
    /// What kind it is, as the filter `type[]` names it.
    fn kind(self) -> &'static str {
        match self {
            Self::Floating(row) => kind_of_reservation(row),
            Self::Own(row) => kind_of_own(row),
        }
    }

    fn body(self, project: &'a ProjectState) -> IpBody<'a> {
        match self {
            Self::Floating(row) => IpBody::floating(project, row),
            Self::Own(row) => IpBody::own(project, row),
        }
    }
}

/// Floating addresses first, then those of machines, each oldest first.
fn all(project: &ProjectState) -> impl Iterator<Item = Row<'_>> {
    let floating = project.reservations.values().filter(|row| is_floating(row));
    let own = project
        .devices
        .values()
        .filter(|_| project.options.list_machine_blocks)
        .flat_map(|device| &device.addresses)
        .filter_map(|id| project.assignments.get(id))
        .filter(|row| row.management);
    floating.map(Row::Floating).chain(own.map(Row::Own))
}

/// Is this reservation something that the vendor has?
fn is_floating(row: &Reservation) -> bool {
    !row.management && row.vrf.is_none() && row.address.is_some()
}

pub(super) fn list(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let project = &*project(cloud, ask)?;
    let kinds: Vec<&str> = ask.query.all("type").collect();
    let rows = all(project).filter(|row| kinds.is_empty() || kinds.contains(&row.kind()));
    page(ask, project.options.max_per_page, rows, |row| row.body(project))
}

/// `"123"`, `123`, or `"0"` for nobody.
#[derive(Clone, Copy, Debug)]
struct ServerNumber(u32);

impl<'de> Deserialize<'de> for ServerNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(u32),
            Text(String),
        }
        match Either::deserialize(deserializer)? {
            Either::Number(number) => Ok(Self(number)),
            Either::Text(text) => text
                .parse()
                .map(Self)
                .map_err(|_| de::Error::custom(format!("`{text}` is not the id of a server"))),
        }
    }
}

impl ServerNumber {
    /// The machine; none where nobody is meant.
    fn device(self, project: &ProjectState) -> Result<Option<DeviceId>, ApiError> {
        if self.0 == 0 {
            return Ok(None);
        }
        let unknown = || ApiError::unprocessable(format!("server {} is not in this project", self.0));
        project
            .servers
            .get(&self.0)
            .copied()
            .map(Some)
            .ok_or_else(unknown)
    }
}

/// `POST /projects/{pid}/ips`.
#[derive(Debug, Deserialize)]
struct Create {
    region: String,
    #[serde(default)]
    tags: BTreeMap<String, String>,
    #[serde(default)]
    targeted_to: Option<ServerNumber>,
}

pub(super) fn reserve(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let project = project(cloud, ask)?;
    let Create {
        region,
        tags,
        targeted_to,
    } = ask.json()?;
    let region = regions::named(&region)
        .ok_or_else(|| ApiError::unprocessable(format!("region {region} is not valid")))?;
    let device = targeted_to.map_or(Ok(None), |number| number.device(project))?;
    let request = ReservationRequest::floating(region.metro, tags_of(tags)?);
    let id = project.reserve(request, ask.now)?;
    if let Err(error) = project.target(id, device, ask.now) {
        project.release(id)?;
        return Err(error);
    }
    let row = project.reservations.get(id).ok_or(ApiError::NotFound)?;
    Reply::json(StatusCode::CREATED, &IpBody::floating(project, row))
}

fn open<'c>(cloud: &'c mut Cloud, ask: &Ask<'_>) -> Result<(&'c mut ProjectState, Target), ApiError> {
    let floating: ReservationId = ask.id()?;
    let own: AssignmentId = ask.id()?;
    let is_own = |row: &Assignment| row.management;
    let project = cloud.open(ask.access, "IP address", |project| {
        project.reservations.get(floating).is_some_and(is_floating)
            || project.assignments.get(&own).is_some_and(is_own)
    })?;
    let target = if project.reservations.contains(floating) {
        Target::Floating(floating)
    } else {
        Target::Own(own)
    };
    Ok((project, target))
}

fn show(project: &ProjectState, target: Target) -> Result<Reply, ApiError> {
    match target {
        Target::Floating(id) => {
            let row = project.reservations.get(id).ok_or(ApiError::NotFound)?;
            Reply::ok(&IpBody::floating(project, row))
        }
        Target::Own(id) => {
            let row = project.assignments.get(&id).ok_or(ApiError::NotFound)?;
            Reply::ok(&IpBody::own(project, row))
        }
    }
}

pub(super) fn get(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let (project, target) = open(cloud, ask)?;
    show(project, target)
}

/// `PUT /ips/{id}`: what is absent stays as it is. Records of the DNS are accepted, and kept nowhere.
#[derive(Debug, Deserialize)]
struct Update {
    #[serde(default)]
    tags: Option<BTreeMap<String, String>>,
    #[serde(default)]
    targeted_to: Option<ServerNumber>,
}

pub(super) fn update(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let (project, target) = open(cloud, ask)?;
    let Target::Floating(id) = target else {
        return Err(ApiError::unprocessable(
            "the address of a server cannot be changed",
        ));
    };
    let Update { tags, targeted_to } = ask.json()?;
    let tags = tags.map(tags_of).transpose()?;
    if let Some(number) = targeted_to {
        let device = number.device(project)?;
        project.target(id, device, ask.now)?;
    }
    if let Some(tags) = tags {
        project.reservations.get_mut(id).ok_or(ApiError::NotFound)?.tags = tags;
    }
    show(project, target)
}

pub(super) fn delete(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let (project, target) = open(cloud, ask)?;
    match target {
        Target::Floating(id) => project.release(id)?,
        Target::Own(_) => {
            return Err(ApiError::unprocessable(
                "the address of a server cannot be deleted",
            ));
        }
    }
    Ok(Reply::no_content())
}
