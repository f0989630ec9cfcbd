//! Times, as protobuf writes them.

use jiff::Timestamp;

/// Nanoseconds of a second.
const SECOND: i32 = 1_000_000_000;

/// A time as protobuf writes it: nanoseconds count forward, before 1970, too.
pub fn timestamp(time: Timestamp) -> prost_types::Timestamp {
    let (seconds, nanos) = (time.as_second(), time.subsec_nanosecond());
    match nanos {
        0.. => prost_types::Timestamp { seconds, nanos },
        _ => prost_types::Timestamp {
            seconds: seconds - 1,
            nanos: nanos + SECOND,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_count_forward_on_both_sides_of_1970() {
        for (text, seconds, nanos) in [
            ("1970-01-01T00:00:00Z", 0, 0),
            ("1970-01-01T00:00:01.25Z", 1, 250_000_000),
            ("1969-12-31T23:59:59.75Z", -1, 750_000_000),
            ("1969-12-31T23:59:59Z", -1, 0),
            ("1969-12-31T23:59:58.999999999Z", -2, 999_999_999),
        ] {
            let written = timestamp(text.parse().unwrap());
            assert_eq!((written.seconds, written.nanos), (seconds, nanos), "{text}");
        }
    }
}
