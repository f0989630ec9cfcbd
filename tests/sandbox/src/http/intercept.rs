//! What happens to every call of the API before and after it is worked on: it is written down, may go wrong, is
//! counted, and must be allowed.

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{MatchedPath, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Request, Response};
use axum::middleware::Next;
use serde_json::Value;

use super::spoil::{self, injected, sever};
use super::{Shared, respond};
use crate::api::Api;
use crate::cloud::{Access, Allowance};
use crate::error::ApiError;
use crate::fault::{Action, CallView, Verdict};
use crate::ident::ProjectId;
use crate::journal::{Entry, Open};

/// The longest request body that is read.
const MOST_BODY: usize = 1 << 20;

pub(super) async fn intercept(
    State(shared): State<Shared>,
    request: Request<Body>,
    next: Next,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let api = Api::of(parts.uri.path());
    let Ok(body) = to_bytes(body, MOST_BODY).await else {
        return respond(api.refuse(&ApiError::BadRequest("the body cannot be read".to_owned())));
    };
    let access = access(&shared, api, &parts.headers);
    let (open, verdict) = begin(&shared, api, access, &parts, &body);
    if !verdict.latency.is_zero() {
        tokio::time::sleep(verdict.latency).await;
    }
    let response = match verdict.action {
        Some(Action::Status(fault)) => injected(api, &fault),
        Some(Action::Hang) => std::future::pending().await,
        Some(Action::DropBefore) => sever(),
        after => {
            let request = Request::from_parts(parts, Body::from(body));
            let response = process(&shared, api, access, request, next).await;
            match after {
                Some(action) => spoil::spoil(api, response, action).await,
                None => response,
            }
        }
    };
    open.finish((!spoil::is_severed(&response)).then(|| response.status().as_u16()));
    response
}

/// Writes it down, and decides what goes wrong.
fn begin(shared: &Shared, api: Api, access: Option<Access>, parts: &Parts, body: &Bytes) -> (Open, Verdict) {
    let route = route(api, parts);
    let path = parts
        .uri
        .path_and_query()
        .map_or("", |path| path.as_str())
        .to_owned();
    let project = project_of(shared, api, access, parts);
    let open = shared.journal.begin(Entry {
        sequence: 0,
        project,
        method: parts.method.to_string(),
        route: route.clone(),
        path: path.clone(),
        status: None,
        fault: None,
        duration_us: None,
        body: (!body.is_empty()).then(|| readable(body)),
    });
    let verdict = shared.faults.decide(&CallView {
        project,
        method: parts.method.as_str(),
        route: &route,
        path: &path,
        body,
    });
    if let Some(name) = verdict.name() {
        open.fault(&name);
    }
    (open, verdict)
}

/// The call itself, for whoever may make it and has not made too many.
async fn process(
    shared: &Shared,
    api: Api,
    access: Option<Access>,
    mut request: Request<Body>,
    next: Next,
) -> Response<Body> {
    let Some(access) = access else {
        return respond(api.refuse(&ApiError::Unauthorized));
    };
    let allowance = match access {
        Access::Account => None,
        Access::Project(id) => {
            let now = shared.clock.now();
            shared
                .cloud
                .lock()
                .project(id)
                .and_then(|project| project.count_call(now))
        }
    };
    let mut response = if allowance.is_some_and(|allowance| allowance.refuse) {
        respond(api.refuse(&ApiError::RateLimited))
    } else {
        request.extensions_mut().insert(access);
        next.run(request).await
    };
    if let Some(allowance) = allowance {
        tell(response.headers_mut(), allowance);
    }
    response
}

fn tell(headers: &mut HeaderMap, allowance: Allowance) {
    headers.insert("x-ratelimit-limit", HeaderValue::from(allowance.limit));
    headers.insert("x-ratelimit-remaining", HeaderValue::from(allowance.remaining));
    headers.insert("x-ratelimit-reset", HeaderValue::from(allowance.reset));
}

fn access(shared: &Shared, api: Api, headers: &HeaderMap) -> Option<Access> {
    let token = api.token(headers)?;
    shared.cloud.lock().access(token)
}

/// The route below the base; `-` where there is none.
fn route(api: Api, parts: &Parts) -> String {
    parts
        .extensions
        .get::<MatchedPath>()
        .and_then(|path| path.as_str().strip_prefix(api.base()))
        .unwrap_or("-")
        .to_owned()
}

/// The project of the token; with an account's token, or none that is known, the one in the path.
fn project_of(shared: &Shared, api: Api, access: Option<Access>, parts: &Parts) -> Option<ProjectId> {
    if let Some(Access::Project(id)) = access {
        return Some(id);
    }
    let below = parts.uri.path().strip_prefix(api.base())?;
    let id = below.strip_prefix("/projects/")?.split('/').next()?;
    match api {
        Api::Equinix => id.parse().ok(),
        Api::Cherry => shared.cloud.lock().numbered(id.parse().ok()?),
    }
}

fn readable(body: &Bytes) -> Value {
    serde_json::from_slice(body).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(body).into_owned()))
}
