//! What is said about a panic: where it happened and, if it is a fixed text, what it says.
//!
//! A panic's formatted text may hold anything, a secret included (`unwrap` prints the error with its fields), so only a
//! text that stood in the source is logged.

use std::any::Any;

/// Stands for a text that was put together at run time.
const WITHHELD: &str = "(text withheld)";

/// Logs panics instead of printing them.
pub(crate) fn hook() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, text = text(panic.payload()), "panic");
    }));
}

pub(crate) fn text(payload: &(dyn Any + Send)) -> &'static str {
    payload
        .downcast_ref::<&'static str>()
        .copied()
        .unwrap_or(WITHHELD)
}
