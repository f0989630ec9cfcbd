//! `/sandbox/v1`: what the library offers in process, for tests and tools in other processes. Nobody is asked
//! for a token here, so it must be reachable by friends only.

mod holders;

use std::collections::BTreeMap;
use std::net::IpAddr;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{Response, StatusCode};
use axum::routing::{delete, get, patch, post};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::{Shared, respond};
use crate::api::{Api, Reply};
use crate::cloud::{Access, ProjectState, SetupError};
use crate::error::ApiError;
use crate::fault::{FaultId, FaultRule, RandomPlan};
use crate::ident::{DeviceId, ProjectId, ReservationId};
use crate::journal::Journal;
use crate::model::{BgpStatus, DeviceState, ReservationState};
use crate::options::{DeviceOptions, ProjectOptions, ReservationOptions};
use crate::regions::{self, RegionBgp};

type Answer = Result<Reply, ApiError>;

impl From<SetupError> for ApiError {
    fn from(error: SetupError) -> Self {
        match error {
            SetupError::Unknown(..) => Self::NotFound,
            other => Self::Unprocessable(other.to_string()),
        }
    }
}

fn reply(answer: Answer) -> Response<Body> {
    respond(answer.unwrap_or_else(|error| Api::Equinix.refuse(&error)))
}

fn ok(body: &impl Serialize) -> Answer {
    Reply::json(StatusCode::OK, body)
}

fn created(body: &impl Serialize) -> Answer {
    Reply::json(StatusCode::CREATED, body)
}

/// An empty body means all defaults.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| ApiError::Unprocessable(error.to_string()))
}

/// The project that `holds`, for everybody.
fn open<T>(
    shared: &Shared,
    holds: impl Fn(&ProjectState) -> bool,
    work: impl FnOnce(&mut ProjectState) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    work(shared.cloud.lock().open(Access::Account, "project", holds)?)
}

fn parse<T: std::str::FromStr>(text: &str) -> Result<T, ApiError> {
    text.parse().map_err(|_| ApiError::NotFound)
}

/// The admin's routes.
pub(super) fn router() -> Router<Shared> {
    let at = |path: &str| format!("/sandbox/v1{path}");
    Router::new()
        .route(
            &at("/health"),
            get(|| async { reply(ok(&json!({ "status": "serving" }))) }),
        )
        .route(&at("/projects"), get(list_projects).post(add_project))
        .route(&at("/projects/{pid}"), patch(change_project))
        .route(
            &at("/projects/{pid}/devices"),
            get(list_devices).post(add_devices),
        )
        .route(
            &at("/projects/{pid}/reservations"),
            get(list_reservations).post(add_reservation),
        )
        .route(&at("/projects/{pid}/sessions"), get(list_sessions))
        .route(&at("/projects/{pid}/holders"), get(holders::holders))
        .route(&at("/devices/{id}"), patch(change_device).delete(remove_device))
        .route(&at("/reservations/{id}"), patch(decide_reservation))
        .route(
            &at("/faults"),
            get(list_faults).post(add_fault).delete(clear_faults),
        )
        .route(&at("/faults/{id}"), delete(remove_fault))
        .route(&at("/plans"), post(add_plan))
        .route(&at("/journal"), get(journal))
        .route(&at("/journal/counts"), get(journal_counts))
}

async fn list_projects(State(shared): State<Shared>) -> Response<Body> {
    let cloud = shared.cloud.lock();
    let rows: Vec<Value> = cloud
        .projects()
        .map(|project| {
            json!({ "id": project.id, "number": project.number, "name": project.name, "devices": project.devices.len(),
                    "reservations": project.reservations.values().filter(|row| !row.management).count(), "sessions": project.sessions.len() })
        })
        .collect();
    drop(cloud);
    reply(ok(&rows))
}

async fn add_project(State(shared): State<Shared>, body: Bytes) -> Response<Body> {
    reply(read::<ProjectOptions>(&body).and_then(|options| {
        let now = shared.now();
        let mut cloud = shared.cloud.lock();
        let project = cloud.add_project(options, now)?;
        let (id, number) = (project.id, project.number);
        let token = cloud.token(id).ok_or(ApiError::NotFound)?;
        created(&json!({
            "id": id, "number": number, "token": token,
            "base_url": &*shared.base_url, "cherry_url": &*shared.cherry_url,
        }))
    }))
}

