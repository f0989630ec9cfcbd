//! For tests: what is told of secrets, in logs and by values.

use std::fmt::Debug;
use std::io;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tracing::Dispatch;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::CloudError;

/// A listener that is never gone. Where there is but one, a place in the code that another test reaches first, where nobody listens,
/// is taken to interest nobody.
static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));

/// Everything that was logged, events and spans of every crate, at the finest level.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    /// Begins to listen, until the guard is dropped.
    pub(crate) fn begin() -> (Self, DefaultGuard) {
        LazyLock::force(&ANOTHER);
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::TRACE)
            .with_span_events(FmtSpan::FULL)
            .with_ansi(false)
            .with_writer(log.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }
}

/// What is told of an outcome, to people and to developers.
pub(crate) fn told<T: Debug>(outcome: Result<T, CloudError>) -> String {
    match outcome {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("{error:?} {error}"),
    }
}

/// Fails where one of these secrets, or what a cut would have left of it, is in the text.
pub(crate) fn check(what: &str, text: &str, secrets: &[&str]) {
    for secret in secrets {
        let left = &secret[..secret.len().min(8)];
        let line = text.lines().find(|line| line.contains(left));
        assert_eq!(line, None, "{what} shows {left}…");
    }
}
