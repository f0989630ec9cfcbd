//! Places where a test can kill the process, as `kill -9` would: between each two steps of journey 1, and of a takeover.
//!
//! `GROUNDPLANE_FAILPOINT=service.after-ensure` aborts the process the first time that it comes by. Compiled always, so that
//! what is tested is what is shipped; without the variable, passing a point costs one load.

use std::sync::OnceLock;

use tracing::error;

/// The environment variable that arms one point.
const VARIABLE: &str = "GROUNDPLANE_FAILPOINT";

/// A gap between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// The finalizer is there; no address was asked for.
    AfterFinalizer,
    /// The address is held; nobody was told.
    AfterEnsure,
    /// The announcer knows; the status does not say it.
    AfterAnnounce,
    /// The status says it; no event was sent.
    AfterStatus,
    /// The announcer was told to stop; the address is still held.
    ReleaseAfterAnnounce,
    /// The address is free; the status still names it.
    ReleaseAfterRelease,
    /// The status is empty; the finalizer is still there.
    ReleaseAfterStatus,
    /// A Service has the reservation that a person gave it; nobody was told, and others wait for theirs.
    TakeoverAfterGive,
}

impl Point {
    const ALL: [Self; 8] = [
        Self::AfterFinalizer,
        Self::AfterEnsure,
        Self::AfterAnnounce,
        Self::AfterStatus,
        Self::ReleaseAfterAnnounce,
        Self::ReleaseAfterRelease,
        Self::ReleaseAfterStatus,
        Self::TakeoverAfterGive,
    ];

    /// The value of the variable that arms it.
    const fn name(self) -> &'static str {
        match self {
            Self::AfterFinalizer => "service.after-finalizer",
            Self::AfterEnsure => "service.after-ensure",
            Self::AfterAnnounce => "service.after-announce",
            Self::AfterStatus => "service.after-status",
            Self::ReleaseAfterAnnounce => "service.release.after-announce",
            Self::ReleaseAfterRelease => "service.release.after-release",
            Self::ReleaseAfterStatus => "service.release.after-status",
            Self::TakeoverAfterGive => "takeover.after-give",
        }
    }

    /// The point that this text arms. The prefix `service.` may be left out.
    fn named(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|point| {
            let name = point.name();
            name == text || name.strip_prefix("service.") == Some(text)
        })
    }
}

/// Ends the process here and now, if this point is armed.
pub(crate) fn pass(point: Point) {
    static ARMED: OnceLock<Option<Point>> = OnceLock::new();
    let armed = ARMED.get_or_init(|| {
        let text = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty())?;
        let point = Point::named(&text);
        if point.is_none() {
            error!(variable = VARIABLE, value = text, "there is no such fail point");
        }
        point
    });
    if *armed == Some(point) {
        error!(point = point.name(), "aborting, as the fail point asks");
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_armed_by_its_own_name_and_by_no_other() {
        for point in Point::ALL {
            assert_eq!(Point::named(point.name()), Some(point));
        }
        assert_eq!(
            Point::named("release.after-status"),
            Some(Point::ReleaseAfterStatus)
        );
        assert_eq!(Point::named("after-everything"), None);
    }
}
