use pretty_assertions::assert_eq;

use super::*;

const KINDS: [ErrorKind; 14] = [
    ErrorKind::Invalid,
    ErrorKind::NotFound,
    ErrorKind::AlreadyExists,
    ErrorKind::Conflict,
    ErrorKind::Precondition,
    ErrorKind::Exhausted,
    ErrorKind::Unauthenticated,
    ErrorKind::Denied,
    ErrorKind::Unavailable,
    ErrorKind::Timeout,
    ErrorKind::Compacted,
    ErrorKind::Unsupported,
    ErrorKind::Corrupt,
    ErrorKind::Internal,
];

#[derive(Debug, thiserror::Error)]
#[error("pool `public` is out of cheese")]
struct Failure {
    kind: ErrorKind,
    source: std::io::Error,
}

impl Kinded for Failure {
    fn kind(&self) -> ErrorKind {
        self.kind
    }

    fn reason(&self) -> &'static str {
        "NO_CHEESE"
    }
}

fn failure(kind: ErrorKind) -> Failure {
    Failure {
        kind,
        source: std::io::Error::other("s3cret"),
    }
}

#[test]
fn every_kind_comes_out_as_it_went_in() {
    for kind in KINDS {
        let error = RpcError::from(status("ipam", &failure(kind), Details::default()));
        assert_eq!(error.kind, kind);
        assert_eq!(error.reason, "NO_CHEESE");
        assert_eq!(error.code, code(kind));
        let forwarded = RpcError::from(forward("eip", &error));
        assert_eq!(
            (forwarded.kind, &*forwarded.reason),
            (kind, "NO_CHEESE"),
            "passed on unchanged"
        );
    }
}

#[test]
fn no_kind_is_answered_with_unknown_and_causes_stay_inside() {
    for kind in KINDS {
        let status = status("ipam", &failure(kind), Details::default());
        assert!(!matches!(
            status.code(),
            Code::Unknown | Code::Ok | Code::Cancelled
        ));
        assert!(!status.message().contains("s3cret"));
        assert_eq!(
            status.get_error_details().error_info().unwrap().domain,
            "ipam.groundplane"
        );
    }
}

#[test]
fn a_defect_is_answered_with_a_fixed_text() {
    assert_eq!(
        status("ipam", &failure(ErrorKind::Internal), Details::default()).message(),
        "internal error"
    );
}

#[test]
fn details_go_where_their_kind_wants_them() {
    let details = || Details {
        resource: Some(("pool".into(), "public".into())),
        violations: vec![("owner.name".into(), "is empty".into())],
        retry_after: None,
        metadata: vec![("leader".into(), "http://b:1".into())],
    };
    let rich = |kind| status("ipam", &failure(kind), details()).get_error_details();
    let invalid = rich(ErrorKind::Invalid);
    assert_eq!(
        invalid.bad_request().unwrap().field_violations[0].field,
        "owner.name"
    );
    assert_eq!(invalid.resource_info().unwrap().resource_name, "public");
    assert_eq!(invalid.error_info().unwrap().metadata["leader"], "http://b:1");
    assert!(invalid.retry_info().is_none());
    assert_eq!(
        rich(ErrorKind::Exhausted).quota_failure().unwrap().violations[0].subject,
        "owner.name"
    );
    assert_eq!(
        rich(ErrorKind::Precondition)
            .precondition_failure()
            .unwrap()
            .violations[0]
            .r#type,
        "NO_CHEESE"
    );
    assert_eq!(
        rich(ErrorKind::Unavailable).retry_info().unwrap().retry_delay,
        Some(RETRY_AFTER)
    );
}

/// What tonic makes up by itself on the client's side is normalised.
#[test]
fn tonics_own_statuses_get_the_kind_that_they_mean() {
    let kind = |status: Status| RpcError::from(status).kind;
    assert_eq!(kind(Status::cancelled("Timeout expired")), ErrorKind::Timeout);
    let broken = Status::from_error(Box::new(std::io::Error::from(
        std::io::ErrorKind::ConnectionReset,
    )));
    assert_eq!(kind(broken), ErrorKind::Unavailable);
    assert_eq!(
        kind(Status::unknown("Service was not ready: closed")),
        ErrorKind::Unavailable
    );
    assert_eq!(
        kind(Status::out_of_range("decoded message length too large")),
        ErrorKind::Internal
    );
    assert_eq!(kind(Status::unknown("a server of others")), ErrorKind::Internal);
}
