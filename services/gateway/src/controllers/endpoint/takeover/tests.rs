//! Whose the external Service is, and what is done about it.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;

const OLD: &str = older::EQUINIX_METAL.field_managers[1];

fn entry(manager: &str, operation: &str, subresource: Option<&str>, fields: Value) -> ManagedFieldsEntry {
    ManagedFieldsEntry {
        manager: Some(manager.to_owned()),
        operation: Some(operation.to_owned()),
        api_version: Some("v1".to_owned()),
        fields_type: Some("FieldsV1".to_owned()),
        fields_v1: Some(FieldsV1(fields)),
        subresource: subresource.map(str::to_owned),
        time: None,
    }
}

fn ours() -> ManagedFieldsEntry {
    entry(names::FIELD_MANAGER, APPLY, None, json!({ "f:spec": {} }))
}

/// What the older controller wrote at this time.
fn theirs(second: i64) -> ManagedFieldsEntry {
    ManagedFieldsEntry {
        time: Some(Time(Timestamp::from_second(second).unwrap())),
        ..entry(OLD, APPLY, None, json!({ "f:spec": {} }))
    }
}

/// E75: what any of them wrote becomes ours, status and all; what others wrote stays theirs.
#[test]
fn what_an_older_controller_left_becomes_ours() {
    for old in older::ALL.into_iter().flat_map(|one| one.field_managers) {
        let people = entry(
            "kubectl",
            "Update",
            None,
            json!({ "f:metadata": { "f:labels": {} } }),
        );
        let entries = [
            entry(old, "Apply", None, json!({ "f:spec": { "f:type": {} } })),
            people.clone(),
            entry(
                old,
                "Update",
                None,
                json!({ "f:spec": { "f:ports": { ".": {} } } }),
            ),
            entry(old, "Apply", Some("status"), json!({ "f:status": {} })),
        ];
        let fields = json!({ "f:spec": { "f:type": {}, "f:ports": { ".": {} } } });
        let expected = vec![
            entry("groundplane", "Apply", None, fields),
            people,
            entry("groundplane", "Apply", Some("status"), json!({ "f:status": {} })),
        ];
        let step = Dispute::default().step(&entries, false, Instant::now());
        assert_eq!(step, Step::Take(expected), "{old}");
    }
}

#[test]
fn what_nobody_left_is_not_taken() {
    let people = entry("kubectl", "Apply", None, json!({ "f:spec": {} }));
    let step = |entries: &[_]| Dispute::default().step(entries, false, Instant::now());
    assert_eq!(step(&[people, ours()]), Step::Go);
    assert_eq!(step(&[]), Step::Go);
}

/// The other, and time.
struct Quarrel {
    dispute: Dispute,
    now: Instant,
}

impl Quarrel {
    fn after(&mut self, seconds: u64, entries: &[ManagedFieldsEntry], rival: bool) -> Step {
        self.now += Duration::from_secs(seconds);
        self.dispute.step(entries, rival, self.now)
    }

    /// As `after`: is it left alone, with news of the other, told for the first time?
    fn left(&mut self, seconds: u64, entries: &[ManagedFieldsEntry], rival: bool) -> (bool, bool) {
        match self.after(seconds, entries, rival) {
            Step::Leave(disputed) => (disputed.is_news, disputed.is_first),
            other => panic!("{other:?}"),
        }
    }
}

fn quarrel() -> Quarrel {
    Quarrel {
        dispute: Dispute::default(),
        now: Instant::now(),
    }
}

/// While one is known to run it is left alone, and people are told once.
#[test]
fn one_that_is_known_to_run_keeps_it() {
    let mut quarrel = quarrel();
    assert_eq!(quarrel.left(0, &[theirs(1)], true), (true, true));
    assert_eq!(quarrel.left(9_999, &[theirs(1)], true), (false, false));
    assert_eq!(quarrel.left(60, &[theirs(2)], true), (true, false));
    let Step::Take(entries) = quarrel.after(1, &[theirs(2)], false) else {
        panic!("it was never ours, and its controller is gone");
    };
    assert!(!is_left(&entries));
}

/// One that writes on where nobody knows of it is waited for, each time for longer.
#[test]
fn one_that_writes_on_is_waited_for_each_time_for_longer() {
    let mut quarrel = quarrel();
    assert!(matches!(quarrel.after(0, &[theirs(0)], false), Step::Take(_)));
    quarrel.dispute.taken();
    assert_eq!(quarrel.after(1, &[ours()], false), Step::Go);
    let mut first = true;
    for (at, minutes) in (1_i64..).zip([2, 4, 8, 16, 32, 60, 60]) {
        let both = [ours(), theirs(at)];
        assert_eq!(quarrel.left(1, &both, false), (true, first), "{minutes}");
        first = false;
        assert_eq!(
            quarrel.left(minutes * 60 - 1, &both, false),
            (false, false),
            "{minutes}"
        );
        assert!(
            matches!(quarrel.after(1, &both, false), Step::Take(_)),
            "{minutes}"
        );
        quarrel.dispute.taken();
        assert_eq!(quarrel.after(1, &[ours()], false), Step::Go);
    }
    // Even where it has taken all that we had.
    assert_eq!(quarrel.left(1, &[theirs(99)], false), (true, false));
}

/// A process that has just begun does not know who wrote last: it waits, too.
#[test]
fn what_two_have_written_is_waited_for() {
    let mut quarrel = quarrel();
    assert_eq!(quarrel.left(0, &[ours(), theirs(1)], false), (true, true));
    assert_eq!(
        quarrel.left(60, &[ours(), theirs(2)], false),
        (true, false),
        "it wrote meanwhile"
    );
    assert_eq!(quarrel.left(239, &[ours(), theirs(2)], false), (false, false));
    assert!(matches!(
        quarrel.after(1, &[ours(), theirs(2)], false),
        Step::Take(_)
    ));
}
