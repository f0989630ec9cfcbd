//! Who holds an address, who held it, and the wait for the next change.

use std::net::IpAddr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answer, Shared, ok, open, parse, reply};
use crate::error::ApiError;
use crate::ident::ProjectId;

/// However long somebody wants to wait.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Question {
    address: IpAddr,
    /// Answer once the address has changed hands more often than this, or the wait is over.
    #[serde(default)]
    after: usize,
    #[serde(default)]
    wait_ms: u64,
}

pub(super) async fn holders(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    question: Result<Query<Question>, QueryRejection>,
) -> Response<Body> {
    let question = question.map(|Query(question)| question).map_err(ApiError::from);
    match parse::<ProjectId>(&id).and_then(|id| Ok((id, question?))) {
        Ok((id, question)) => reply(answer(&shared, id, &question).await),
        Err(error) => reply(Err(error)),
    }
}

async fn answer(shared: &Shared, id: ProjectId, question: &Question) -> Answer {
    let is_it = |project: &crate::cloud::ProjectState| project.id == id;
    let mut changes = open(shared, is_it, |project| Ok(project.holders.watch()))?;
    let count = || {
        open(shared, is_it, |project| {
            Ok(project.holders.of(question.address).count())
        })
    };
    let wait = async {
        loop {
            changes.mark_unchanged();
            if count()? > question.after || changes.changed().await.is_err() {
                return Ok::<_, ApiError>(());
            }
        }
    };
    let bound = Duration::from_millis(question.wait_ms).min(LONGEST_WAIT);
    if let Ok(Err(error)) = tokio::time::timeout(bound, wait).await {
        return Err(error);
    }
    open(shared, is_it, |project| {
        let log = &project.holders;
        let history: Vec<Value> = log
            .of(question.address)
            .map(|change| {
                json!({ "at_us": log.micros(change.at), "given": change.given,
                        "assignment": change.assignment, "device": change.device })
            })
            .collect();
        let holders: Vec<Value> = project
            .assignments
            .values()
            .filter(|row| !row.management && row.address == question.address)
            .map(|row| json!({ "assignment": row.id, "device": row.device }))
            .collect();
        ok(&json!({ "holders": holders, "changes": history.len(), "history": history }))
    })
}
