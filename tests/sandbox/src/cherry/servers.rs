//! Machines: read, tagged, and told to speak BGP.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::shapes::ServerBody;
use super::{page, project, tags_of};
use crate::api::{Ask, Reply};
use crate::cloud::{Cloud, ProjectState};
use crate::error::ApiError;
use crate::ident::{DeviceId, SessionId};

/// Marks as seen the sessions that an answer shows.
fn seen(project: &mut ProjectState, sessions: Vec<SessionId>) {
    for id in sessions {
        project.session_was_read(id);
    }
}

pub(super) fn list(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let project = project(cloud, ask)?;
    let most = project.options.max_per_page;
    let wanted = ask.query.get("search").or_else(|| ask.query.get("hostname"));
    let rows = project
        .devices
        .values()
        .filter(|device| wanted.is_none_or(|text| device.hostname.contains(text)));
    let reply = page(ask, most, rows, |device| ServerBody::new(project, device, true));
    let all = project.sessions.values().map(|session| session.id).collect();
    seen(project, all);
    reply
}

fn open<'c>(cloud: &'c mut Cloud, ask: &Ask<'_>) -> Result<(&'c mut ProjectState, DeviceId), ApiError> {
    let number: u32 = ask.id()?;
    let project = cloud.open(ask.access, "server", |project| {
        project.servers.contains_key(&number)
    })?;
    let id = project.servers.get(&number).copied().ok_or(ApiError::NotFound)?;
    Ok((project, id))
}

pub(super) fn get(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let (project, id) = open(cloud, ask)?;
    let device = project.devices.get(id).ok_or(ApiError::NotFound)?;
    let shown = device.sessions.clone();
    let reply = Reply::ok(&ServerBody::new(project, device, true));
    seen(project, shown);
    reply
}

/// `PUT /servers/{id}`: what is absent stays as it is.
#[derive(Debug, Deserialize)]
struct Update {
    #[serde(default)]
    hostname: Option<String>,
    #[serde(default)]
    tags: Option<BTreeMap<String, String>>,
    #[serde(default)]
    bgp: Option<bool>,
}

/// The answer lacks the addresses, as the real one does.
pub(super) fn update(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let (project, id) = open(cloud, ask)?;
    let Update { hostname, tags, bgp } = ask.json()?;
    let tags = tags.map(tags_of).transpose()?;
    // First what may be refused, so that a refusal changes nothing.
    if let Some(on) = bgp {
        project.switch_server_bgp(id, on, ask.now)?;
    }
    let device = project.devices.get_mut(id).ok_or(ApiError::NotFound)?;
    if let Some(tags) = tags {
        device.tags = tags;
    }
    if let Some(hostname) = hostname {
        device.hostname = hostname;
    }
    let device = project.devices.get(id).ok_or(ApiError::NotFound)?;
    Reply::ok(&ServerBody::new(project, device, false))
}
