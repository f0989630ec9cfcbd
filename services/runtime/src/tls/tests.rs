use groundplane_core::{Clock as _, FixedClock};
use jiff::{SignedDuration, Timestamp};
use pretty_assertions::assert_eq;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::identity::Validity;
use super::reload::runs_out;
use super::testing::*;
use super::*;
use crate::Metrics;

fn der(leaf: &Leaf) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(leaf.cert.as_bytes()).unwrap()
}

#[test]
fn a_caller_is_who_the_one_uri_of_its_certificate_says() {
    let authority = Authority::new("test");
    let who = |uris: &[&str]| Identity::of(&der(&authority.leaf_with(uris, GOOD)), "groundplane").unwrap();
    for caller in Caller::EVERY {
        assert_eq!(who(&[&caller.uri("groundplane")]).caller, Some(caller));
    }
    let gateway = who(&["spiffe://groundplane/gateway"]);
    assert_eq!(gateway.name, "gateway");
    for uris in [
        &["spiffe://elsewhere/gateway"][..],
        &["spiffe://groundplane/gateway/x"],
        &["spiffe://groundplane/Gateway"],
        &["https://groundplane/gateway"],
        &["spiffe://groundplane/gateway", "spiffe://groundplane/eip"],
        &[],
    ] {
        let identity = who(uris);
        assert_eq!(identity.caller, None, "{uris:?}");
        assert!(
            !identity.name.is_empty() && identity.name != "gateway",
            "{}",
            identity.name
        );
    }
    assert!(Identity::of(&CertificateDer::from(vec![1, 2, 3]), "groundplane").is_err());
}

#[test]
fn what_is_wrong_with_a_file_names_field_and_file() {
    let authority = Authority::new("test");
    let mount = Mount::new(&authority.leaf(Caller::Ipam), &[&authority]);
    let wrong = |change: fn(&mut ServerTls)| {
        let mut files = mount.server();
        change(&mut files);
        ServerCredentials::load(&files).unwrap_err()
    };
    let error = wrong(|files| files.cert = "/nonexistent/server.pem".into());
    assert_eq!(
        error.to_string(),
        "tls_cert: cannot read `/nonexistent/server.pem`"
    );
    let error = wrong(|files| files.key.clone_from(&files.cert));
    assert!(
        matches!(error, TlsError::Content { field: "tls_key", .. }),
        "{error}"
    );
    let error = wrong(|files| files.client_ca = Some(files.key.clone()));
    assert!(
        matches!(
            error,
            TlsError::Content {
                field: "tls_client_ca",
                ..
            }
        ),
        "{error}"
    );
    let other = Mount::new(&authority.leaf(Caller::Ipam), &[&authority]);
    let mut files = mount.server();
    files.key = other.server().key;
    let error = ServerCredentials::load(&files).unwrap_err();
    assert!(matches!(error, TlsError::Pair { .. }), "{error}");
}

/// A pair of which one half is not written yet, rubbish, a missing file: the old pair stays, and is replaced once all is well.
#[test]
fn a_set_of_files_that_does_not_fit_together_is_never_used() {
    let authority = Authority::new("test");
    let (old, new) = (authority.leaf(Caller::Ipam), authority.leaf(Caller::Ipam));
    let mount = Mount::new(&old, &[&authority]);
    let server = ServerCredentials::load(&mount.server()).unwrap();
    let (metrics, clock) = (
        Metrics::new(),
        FixedClock::new("2026-11-21T00:00:00Z".parse().unwrap()),
    );
    let count = |outcome: &str| {
        let text = metrics.encode().unwrap();
        let line = format!("groundplane_tls_reloads_total{{side=\"server\",outcome=\"{outcome}\"}} ");
        text.lines()
            .find_map(|text| text.strip_prefix(&line)?.parse().ok())
            .unwrap_or(0)
    };
    let first = server.config();
    let half = Leaf {
        cert: new.cert.clone(),
        key: old.key.clone(),
    };
    let rubbish = Leaf {
        cert: "rubbish".to_owned(),
        key: new.key.clone(),
    };
    let mut failed = 0;
    for wrong in [&half, &rubbish] {
        mount.put(wrong, &[&authority]);
        failed += 1;
        for _ in 0..3 {
            server.look(metrics.tls(), &clock);
            assert!(std::sync::Arc::ptr_eq(&first, &server.config()));
        }
        assert_eq!((count("ok"), count("failed")), (0, failed), "told once");
    }
    mount.put(&new, &[]);
    server.look(metrics.tls(), &clock);
    server.look(metrics.tls(), &clock);
    assert!(
        std::sync::Arc::ptr_eq(&first, &server.config()),
        "nobody could be let in"
    );
    mount.put(&new, &[&authority]);
    server.look(metrics.tls(), &clock);
    assert!(!std::sync::Arc::ptr_eq(&first, &server.config()));
    assert_eq!((count("ok"), count("failed")), (1, failed + 1));
    let expiry = "groundplane_tls_certificate_expiry_timestamp_seconds{side=\"server\"} 4733510400";
    assert!(
        metrics.encode().unwrap().contains(expiry),
        "{}",
        metrics.encode().unwrap()
    );
}

#[test]
fn one_is_warned_when_a_fifth_of_a_certificates_life_is_left() {
    let clock = FixedClock::new(Timestamp::UNIX_EPOCH);
    let validity = Validity {
        begins: Timestamp::UNIX_EPOCH,
        expires: Timestamp::UNIX_EPOCH + SignedDuration::from_hours(100),
    };
    clock.advance(SignedDuration::from_hours(79));
    assert_eq!(runs_out(validity, clock.now()), None);
    clock.advance(SignedDuration::from_hours(2));
    assert_eq!(runs_out(validity, clock.now()), Some(false));
    clock.advance(SignedDuration::from_hours(20));
    assert_eq!(runs_out(validity, clock.now()), Some(true), "it has expired");
}
