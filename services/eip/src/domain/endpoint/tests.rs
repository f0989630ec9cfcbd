use proptest::prelude::*;

use super::*;

const HERE: &str = "fake://here";
const THERE: &str = "fake://there";
const ELSEWHERE: &str = "fake://elsewhere";

fn wish(decided_on: Option<&str>) -> Wish {
    Wish {
        address: "203.0.113.9".parse().unwrap(),
        to: THERE.parse().unwrap(),
        decided_on: decided_on.map(str::to_owned),
    }
}

fn start(decided_on: Option<&str>) -> Move {
    Move::new(wish(decided_on), false, None)
}

fn on(id: &str, machine: &str) -> EndpointAssignment {
    EndpointAssignment {
        id: id.to_owned(),
        machine: machine.parse().unwrap(),
    }
}

#[allow(clippy::unnecessary_wraps, reason = "what a read gives")]
fn held(assignments: &[(&str, &str)]) -> Result<Endpoint, CloudError> {
    Ok(Endpoint {
        address: "203.0.113.9".parse().unwrap(),
        assignments: assignments.iter().map(|(id, machine)| on(id, machine)).collect(),
    })
}

fn failed<T>(kind: CloudErrorKind) -> Result<T, CloudError> {
    Err(CloudError::new(kind, "call", "as told"))
}

/// The step in short: what a reader of the diagram calls it.
fn short(step: &Step) -> String {
    match step {
        Step::Read => "read".to_owned(),
        Step::Remove(id) => format!("remove {id}"),
        Step::Assign(machine) => format!("assign {machine}"),
        Step::Reassign(machine) => format!("reassign {machine}"),
        Step::Wait(_) => "wait".to_owned(),
        Step::End(End::Moved(id)) => format!("moved {id}"),
        Step::End(End::There(id)) => format!("there {id}"),
        Step::End(End::Changed(_)) => "changed".to_owned(),
        Step::End(End::Shared(all)) => format!("shared {}", all.len()),
        Step::End(End::Unreadable(error)) => format!("unreadable {:?}", error.kind),
        Step::End(End::Refused(error)) => format!("refused {:?}", error.kind),
        Step::End(End::Kept(error)) => format!("kept {:?}", error.kind),
        Step::End(End::GaveUp(error)) => format!("gave up {:?}", error.kind),
    }
}

#[test]
fn what_is_read_decides() {
    for (decided_on, assignments, expected) in [
        (Some("a1"), &[("a1", HERE)][..], "remove a1"),
        (Some("a1"), &[("a2", HERE)], "changed"),
        (Some("a1"), &[("a2", ELSEWHERE)], "changed"),
        (Some("a1"), &[("a2", THERE)], "there a2"),
        (Some("a1"), &[("a1", THERE)], "there a1"),
        (Some("a1"), &[], "assign fake://there"),
        (None, &[], "assign fake://there"),
        (None, &[("a1", HERE)], "changed"),
        (Some("a1"), &[("a1", HERE), ("a2", THERE)], "shared 2"),
        (None, &[("a1", THERE), ("a2", THERE)], "shared 2"),
    ] {
        let step = start(decided_on).read(held(assignments));
        assert_eq!(
            short(&step),
            expected,
            "decided on {decided_on:?}, read {assignments:?}"
        );
    }
}

#[test]
fn another_endpoint_is_not_moved() {
    let elsewhere = Endpoint {
        address: "203.0.113.10".parse().unwrap(),
        assignments: vec![on("a1", HERE)],
    };
    assert_eq!(short(&start(Some("a1")).read(Ok(elsewhere))), "changed");
}

#[test]
fn an_endpoint_that_cannot_be_read_is_not_moved() {
    for kind in [
        CloudErrorKind::Unavailable,
        CloudErrorKind::NotFound,
        CloudErrorKind::Refused,
    ] {
        assert_eq!(
            short(&start(Some("a1")).read(failed(kind))),
            format!("unreadable {kind:?}")
        );
    }
}

#[test]
fn a_removal_that_somebody_else_made_is_a_lost_race() {
    let mut state = start(Some("a1"));
    state.read(held(&[("a1", HERE)]));
    assert_eq!(short(&state.removed(failed(CloudErrorKind::NotFound))), "changed");
    assert!(!state.opened_a_gap());
}

