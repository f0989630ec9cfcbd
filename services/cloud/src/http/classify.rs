//! From what went wrong on the wire to what a caller may do about it.

use std::error::Error as _;

use serde::Deserialize;

use super::{Call, ErrorBodies};
use crate::{CloudError, CloudErrorKind};

/// Longest text of the cloud's that goes into an error.
const LONGEST_MESSAGE: usize = 300;

/// An error body that has only texts, in both of its shapes.
#[derive(Debug, Deserialize)]
struct Texts {
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    errors: Vec<String>,
}

/// An error body with a code. A gateway's `{"message": …}` is none.
#[derive(Debug, Deserialize)]
struct Coded {
    #[serde(rename = "code")]
    _code: u16,
    message: String,
}

/// The cloud's words; `None` where this is not an error body of its API.
fn words(shape: ErrorBodies, body: &[u8]) -> Option<String> {
    match shape {
        ErrorBodies::Texts => {
            let Texts { error, errors } = serde_json::from_slice(body).ok()?;
            let all: Vec<String> = error.into_iter().chain(errors).collect();
            (!all.is_empty()).then(|| all.join("; "))
        }
        ErrorBodies::Coded => {
            let Coded { message, .. } = serde_json::from_slice(body).ok()?;
            Some(message)
        }
    }
}

/// An answer with a status that is no success. `scrub` takes secrets out of the cloud's words, before these are cut.
pub(super) fn refusal(
    call: &Call,
    status: u16,
    body: &[u8],
    shape: ErrorBodies,
    scrub: &dyn Fn(&str) -> String,
) -> CloudError {
    let cut = |text: String| text.chars().take(LONGEST_MESSAGE).collect::<String>();
    let words = words(shape, body).map(|words| cut(scrub(&words)));
    let said = words.as_deref().unwrap_or_default();
    let kind = match status {
        // Which status a spent quota has is told by the first API only.
        400 | 402 | 403 | 409 | 422 if shape == ErrorBodies::Coded && is_quota(status, said) => {
            CloudErrorKind::QuotaExceeded
        }
        // Absence is proven by the API's own words only: a proxy in between, or a wrong path, says 404, too.
        404 if words.is_some() => CloudErrorKind::NotFound,
        401 => CloudErrorKind::Unauthenticated,
        403 => CloudErrorKind::Denied,
        408 => CloudErrorKind::Timeout,
        409 => CloudErrorKind::AlreadyExists,
        422 => unprocessable(said),
        429 => CloudErrorKind::RateLimited,
        404 | 500.. => CloudErrorKind::Unavailable,
        _ => CloudErrorKind::Refused,
    };
    let message = words.map_or_else(
        || format!("HTTP {status}"),
        |words| format!("HTTP {status}: {words}"),
    );
    call.error(kind, message)
}

/// Is more wanted than was agreed upon, or paid for?
fn is_quota(status: u16, words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    let limit = words.contains("limit") && (words.contains("reached") || words.contains("exceed"));
    status == 402 || limit || words.contains("quota")
}

/// 422 is a refusal for many reasons, which only its words tell apart.
fn unprocessable(words: &str) -> CloudErrorKind {
    let words = words.to_ascii_lowercase();
    if words.contains("quota") || words.contains("needs approval") || words.contains("approval required") {
        CloudErrorKind::QuotaExceeded
    } else if words.contains("already") {
        CloudErrorKind::AlreadyExists
    } else {
        CloudErrorKind::Refused
    }
}

/// No answer, or half of one.
pub(super) fn transport(call: &Call, error: reqwest::Error) -> CloudError {
    let kind = if error.is_timeout() {
        CloudErrorKind::Timeout
    } else {
        CloudErrorKind::Unavailable
    };
    let error = error.without_url();
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        message.push_str(": ");
        message.push_str(&inner.to_string());
        cause = inner.source();
    }
    call.error(kind, message)
}
