//! Tags that a provider replaces, or does not.

use pretty_assertions::assert_eq;

use super::*;

/// Tags tell whose an address is: those that were not kept are no success.
#[tokio::test]
async fn tags_that_a_provider_does_not_keep_are_no_success() {
    let bench = Bench::new(|_, times| match times {
        0 => Ok(write(&wire::ReplaceTagsResponse {
            reservation: Some(reservation(|row| row.tags = vec!["heir".to_owned()])),
        })),
        1 => Ok(write(&wire::ReplaceTagsResponse {
            reservation: Some(reservation(|_| {})),
        })),
        2 => Ok(write(&wire::ReplaceTagsResponse::default())),
        _ => Err(Status::not_found("it is gone")),
    })
    .await;
    assert!(!bench.remote.retags(), "before the first answer nobody knows");
    let heir = ["heir".to_owned()];
    assert_eq!(bench.remote.retag("r1", &heir).await.unwrap().tags, heir);
    assert!(bench.remote.retags());
    for kind in [
        CloudErrorKind::Unavailable,
        CloudErrorKind::Unavailable,
        CloudErrorKind::NotFound,
    ] {
        let error = bench.remote.retag("r1", &heir).await.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
    }
}

#[tokio::test]
async fn a_provider_that_replaces_no_tags_is_not_asked_to() {
    let bench = Bench::over(|_, _| {
        Ok(write(&wire::GetCapabilitiesResponse {
            replaces_tags: false,
            ..capabilities()
        }))
    })
    .await;
    let error = bench.remote.retag("r1", &[]).await.unwrap_err();
    assert_eq!(
        (error.kind, bench.calls("ReplaceTags")),
        (CloudErrorKind::Refused, 0)
    );
    assert!(!bench.remote.retags());
}
