//! BGP: the project's configuration, sessions and neighbours.

use groundplane_core::Family;
use serde::Serialize;
use serde_json::json;

use super::Sessions;
use super::shapes::{BgpConfigBody, Link, NeighborBody, RouteBody, SessionBody, Sub};
use crate::addressing::network;
use crate::api::{Ask, Reply};
use crate::cloud::{BgpRequest, Cloud, ProjectState, SessionRequest};
use crate::error::ApiError;
use crate::ident::{DeviceId, ProjectId, SessionId};
use crate::model::{BgpConfig, Session};

/// Sessions a page, unless asked otherwise. A guess: the published API does not page this list.
const PER_PAGE: usize = 10;

pub(super) fn config(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let id: ProjectId = ask.id()?;
    let project = &*cloud.open(ask.access, "project", |project| project.id == id)?;
    let Some(config) = &project.bgp else {
        return Reply::ok(&json!({}));
    };
    let full = ask.query.includes("sessions");
    let sessions = project.sessions.values();
    let sessions =
        sessions.map(|session| Sub::of(full, Link::session(session.id), || SessionBody::from(session)));
    Reply::ok(&BgpConfigBody::new(config, project.id, sessions.collect()))
}

pub(super) fn enable(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let id: ProjectId = ask.id()?;
    let project = cloud.open(ask.access, "project", |project| project.id == id)?;
    project.enable_bgp(ask.json::<BgpRequest>()?, ask.now)?;
    Ok(Reply::no_content())
}

/// Marks as seen what an answer shows.
fn seen(project: &mut ProjectState, sessions: &[SessionId]) {
    for id in sessions {
        project.session_was_read(*id);
    }
}

pub(super) fn list_sessions(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let id: ProjectId = ask.id()?;
    let project = cloud.open(ask.access, "project", |project| project.id == id)?;
    let most = usize::try_from(project.options.max_per_page).unwrap_or(usize::MAX);
    let total = project.sessions.len();
    let page = ask
        .query
        .page(&format!("/projects/{id}/bgp/sessions"), total, PER_PAGE, most)?;
    let rows: Vec<&Session> = project
        .sessions
        .values()
        .skip(page.skip)
        .take(page.take)
        .collect();
    let shown: Vec<SessionId> = rows.iter().map(|session| session.id).collect();
    let bgp_sessions = rows.into_iter().map(SessionBody::from).collect();
    let reply = Reply::ok(&Sessions {
        bgp_sessions,
        meta: Some(page.meta),
    });
    seen(project, &shown);
    reply
}

pub(super) fn list_sessions_of_device(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let id: DeviceId = ask.id()?;
    let project = cloud.open(ask.access, "device", |project| project.devices.contains(id))?;
    let shown = project
        .devices
        .get(id)
        .ok_or(ApiError::NotFound)?
        .sessions
        .clone();
    let rows = shown.iter().filter_map(|id| project.sessions.get(*id));
    let reply = Reply::ok(&Sessions {
        bgp_sessions: rows.map(SessionBody::from).collect(),
        meta: None,
    });
    seen(project, &shown);
    reply
}

pub(super) fn add_session(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let id: DeviceId = ask.id()?;
    let project = cloud.open(ask.access, "device", |project| project.devices.contains(id))?;
    let made = project.add_session(id, &ask.json::<SessionRequest>()?, ask.now)?;
    let session = project.sessions.get(made).ok_or(ApiError::NotFound)?;
    Reply::created(&SessionBody::from(session))
}

fn open<'c>(cloud: &'c mut Cloud, ask: &Ask<'_>) -> Result<(&'c mut ProjectState, SessionId), ApiError> {
    let id: SessionId = ask.id()?;
    Ok((
        cloud.open(ask.access, "BGP session", |project| project.sessions.contains(id))?,
        id,
    ))
}

pub(super) fn session(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let (project, id) = open(cloud, ask)?;
    let reply = Reply::ok(&SessionBody::from(
        project.sessions.get(id).ok_or(ApiError::NotFound)?,
    ));
    project.session_was_read(id);
    reply
}

pub(super) fn remove_session(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let (project, id) = open(cloud, ask)?;
    project.remove_session(id)?;
    Ok(Reply::no_content())
}

#[derive(Debug, Serialize)]
struct Neighbors<'a> {
    bgp_neighbors: Vec<NeighborBody<'a>>,
}

pub(super) fn neighbors(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let id: DeviceId = ask.id()?;
    let project = &*cloud.open(ask.access, "device", |project| project.devices.contains(id))?;
    let device = project.devices.get(id).ok_or(ApiError::NotFound)?;
    let sessions = device.sessions.iter().filter_map(|id| project.sessions.get(*id));
    let bgp_neighbors = match &project.bgp {
        Some(config) => sessions
            .filter_map(|session| neighbor(project, config, session))
            .collect(),
        None => Vec::new(),
    };
    Reply::ok(&Neighbors { bgp_neighbors })
}

/// What a machine has to know to speak BGP in the session's family. None: the switches are not known, or the
/// machine has no address to speak from.
fn neighbor<'a>(
    project: &'a ProjectState,
    config: &'a BgpConfig,
    session: &Session,
) -> Option<NeighborBody<'a>> {
    let device = project.devices.get(session.device)?;
    let own = project.bgp_address(device, session.family)?;
    let peer_ips: Vec<_> = device
        .peers
        .iter()
        .copied()
        .filter(|p| Family::of(*p) == session.family)
        .collect();
    if peer_ips.is_empty() {
        return None;
    }
    let block = own.reservation.and_then(|id| project.reservations.get(id));
    let (first, length) = block
        .and_then(|block| Some((block.address?, block.cidr)))
        .unwrap_or((own.address, own.cidr));
    let password = device
        .bgp_password
        .as_deref()
        .or(config.md5.as_deref())
        .filter(|text| !text.is_empty());
    Some(NeighborBody {
        address_family: match session.family {
            Family::V4 => 4,
            Family::V6 => 6,
        },
        customer_as: config.asn,
        customer_ip: own.address,
        md5_enabled: password.is_some(),
        md5_password: password,
        multihop: true,
        peer_as: project.options.peer_asn,
        peer_ips,
        routes_in: vec![RouteBody {
            route: format!("{}/{length}", network(first, length)),
            exact: false,
        }],
        routes_out: Vec::new(),
    })
}
