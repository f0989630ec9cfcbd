//! What is said about a panic: where it happened and, if it is a fixed text, what it says.
//!
//! A panic's formatted text may hold anything, a secret included (`unwrap` prints the error with its fields), so only a
//! text that stood in the source is logged.

use std::panic::PanicHookInfo;

/// Logs panics instead of printing them.
pub(crate) fn hook() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, message = text(panic), "panic");
    }));
}

fn text(panic: &PanicHookInfo<'_>) -> &'static str {
    panic
        .payload()
        .downcast_ref::<&'static str>()
        .copied()
        .unwrap_or("(text withheld)")
}
