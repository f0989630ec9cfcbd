//! What an API answers when it does not do what was asked.

use axum::http::StatusCode;

/// A refusal. How it looks on the wire is each API's own business.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("Invalid authentication token")]
    Unauthorized,
    #[error("You are not authorized to view this {0}")]
    Forbidden(&'static str),
    #[error("Not found")]
    NotFound,
    #[error("{0}")]
    BadRequest(String),
    #[error("{0}")]
    Unprocessable(String),
    #[error("Rate limit exceeded")]
    RateLimited,
}

impl ApiError {
    pub(crate) fn unprocessable(text: impl Into<String>) -> Self {
        Self::Unprocessable(text.into())
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::Unprocessable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        }
    }
}
