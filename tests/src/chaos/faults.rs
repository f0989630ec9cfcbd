//! What can go wrong with a call to the API server, and what that is called where it is counted.

use std::time::Duration;

use crate::kube_api::proxy::{Call, Fault, Plan};

/// So many of a thousand calls to the API server go wrong, in every way there is. `slow`: how long it takes if it takes long.
#[must_use]
pub fn api_plan(seed: u64, per_mille: u32, slow: Duration) -> Plan {
    let faults = vec![
        Fault::Status(500),
        Fault::Status(503),
        Fault::Status(409),
        Fault::Status(410),
        Fault::TooMany(1),
        Fault::Hang,
        Fault::Slow(slow),
        Fault::DropBefore,
        Fault::DropAfter,
        Fault::HalfBody,
        Fault::ErrorEvent(410),
        Fault::Cut(1),
    ];
    Plan {
        seed,
        per_mille,
        faults,
    }
}

/// What a fault of this call is called.
#[must_use]
pub fn api_fault_name(fault: Fault, call: &Call) -> &'static str {
    match (fault, call.verb) {
        (Fault::Status(409), _) => "API: conflict",
        (Fault::Status(410) | Fault::ErrorEvent(_), _) => "API: history forgotten",
        (Fault::Status(_), _) => "API: 5xx",
        (Fault::TooMany(_), _) => "API: 429 with a time",
        (Fault::Hang, _) => "API: hang",
        (Fault::Slow(_), "watch") => "API: late watch",
        (Fault::Slow(_), _) => "API: slow",
        (Fault::DropBefore, _) => "API: connection dropped",
        (Fault::DropAfter, _) => "API: answer lost",
        (Fault::HalfBody, "list") => "API: half a list",
        (Fault::HalfBody, _) => "API: half an answer",
        (Fault::Cut(_), _) => "API: watch cut",
    }
}

/// All of these names.
pub const API_FAULTS: [&str; 12] = [
    "API: conflict",
    "API: history forgotten",
    "API: 5xx",
    "API: 429 with a time",
    "API: hang",
    "API: late watch",
    "API: slow",
    "API: connection dropped",
    "API: answer lost",
    "API: half a list",
    "API: half an answer",
    "API: watch cut",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_fault_is_met_and_has_a_name() {
        let plan = api_plan(7, 1_000, Duration::from_secs(1));
        let mut met = BTreeSet::new();
        for verb in ["get", "list", "watch", "patch"] {
            let call = Call {
                verb,
                ..Call::default()
            };
            let faults = (0..200).filter_map(|nth| plan.decide(&call, nth));
            met.extend(faults.map(|fault| api_fault_name(fault, &call)));
        }
        assert_eq!(met, BTreeSet::from(API_FAULTS));
    }
}
