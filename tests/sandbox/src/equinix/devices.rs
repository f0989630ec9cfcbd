//! Machines, to be read.

use super::Devices;
use super::shapes::{AssignmentBody, DeviceBody, DeviceParts, Link, Sub};
use crate::api::{Ask, Reply};
use crate::cloud::{Cloud, ProjectState};
use crate::error::ApiError;
use crate::ident::{DeviceId, ProjectId};
use crate::model::Device;
use crate::query::Query;

/// Devices a page, unless asked otherwise.
const PER_PAGE: usize = 10;

fn parts(query: &Query) -> DeviceParts {
    DeviceParts {
        addresses: !query.excludes("ip_addresses"),
        parent_blocks: query.includes("ip_addresses.parent_block"),
        facility: query.includes("facility"),
        metro: !query.excludes("metro"),
        plan: !query.excludes("plan"),
    }
}

fn body<'a>(project: &'a ProjectState, device: &'a Device, parts: DeviceParts) -> DeviceBody<'a> {
    let addresses = device
        .addresses
        .iter()
        .filter_map(|id| project.assignments.get(id))
        .map(|assignment| {
            Sub::of(parts.addresses, Link::assignment(assignment.id), || {
                let parent = assignment.reservation.and_then(|id| project.reservations.get(id));
                AssignmentBody::new(assignment, parent, parts.parent_blocks)
            })
        });
    DeviceBody::new(device, project.id, addresses.collect(), parts)
}

/// The filters that the real API has: part of the hostname, a tag, a place.
fn matches(device: &Device, query: &Query) -> bool {
    let has = |name, test: &dyn Fn(&str) -> bool| query.get(name).is_none_or(test);
    has("hostname", &|text| device.hostname.contains(text))
        && has("search", &|text| {
            device.hostname.contains(text) || device.tags.iter().any(|tag| tag.contains(text))
        })
        && has("tag", &|text| device.tags.iter().any(|tag| tag == text))
        && has("metro", &|text| device.metro == text)
        && has("facility", &|text| device.facility == text)
}

pub(super) fn list(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let id: ProjectId = ask.id()?;
    let project = &*cloud.open(ask.access, "project", |project| project.id == id)?;
    let filtered = ["hostname", "search", "tag", "metro", "facility"]
        .iter()
        .any(|f| ask.query.get(f).is_some());
    let total = if filtered {
        project
            .devices
            .values()
            .filter(|device| matches(device, ask.query))
            .count()
    } else {
        project.devices.len()
    };
    let most = usize::try_from(project.options.max_per_page).unwrap_or(usize::MAX);
    let page = ask
        .query
        .page(&format!("/projects/{id}/devices"), total, PER_PAGE, most)?;
    let parts = parts(ask.query);
    let rows = project
        .devices
        .values()
        .filter(|device| !filtered || matches(device, ask.query));
    let devices = rows
        .skip(page.skip)
        .take(page.take)
        .map(|device| body(project, device, parts));
    Reply::ok(&Devices {
        devices: devices.collect(),
        meta: page.meta,
    })
}

pub(super) fn get(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let id: DeviceId = ask.id()?;
    let project = &*cloud.open(ask.access, "device", |project| project.devices.contains(id))?;
    let device = project.devices.get(id).ok_or(ApiError::NotFound)?;
    Reply::ok(&body(project, device, parts(ask.query)))
}
