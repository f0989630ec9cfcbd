//! Spans of time as people say them.

use jiff::Timestamp;
use prost_types::Timestamp as ProtoTimestamp;

/// How long ago, in the largest unit that fits at least twice: `90s`, `5m`, `30h`, `12d`.
pub(crate) fn age(seconds: i64) -> String {
    match seconds.max(0) {
        s if s < 120 => format!("{s}s"),
        s if s < 120 * 60 => format!("{}m", s / 60),
        s if s < 48 * 3_600 => format!("{}h", s / 3_600),
        s => format!("{}d", s / 86_400),
    }
}

/// RFC 3339, or empty where there is none.
pub(crate) fn stamp(time: Option<&ProtoTimestamp>) -> String {
    time.and_then(|time| Timestamp::new(time.seconds, time.nanos).ok())
        .map(|time| time.to_string())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_in_the_largest_unit_that_fits_twice() {
        let ages = [
            (-3, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7_199, "119m"),
            (7_200, "2h"),
            (172_800, "2d"),
        ];
        for (seconds, text) in ages {
            assert_eq!(age(seconds), text);
        }
    }
}