/// A field that may be absent, `null` or a value; the three mean different things.
#[derive(Debug, Default)]
enum Given<T> {
    #[default]
    Absent,
    Value(Option<T>),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Given<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Self::Value)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProjectChange {
    /// A number, or `null` for no limit.
    #[serde(default)]
    quota: Given<u32>,
    #[serde(default)]
    bgp_status: Option<BgpStatus>,
    /// Prefixes that a machine may announce.
    #[serde(default)]
    max_prefix: Option<u32>,
    /// Regions of Cherry Servers, by name or slug, and the routers that they have from now on.
    #[serde(default)]
    regions: BTreeMap<String, RegionBgp>,
    /// All sessions go `up`.
    #[serde(default)]
    raise_sessions: bool,
}

async fn change_project(State(shared): State<Shared>, Path(id): Path<String>, body: Bytes) -> Response<Body> {
    reply(parse::<ProjectId>(&id).and_then(|id| {
        let change: ProjectChange = read(&body)?;
        open(
            &shared,
            |project| project.id == id,
            |project| {
                if let Given::Value(quota) = change.quota {
                    project.options.quota = quota;
                }
                if let Some(status) = change.bgp_status {
                    project.bgp.as_mut().ok_or(ApiError::NotFound)?.status = status;
                }
                if let Some(max_prefix) = change.max_prefix {
                    project.bgp.as_mut().ok_or(ApiError::NotFound)?.max_prefix = max_prefix;
                }
                for (name, bgp) in change.regions {
                    let region = regions::named(&name).ok_or(SetupError::UnknownPlace(name))?;
                    project.set_region_bgp(region, bgp);
                }
                if change.raise_sessions {
                    project.raise_all_sessions();
                }
                ok(&json!({ "id": id }))
            },
        )
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewDevices {
    /// How many; 1 where absent. Several of them get names by number, whatever `hostname` says.
    #[serde(default)]
    count: Option<u32>,
    #[serde(default)]
    device: DeviceOptions,
}

async fn add_devices(State(shared): State<Shared>, Path(id): Path<String>, body: Bytes) -> Response<Body> {
    reply(parse::<ProjectId>(&id).and_then(|id| {
        let NewDevices { count, mut device } = read(&body)?;
        if count.is_some() {
            device.hostname = None;
        }
        let now = shared.now();
        open(
            &shared,
            |project| project.id == id,
            |project| {
                let made: Result<Vec<DeviceId>, SetupError> = (0..count.unwrap_or(1))
                    .map(|_| project.add_device(device.clone(), now))
                    .collect();
                created(&json!({ "ids": made? }))
            },
        )
    }))
}

async fn list_devices(State(shared): State<Shared>, Path(id): Path<String>) -> Response<Body> {
    reply(parse::<ProjectId>(&id).and_then(|id| {
        open(
            &shared,
            |p| p.id == id,
            |project| ok(&project.devices.values().collect::<Vec<_>>()),
        )
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceChange {
    #[serde(default)]
    state: Option<DeviceState>,
    #[serde(default)]
    peers: Option<Vec<IpAddr>>,
    /// A text, or `null` for the project's.
    #[serde(default)]
    bgp_password: Given<String>,
}

async fn change_device(State(shared): State<Shared>, Path(id): Path<String>, body: Bytes) -> Response<Body> {
    reply(parse::<DeviceId>(&id).and_then(|id| {
        let change: DeviceChange = read(&body)?;
        open(
            &shared,
            |project| project.devices.contains(id),
            |project| {
                let device = project.devices.get_mut(id).ok_or(ApiError::NotFound)?;
                if let Some(state) = change.state {
                    device.state = state;
                }
                if let Some(peers) = change.peers {
                    device.peers = peers;
                }
                if let Given::Value(password) = change.bgp_password {
                    device.bgp_password = password;
                }
                ok(&*device)
            },
        )
    }))
}

async fn remove_device(State(shared): State<Shared>, Path(id): Path<String>) -> Response<Body> {
    reply(parse::<DeviceId>(&id).and_then(|id| {
        open(
            &shared,
            |project| project.devices.contains(id),
            |project| ok(&json!({ "removed": project.remove_device(id) })),
        )
    }))
}

async fn add_reservation(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    body: Bytes,
) -> Response<Body> {
    reply(parse::<ProjectId>(&id).and_then(|id| {
        let options: ReservationOptions = read(&body)?;
        let now = shared.now();
        open(
            &shared,
            |project| project.id == id,
            |project| {
                let made = project.add_reservation(options, now)?;
                created(&project.reservations.get(made))
            },
        )
    }))
}

async fn list_reservations(State(shared): State<Shared>, Path(id): Path<String>) -> Response<Body> {
    reply(parse::<ProjectId>(&id).and_then(|id| {
        open(
            &shared,
            |project| project.id == id,
            |project| {
                ok(&project
                    .reservations
                    .values()
                    .filter(|row| !row.management)
                    .collect::<Vec<_>>())
            },
        )
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Decision {
    /// `created` approves, `denied` refuses.
    state: ReservationState,
}

async fn decide_reservation(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    body: Bytes,
) -> Response<Body> {
    reply(parse::<ReservationId>(&id).and_then(|id| {
        let Decision { state } = read(&body)?;
        open(
            &shared,
            |project| project.reservations.contains(id),
            |project| {
                match state {
                    ReservationState::Created => project.approve(id)?,
                    ReservationState::Denied => project.deny(id)?,
                    ReservationState::Pending => {
                        return Err(ApiError::unprocessable("a reservation cannot go back to pending"));
                    }
                }
                ok(&project.reservations.get(id))
            },
        )
    }))
}

async fn list_sessions(State(shared): State<Shared>, Path(id): Path<String>) -> Response<Body> {
    reply(parse::<ProjectId>(&id).and_then(|id| {
        open(
            &shared,
            |p| p.id == id,
            |project| ok(&project.sessions.values().collect::<Vec<_>>()),
        )
    }))
}

async fn list_faults(State(shared): State<Shared>) -> Response<Body> {
    reply(ok(&shared.faults.list()))
}

async fn add_fault(State(shared): State<Shared>, body: Bytes) -> Response<Body> {
    reply(read::<FaultRule>(&body).and_then(|rule| created(&json!({ "id": shared.faults.add(rule) }))))
}

async fn add_plan(State(shared): State<Shared>, body: Bytes) -> Response<Body> {
    reply(read::<RandomPlan>(&body).and_then(|plan| created(&json!({ "id": shared.faults.plan(plan) }))))
}

async fn remove_fault(State(shared): State<Shared>, Path(id): Path<String>) -> Response<Body> {
    let removed = id.parse().is_ok_and(|id| shared.faults.remove(FaultId(id)));
    reply(if removed {
        ok(&json!({ "removed": true }))
    } else {
        Err(ApiError::NotFound)
    })
}

/// What a question about faults or the journal is limited to.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scope {
    #[serde(default)]
    project: Option<ProjectId>,
    #[serde(default)]
    since: u64,
}

type Scoped = Result<Query<Scope>, QueryRejection>;

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> Self {
        Self::BadRequest(rejection.body_text())
    }
}

/// The part of the journal that is asked for.
fn scoped(shared: &Shared, project: Option<ProjectId>) -> Journal {
    project.map_or_else(|| shared.journal.clone(), |id| shared.journal.of(id))
}

async fn clear_faults(State(shared): State<Shared>, scope: Scoped) -> Response<Body> {
    reply(scope.map_err(ApiError::from).and_then(|Query(scope)| {
        shared.faults.clear(scope.project);
        ok(&json!({ "cleared": true }))
    }))
}

async fn journal(State(shared): State<Shared>, scope: Scoped) -> Response<Body> {
    // The mark first: what comes between the two is told again, rather than lost.
    let mark = shared.journal.mark();
    reply(scope.map_err(ApiError::from).and_then(|Query(scope)| {
        let entries = scoped(&shared, scope.project).since(scope.since);
        ok(&json!({ "mark": mark, "entries": entries }))
    }))
}

async fn journal_counts(State(shared): State<Shared>, scope: Scoped) -> Response<Body> {
    let mark = shared.journal.mark();
    reply(scope.map_err(ApiError::from).and_then(|Query(scope)| {
        let counts = scoped(&shared, scope.project).counts(scope.since);
        ok(&json!({ "mark": mark, "total": counts.values().sum::<u64>(), "counts": counts }))
    }))
}
