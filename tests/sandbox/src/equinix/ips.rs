//! Reservations and assignments. Both live under `/ips/{id}`.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Ips;
use super::shapes::{AssignmentBody, IpBody, Link, Sub};
use crate::api::{Ask, Reply};
use crate::cloud::{Cloud, IfHeld, ProjectState, ReservationRequest};
use crate::error::ApiError;
use crate::ident::{AssignmentId, DeviceId, ProjectId, ReservationId};
use crate::model::{Assignment, Reservation};
use crate::query::Query;

/// Addresses a page, unless asked otherwise.
const PER_PAGE: usize = 250;

fn reservation<'a>(project: &'a ProjectState, row: &'a Reservation, query: &Query) -> IpBody<'a> {
    let full = query.includes("assignments");
    let with_parent = query.includes("assignments.parent_block") || query.includes("parent_block");
    let assignments = row
        .assignments
        .iter()
        .filter_map(|id| project.assignments.get(id))
        .map(|assignment| {
            Sub::of(full, Link::assignment(assignment.id), || {
                AssignmentBody::new(assignment, Some(row), with_parent)
            })
        });
    let (facility, metro) = (query.includes("facility"), !query.excludes("metro"));
    IpBody::reservation(row, project.id, assignments.collect(), facility, metro)
}

fn assignment<'a>(project: &ProjectState, row: &Assignment, query: &Query) -> IpBody<'a> {
    let parent = row.reservation.and_then(|id| project.reservations.get(id));
    IpBody::Assignment(Box::new(AssignmentBody::new(
        row,
        parent,
        query.includes("parent_block"),
    )))
}

pub(super) fn list(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let id: ProjectId = ask.id()?;
    let project = &*cloud.open(ask.access, "project", |project| project.id == id)?;
    let kinds: Vec<&str> = ask.query.all("types").chain(ask.query.all("type")).collect();
    let shown = |row: &&Reservation| {
        (project.options.list_machine_blocks || !row.management)
            && (kinds.is_empty() || kinds.contains(&row.kind.as_str()))
    };
    let total = project.reservations.values().filter(shown).count();
    let most = usize::try_from(project.options.max_per_page).unwrap_or(usize::MAX);
    let page = ask
        .query
        .page(&format!("/projects/{id}/ips"), total, PER_PAGE, most)?;
    let rows = project
        .reservations
        .values()
        .filter(shown)
        .skip(page.skip)
        .take(page.take);
    let ip_addresses = rows.map(|row| reservation(project, row, ask.query)).collect();
    Reply::ok(&Ips {
        ip_addresses,
        meta: Some(page.meta),
    })
}

pub(super) fn reserve(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let id: ProjectId = ask.id()?;
    let project = cloud.open(ask.access, "project", |project| project.id == id)?;
    let made = project.reserve(ask.json::<ReservationRequest>()?, ask.now)?;
    let row = project.reservations.get(made).ok_or(ApiError::NotFound)?;
    Reply::created(&reservation(project, row, ask.query))
}

/// What an id under `/ips` stands for.
#[derive(Clone, Copy)]
enum Target {
    Reservation(ReservationId),
    Assignment(AssignmentId),
}

fn open<'c>(cloud: &'c mut Cloud, ask: &Ask<'_>) -> Result<(&'c mut ProjectState, Target), ApiError> {
    let reservation: ReservationId = ask.id()?;
    let assignment: AssignmentId = ask.id()?;
    let project = cloud.open(ask.access, "IP address", |project| {
        project.reservations.contains(reservation) || project.assignments.contains_key(&assignment)
    })?;
    let target = if project.reservations.contains(reservation) {
        Target::Reservation(reservation)
    } else {
        Target::Assignment(assignment)
    };
    Ok((project, target))
}

fn show(project: &ProjectState, target: Target, query: &Query) -> Result<Reply, ApiError> {
    match target {
        Target::Reservation(id) => {
            let row = project.reservations.get(id).ok_or(ApiError::NotFound)?;
            Reply::ok(&reservation(project, row, query))
        }
        Target::Assignment(id) => {
            let row = project.assignments.get(&id).ok_or(ApiError::NotFound)?;
            Reply::ok(&assignment(project, row, query))
        }
    }
}

pub(super) fn get(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let (project, target) = open(cloud, ask)?;
    show(project, target, ask.query)
}

/// `PATCH /ips/{id}`: what is absent stays as it is.
#[derive(Debug, Deserialize)]
struct Update {
    #[serde(default)]
    tags: Option<Vec<String>>,
    #[serde(default)]
    details: Option<String>,
    #[serde(default)]
    customdata: Option<Map<String, Value>>,
}

pub(super) fn update(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let (project, target) = open(cloud, ask)?;
    let Target::Reservation(id) = target else {
        return Err(ApiError::unprocessable("an assignment cannot be changed"));
    };
    let update: Update = ask.json()?;
    let row = project.reservations.get_mut(id).ok_or(ApiError::NotFound)?;
    if let Some(tags) = update.tags {
        row.tags = tags;
    }
    if let Some(details) = update.details {
        row.details = Some(details);
    }
    if let Some(customdata) = update.customdata {
        row.customdata = customdata;
    }
    show(project, target, ask.query)
}

pub(super) fn delete(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let (project, target) = open(cloud, ask)?;
    match target {
        Target::Reservation(id) => project.release(id)?,
        Target::Assignment(id) => project.unassign(id)?,
    }
    Ok(Reply::no_content())
}

pub(super) fn list_of_device(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let id: DeviceId = ask.id()?;
    let project = &*cloud.open(ask.access, "device", |project| project.devices.contains(id))?;
    let device = project.devices.get(id).ok_or(ApiError::NotFound)?;
    let rows = device
        .addresses
        .iter()
        .filter_map(|id| project.assignments.get(id));
    let ip_addresses = rows.map(|row| assignment(project, row, ask.query)).collect();
    Reply::ok(&Ips {
        ip_addresses,
        meta: None,
    })
}

/// `POST /devices/{id}/ips`.
#[derive(Debug, Deserialize)]
struct Assign {
    address: String,
}

pub(super) fn assign(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let id: DeviceId = ask.id()?;
    let project = cloud.open(ask.access, "device", |project| project.devices.contains(id))?;
    let made = project.assign(id, &ask.json::<Assign>()?.address, IfHeld::Refuse, ask.now)?;
    let row = project.assignments.get(&made).ok_or(ApiError::NotFound)?;
    Reply::created(&assignment(project, row, ask.query))
}
