//! What a service answered, in words for the Service that waits for it: pure.

use groundplane_core::ErrorKind;
use groundplane_runtime::grpc::RpcError;

use crate::domain::service::Refusal;

impl Refusal {
    /// What a service answered.
    pub(crate) fn from_error(error: &RpcError) -> Self {
        let message = match error.kind {
            // Each try fails in other words, and the Service shall not be told anew each time.
            ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Conflict if !has_own_reason(error) => {
                return Self::new(
                    "Unavailable",
                    "The address service does not answer. It is tried again.",
                );
            }
            _ => error.message.trim_end_matches('.').to_owned(),
        };
        let message = match error.metadata.get("holder") {
            Some(holder) if !message.contains(holder.as_str()) => format!("{message} (held by {holder})"),
            _ => message,
        };
        let message = match advice(&error.reason) {
            Some(advice) => format!("{message}. {advice}"),
            None => format!("{message}."),
        };
        Self::new(camel_case(&error.reason), capitalised(&message))
    }
}

/// Reasons that a service gives for being away, and that a user can do something about.
fn has_own_reason(error: &RpcError) -> bool {
    matches!(
        &*error.reason,
        "ADOPTING" | "UNKNOWN_STORE" | "STORE_UNAVAILABLE" | "CLOUD_UNAVAILABLE" | "RATE_LIMITED"
    )
}

/// What would help, where the service does not say it by itself.
fn advice(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "ADDRESS_TAKEN" => "Ask for another address, or have its holder give it up.",
        "ADDRESS_RESERVED" => "Ask for another address, or take it out of the pool's exclusions.",
        "POOL_DRAINING" => "Name another pool, or put this one back into the configuration.",
        "POOL_NOT_FOUND" => "Name a pool that exists (`groundplane ctl pools` lists them).",
        "POOL_EXHAUSTED" => {
            "Add addresses to a pool, or delete Services that need theirs no longer. It is tried again as soon as one is free."
        }
        "QUOTA_EXCEEDED" => {
            "Raise the quota, or delete Services that need their addresses no longer. It is tried again."
        }
        "ALREADY_HOLDS" => {
            "Take the request back, or delete the Service and create it with the other address."
        }
        "UID_MISMATCH" => {
            "It is tried again once the addresses of the Service that had this name before are back."
        }
        "ADOPTING" => "It is tried again as soon as ipam knows what this cluster holds.",
        "STORE_UNAVAILABLE" | "CLOUD_UNAVAILABLE" | "RATE_LIMITED" => "It is tried again.",
        _ => return None,
    })
}

/// `OUTSIDE_POOLS` as `OutsidePools`, the form of a condition's reason.
fn camel_case(reason: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters
            .next()
            .map(|first| first.to_ascii_uppercase().to_string() + &letters.as_str().to_ascii_lowercase())
    };
    let name: String = reason
        .split('_')
        .filter_map(word)
        .filter(|word| word.chars().all(|c| c.is_ascii_alphanumeric()))
        .collect();
    if name.is_empty() {
        "Refused".to_owned()
    } else {
        name
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().to_string() + letters.as_str()
    })
}

#[cfg(test)]
mod tests;
