//! Answers that go wrong.

use std::io;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, Response, StatusCode};
use futures::stream;
use serde_json::{Value, json};

use super::TOTAL_COUNT;
use crate::api::Api;
use crate::cherry;
use crate::fault::{Action, StatusFault};

/// Marks a response that is never sent: the connection is closed instead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sever;

/// Closes the connection.
pub(super) fn sever() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    response.extensions_mut().insert(Sever);
    response
}

pub(super) fn is_severed(response: &Response<Body>) -> bool {
    response.extensions().get::<Sever>().is_some()
}

/// The answer that a rule wants.
pub(super) fn injected(api: Api, fault: &StatusFault) -> Response<Body> {
    let body = fault.body.clone().unwrap_or_else(|| match api {
        Api::Equinix => json!({ "errors": ["injected"] }),
        Api::Cherry => cherry::refusal(fault.status, "injected"),
    });
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(fault.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = fault.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(reset) = fault.reset {
        headers.insert("x-ratelimit-remaining", HeaderValue::from(0));
        headers.insert("x-ratelimit-reset", HeaderValue::from(reset));
    }
    response
}

/// Spoils the answer to a call that was worked on.
pub(super) async fn spoil(api: Api, response: Response<Body>, action: Action) -> Response<Body> {
    match action {
        Action::StatusAfter(fault) => injected(api, &fault),
        Action::HangAfter => std::future::pending().await,
        Action::DropAfter => sever(),
        Action::HalfBody => half(response).await,
        Action::MissingItems { count } => shorten(response, count).await,
        Action::MalformedJson => garble(response).await,
        // Dealt with before the call.
        Action::Status(_) | Action::Latency { .. } | Action::Hang | Action::DropBefore => response,
    }
}

/// The whole body. It was made in memory, so reading it cannot fail.
async fn whole(body: Body) -> Bytes {
    to_bytes(body, usize::MAX).await.unwrap_or_default()
}

/// Announces all of the body and sends half of it.
async fn half(response: Response<Body>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    let body = whole(body).await;
    if body.is_empty() {
        return sever();
    }
    parts
        .headers
        .insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    let first = body.slice(..body.len() / 2);
    let chunks = stream::unfold(Some(first), |left| async move {
        if let Some(chunk) = left {
            return Some((Ok(chunk), None));
        }
        // The first half goes out while we are not ready.
        tokio::task::yield_now().await;
        Some((Err(io::Error::from(io::ErrorKind::ConnectionAborted)), None))
    });
    Response::from_parts(parts, Body::from_stream(chunks))
}

async fn replace(response: Response<Body>, edit: impl FnOnce(Bytes) -> Vec<u8>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    parts.headers.remove(CONTENT_LENGTH);
    let body = edit(whole(body).await);
    Response::from_parts(parts, Body::from(body))
}

/// Leaves out the last objects of a list, whichever way the list says how long it is.
async fn shorten(mut response: Response<Body>, count: usize) -> Response<Body> {
    let whole = whole(std::mem::take(response.body_mut())).await;
    let Ok(mut value) = serde_json::from_slice::<Value>(&whole) else {
        return replace(response.map(|_| Body::from(whole)), Into::into).await;
    };
    let mut missing = 0;
    let mut cut = |items: &mut Vec<Value>| {
        missing = count.min(items.len());
        items.truncate(items.len() - missing);
    };
    if let Some(items) = value.as_array_mut() {
        cut(items);
    }
    for list in ["devices", "ip_addresses", "bgp_sessions", "bgp_neighbors"] {
        if let Some(items) = value.get_mut(list).and_then(Value::as_array_mut) {
            cut(items);
        }
    }
    if let Some(total) = value.pointer_mut("/meta/total") {
        *total = json!(total.as_u64().unwrap_or(0).saturating_sub(missing as u64));
    }
    let told = response.headers().get(TOTAL_COUNT);
    if let Some(total) = told.and_then(|text| text.to_str().ok()?.parse::<usize>().ok()) {
        let total = HeaderValue::from(total.saturating_sub(missing));
        response.headers_mut().insert(TOTAL_COUNT, total);
    }
    replace(response, |_| value.to_string().into_bytes()).await
}

/// Ends the JSON in the middle, with what a proxy might have put there.
async fn garble(response: Response<Body>) -> Response<Body> {
    replace(response, |body| {
        [&body[..body.len() / 2], b"<html>Bad Gateway</html>"].concat()
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_shortened_page_says_that_it_is_complete() {
        let page = json!({ "devices": [1, 2, 3], "meta": { "total": 13 } });
        let response = shorten(Response::new(Body::from(page.to_string())), 2).await;
        let value: Value = serde_json::from_slice(&whole(response.into_body()).await).unwrap();
        assert_eq!(value, json!({ "devices": [1], "meta": { "total": 11 } }));
    }

    #[tokio::test]
    async fn a_shortened_list_without_meta_tells_so_in_its_header() {
        let mut response = Response::new(Body::from("[1,2,3]"));
        response.headers_mut().insert(TOTAL_COUNT, HeaderValue::from(13));
        let response = shorten(response, 2).await;
        assert_eq!(response.headers()[TOTAL_COUNT], "11");
        assert_eq!(whole(response.into_body()).await, "[1]");
    }
}