#[test]
fn a_removal_without_an_answer_is_looked_for_and_a_404_after_it_is_no_lost_race() {
    let mut state = start(Some("a1"));
    state.read(held(&[("a1", HERE)]));
    assert_eq!(short(&state.removed(failed(CloudErrorKind::Timeout))), "wait");
    assert!(state.opened_a_gap() && !state.removed_for_sure());
    assert_eq!(short(&state.read(failed(CloudErrorKind::Unavailable))), "wait");
    assert_eq!(
        short(&state.read(held(&[("a1", HERE)]))),
        "remove a1",
        "it did not happen"
    );
    assert_eq!(
        short(&state.removed(failed(CloudErrorKind::NotFound))),
        "read",
        "it happened late"
    );
    assert_eq!(short(&state.read(held(&[]))), "assign fake://there");
    assert_eq!(short(&state.assigned(Ok(on("a2", THERE)))), "moved a2");
}

#[test]
fn a_removal_that_is_refused_changes_nothing() {
    let mut state = start(Some("a1"));
    state.read(held(&[("a1", HERE)]));
    assert_eq!(
        short(&state.removed(failed(CloudErrorKind::Denied))),
        "kept Denied"
    );
    assert!(!state.opened_a_gap());
}

#[test]
fn an_assignment_that_comes_second_is_read_again() {
    for (assignments, expected) in [
        (&[("a2", THERE)][..], "moved a2"),
        (&[("a2", ELSEWHERE)], "changed"),
        (&[], "assign fake://there"),
        (&[("a2", THERE), ("a3", HERE)], "shared 2"),
    ] {
        let mut state = start(Some("a1"));
        state.read(held(&[("a1", HERE)]));
        assert_eq!(short(&state.removed(Ok(()))), "assign fake://there");
        assert_eq!(
            short(&state.assigned(failed(CloudErrorKind::AlreadyExists))),
            "wait"
        );
        assert_eq!(short(&state.read(held(assignments))), expected);
    }
}

#[test]
fn an_assignment_without_an_answer_is_looked_for() {
    for kind in [
        CloudErrorKind::Timeout,
        CloudErrorKind::Unavailable,
        CloudErrorKind::RateLimited,
    ] {
        let mut state = start(None);
        state.read(held(&[]));
        assert_eq!(short(&state.assigned(failed(kind))), "wait");
        assert_eq!(short(&state.read(held(&[]))), "assign fake://there");
        assert_eq!(short(&state.assigned(failed(kind))), "wait");
        assert_eq!(short(&state.read(held(&[("a1", THERE)]))), "moved a1");
    }
}

#[test]
fn a_token_that_is_being_renewed_is_waited_for_only_in_a_gap() {
    let mut state = start(None);
    state.read(held(&[]));
    let refused = || failed(CloudErrorKind::Unauthenticated);
    assert_eq!(short(&state.assigned(refused())), "refused Unauthenticated");
    let mut state = start(Some("a1"));
    state.read(held(&[("a1", HERE)]));
    state.removed(Ok(()));
    assert_eq!(short(&state.assigned(refused())), "wait");
}

#[test]
fn what_the_target_cannot_have_goes_back() {
    for (given_back, expected) in [
        (Ok(on("a2", HERE)), "refused NotFound"),
        (failed(CloudErrorKind::NotFound), "refused NotFound"),
        (failed(CloudErrorKind::Timeout), "wait"),
        (failed(CloudErrorKind::AlreadyExists), "wait"),
    ] {
        let mut state = start(Some("a1"));
        state.read(held(&[("a1", HERE)]));
        state.removed(Ok(()));
        let step = state.assigned(failed(CloudErrorKind::NotFound));
        assert_eq!(short(&step), "assign fake://here");
        assert!(state.gave_back());
        assert_eq!(short(&state.assigned(given_back)), expected);
        assert_eq!(
            short(&state.clone().read(held(&[]))),
            "assign fake://here",
            "again"
        );
        assert_eq!(short(&state.read(held(&[("a3", ELSEWHERE)]))), "refused NotFound");
    }
    let mut state = start(None);
    state.read(held(&[]));
    let step = state.assigned(failed(CloudErrorKind::NotFound));
    assert_eq!(short(&step), "refused NotFound", "nobody to give it back to");
}

#[test]
fn nothing_is_taken_away_for_a_target_that_was_just_refused() {
    let why = CloudError::new(CloudErrorKind::NotFound, "assign", "no such machine");
    let barred = |decided_on| Move::new(wish(decided_on), false, Some(why.clone()));
    assert_eq!(
        short(&barred(Some("a1")).read(held(&[("a1", HERE)]))),
        "refused NotFound"
    );
    assert_eq!(
        short(&barred(None).read(held(&[]))),
        "assign fake://there",
        "no harm in trying"
    );
}

