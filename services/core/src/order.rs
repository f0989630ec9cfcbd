//! An order that everybody computes alike.

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// The place of `name` in the order of `within`; the lowest is the first. The same on every machine and in every version, so that who sees the
/// same chooses the same without a word; another one `within` has another order, so that not all go to the first by name.
///
/// FNV-1a of 64 bits over both with a byte 0xff between, and the final mix of `SplitMix64`, since FNV alone leaves names that differ in their
/// last letter next to each other.
pub fn place(within: &str, name: &str) -> u64 {
    let bytes = within.bytes().chain([0xff]).chain(name.bytes());
    let mut hash = bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    hash ^= hash >> 30;
    hash = hash.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash ^= hash >> 27;
    hash = hash.wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes of two versions must agree, so these numbers never change.
    #[test]
    fn the_place_is_the_same_for_ever() {
        assert_eq!(place("192.0.2.1:6443", "a"), 12_393_469_337_377_545_527);
        assert_eq!(place("[2001:db8::1]:6443", "node-1"), 8_398_129_468_785_778_775);
    }
}
