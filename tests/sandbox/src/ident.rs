//! Ids that repeat from run to run: made from a seed, a kind and a counter, never from chance.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }

        impl From<$name> for Uuid {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
    };
}

id!(
    /// A project: what a token opens, and what every other object belongs to.
    ProjectId
);
id!(
    /// A machine.
    DeviceId
);
id!(
    /// A reservation of one address or of a block.
    ReservationId
);
id!(
    /// An address on a machine. Also the id of the machine's own addresses.
    AssignmentId
);
id!(
    /// A BGP session of one machine in one family.
    SessionId
);

/// What an id is for. Each kind counts for itself, so that devices keep their ids whatever happens to
/// addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Device,
    Reservation,
    Assignment,
    Session,
    BgpConfig,
    Vrf,
}

const KINDS: usize = 6;

/// The ids of one project, in order.
#[derive(Debug)]
pub(crate) struct IdSource {
    seed: u64,
    counters: [u64; KINDS],
}

impl IdSource {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            counters: [0; KINDS],
        }
    }

    pub(crate) fn next(&mut self, kind: Kind) -> Uuid {
        let place = kind as usize;
        let number = self.counters[place];
        self.counters[place] += 1;
        uuid_of(mix(self.seed ^ mix(place as u64 + 1)), number)
    }
}

/// The uuid with this number in the sequence of `seed`.
pub(crate) fn uuid_of(seed: u64, number: u64) -> Uuid {
    let high = mix(seed ^ mix(number));
    let low = mix(high ^ seed.rotate_left(17) ^ number);
    let bytes = ((u128::from(high) << 64) | u128::from(low)).to_be_bytes();
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

/// Spreads the bits of a number (the finaliser of splitmix64): a one-to-one mapping, so that distinct numbers
/// stay distinct.
pub(crate) fn mix(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A number for a text, the same in every run (FNV-1a, then spread).
pub(crate) fn digest(seed: u64, bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ mix(seed);
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    mix(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_repeat_for_a_seed_and_differ_between_seeds_and_kinds() {
        let take = |seed| {
            let mut ids = IdSource::new(seed);
            (
                ids.next(Kind::Device),
                ids.next(Kind::Device),
                ids.next(Kind::Reservation),
            )
        };
        assert_eq!(take(7), take(7));
        let (a, b, c) = take(7);
        let (d, ..) = take(8);
        assert_eq!(HashSet::from([a, b, c, d]).len(), 4);
        assert_eq!(a.get_version_num(), 4);
    }

    #[test]
    fn a_device_keeps_its_id_whatever_else_was_made_before() {
        let mut plain = IdSource::new(1);
        let mut busy = IdSource::new(1);
        for _ in 0..10 {
            busy.next(Kind::Reservation);
        }
        assert_eq!(plain.next(Kind::Device), busy.next(Kind::Device));
    }
}