#[test]
fn where_the_cloud_moves_in_one_step_the_result_is_looked_at() {
    for (assignments, expected) in [
        (&[("a2", THERE)][..], "moved a2"),
        (&[("a3", ELSEWHERE)], "changed"),
        (&[], "changed"),
        (&[("a1", HERE)], "wait"),
    ] {
        let mut state = Move::new(wish(Some("a1")), true, None);
        assert_eq!(short(&state.read(held(&[("a1", HERE)]))), "reassign fake://there");
        assert_eq!(short(&state.reassigned(Ok(on("a2", THERE)))), "read");
        assert_eq!(short(&state.read(held(assignments))), expected);
    }
    let mut state = Move::new(wish(Some("a1")), true, None);
    state.read(held(&[("a1", HERE)]));
    assert_eq!(short(&state.reassigned(failed(CloudErrorKind::Timeout))), "wait");
    assert_eq!(short(&state.read(held(&[("a1", HERE)]))), "reassign fake://there");
    let refused = state.reassigned(failed(CloudErrorKind::NotFound));
    assert_eq!(short(&refused), "refused NotFound");
    assert!(!state.opened_a_gap(), "it stays where it was");
}

fn any_kind() -> impl Strategy<Value = CloudErrorKind> {
    use CloudErrorKind::{
        AlreadyExists, Denied, NotFound, QuotaExceeded, RateLimited, Refused, Timeout, Unauthenticated,
        Unavailable,
    };
    prop::sample::select(vec![
        NotFound,
        AlreadyExists,
        QuotaExceeded,
        Unauthenticated,
        Denied,
        RateLimited,
        Unavailable,
        Timeout,
        Refused,
    ])
}

/// What a cloud may say, right or wrong: who holds it, or an error.
fn any_answer() -> impl Strategy<Value = Result<Vec<(u8, u8)>, CloudErrorKind>> {
    prop_oneof![
        3 => prop::collection::vec((0..4_u8, 0..3_u8), 0..3).prop_map(Ok),
        2 => any_kind().prop_map(Err),
    ]
}

proptest! {
    /// Whatever a cloud answers: only what was decided on is removed, and nothing is assigned but right after the address was seen
    /// or made free.
    #[test]
    fn no_answer_leads_to_a_second_holder(
        atomic: bool,
        decided_on in prop::option::of(0..4_u8),
        answers in prop::collection::vec(any_answer(), 1..30),
    ) {
        let id = |number: u8| format!("a{number}");
        let machine = |number: u8| [HERE, THERE, ELSEWHERE][usize::from(number)];
        let decided = decided_on.map(id);
        let mut state = Move::new(wish(decided.as_deref()), atomic, None);
        let (mut step, mut free) = (Step::Read, false);
        for answer in answers {
            let failed = |kind| CloudError::new(kind, "call", "as told");
            let assigned = |to: &ProviderId| match &answer {
                Ok(_) => Ok(EndpointAssignment { id: "a9".to_owned(), machine: to.clone() }),
                Err(kind) => Err(failed(*kind)),
            };
            step = match step {
                Step::Read => {
                    let rows = answer.clone().map(|rows| {
                        let rows: Vec<_> = rows.into_iter().map(|(a, m)| (id(a), machine(m))).collect();
                        let rows: Vec<_> = rows.iter().map(|(a, m)| (a.as_str(), *m)).collect();
                        held(&rows).unwrap()
                    });
                    free = rows.as_ref().is_ok_and(|seen| seen.assignments.is_empty());
                    state.read(rows.map_err(failed))
                }
                Step::Wait(_) => Step::Read,
                Step::Remove(id) => {
                    prop_assert!(!atomic && Some(&id) == decided.as_ref());
                    free = answer.is_ok();
                    state.removed(answer.map(|_| ()).map_err(failed))
                }
                Step::Assign(to) => {
                    prop_assert!(free);
                    // A refusal of this machine leaves it free; anything else is looked at first.
                    free = matches!(answer, Err(kind) if !matches!(kind, CloudErrorKind::AlreadyExists | CloudErrorKind::Timeout
                        | CloudErrorKind::Unavailable | CloudErrorKind::RateLimited));
                    state.assigned(assigned(&to))
                }
                Step::Reassign(to) => {
                    prop_assert!(atomic);
                    free = false;
                    state.reassigned(assigned(&to))
                }
                Step::End(_) => break,
            };
        }
    }
}
