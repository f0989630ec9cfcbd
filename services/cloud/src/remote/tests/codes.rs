//! What the provider's codes mean.

use std::time::Duration;

use groundplane_runtime::grpc::{Details, status};
use pretty_assertions::assert_eq;
use tonic::{Code, Status};

use super::super::call::{Operation, classify};
use crate::CloudErrorKind;

/// What a code means, and what its reason adds.
#[test]
fn each_code_has_its_kind() {
    #[derive(Debug, thiserror::Error)]
    #[error("no")]
    struct Said(groundplane_core::ErrorKind, &'static str);
    impl groundplane_core::Kinded for Said {
        fn kind(&self) -> groundplane_core::ErrorKind {
            self.0
        }
        fn reason(&self) -> &'static str {
            self.1
        }
    }
    let plain = Operation::read("x", "X");
    let find = plain.clone().finds();
    let make = Operation {
        reserves: true,
        ..plain.clone()
    };
    let kind = |operation: &Operation, status: Status| classify(operation, status).error.kind;
    let code = |code| Status::new(code, "no");
    for (of, kind_of) in [
        (Code::NotFound, CloudErrorKind::Refused),
        (Code::AlreadyExists, CloudErrorKind::AlreadyExists),
        (Code::ResourceExhausted, CloudErrorKind::RateLimited),
        (Code::Unauthenticated, CloudErrorKind::Unauthenticated),
        (Code::PermissionDenied, CloudErrorKind::Denied),
        (Code::Unavailable, CloudErrorKind::Unavailable),
        (Code::Aborted, CloudErrorKind::Unavailable),
        (Code::Internal, CloudErrorKind::Unavailable),
        (Code::Unknown, CloudErrorKind::Unavailable),
        (Code::DataLoss, CloudErrorKind::Unavailable),
        (Code::DeadlineExceeded, CloudErrorKind::Timeout),
        (Code::Cancelled, CloudErrorKind::Timeout),
        (Code::InvalidArgument, CloudErrorKind::Refused),
        (Code::FailedPrecondition, CloudErrorKind::Refused),
        (Code::Unimplemented, CloudErrorKind::Refused),
    ] {
        assert_eq!(kind(&plain, code(of)), kind_of, "{of:?}");
    }
    assert_eq!(kind(&find, code(Code::NotFound)), CloudErrorKind::NotFound);
    assert_eq!(
        kind(&make, code(Code::ResourceExhausted)),
        CloudErrorKind::QuotaExceeded
    );
    let exhausted = groundplane_core::ErrorKind::Exhausted;
    let away = groundplane_core::ErrorKind::Unavailable;
    let said = |kind, reason, after| {
        let details = Details {
            retry_after: after,
            ..Details::default()
        };
        status("acme", &Said(kind, reason), details)
    };
    assert_eq!(
        kind(&make, said(exhausted, "RATE_LIMITED", None)),
        CloudErrorKind::RateLimited
    );
    assert_eq!(
        kind(&plain, said(exhausted, "QUOTA_EXCEEDED", None)),
        CloudErrorKind::QuotaExceeded
    );
    let wait = Some(Duration::from_secs(7));
    let limited = classify(&plain, said(away, "RATE_LIMITED", wait)).error;
    assert_eq!(
        (limited.kind, limited.retry_after),
        (CloudErrorKind::RateLimited, wait)
    );
}
