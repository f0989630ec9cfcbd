use std::os::unix::fs::PermissionsExt as _;

use groundplane_runtime::tls::identity::Validity;
use jiff::SignedDuration;
use pretty_assertions::assert_eq;

use super::authority::{text, validity, with_certificate};
use super::*;

const HOUR: SignedDuration = SignedDuration::from_hours(1);

fn terms() -> Terms {
    Terms {
        now: "2026-11-21T00:00:00Z".parse().unwrap(),
        validity: HOUR * 2_160,
        ca_validity: HOUR * 87_600,
        renew_before: HOUR * 720,
        overlap: HOUR * 24,
        rotate: false,
    }
}

fn later(hours: i32) -> Terms {
    let terms = terms();
    Terms {
        now: terms.now + HOUR * hours,
        ..terms
    }
}

fn wanted() -> Wanted {
    let hosts = ["groundplane-{service}.ns.svc".to_owned(), "::1".to_owned()];
    Wanted::new(Caller::Eip, &hosts, "groundplane")
}

/// One run over what is stored: the step that was taken, and why the leaf was issued.
fn run(authority: &mut Files, leaf: &mut Files, terms: Terms) -> (Step, Option<String>) {
    let known = Authority::read(authority).unwrap();
    let step = Authority::step(known.as_ref(), terms);
    let now = Authority::take(known, step, terms).unwrap();
    *authority = now.files();
    let why = leaf::why_not(leaf, &wanted(), &now, terms);
    if why.is_some() {
        let (cert, key) = leaf::issue(&wanted(), &now, terms).unwrap();
        leaf.insert(CERT.to_owned(), cert.into_bytes());
        leaf.insert(KEY.to_owned(), key.into_bytes());
    }
    leaf.insert(CA.to_owned(), now.bundle().into_bytes());
    (step, why)
}

fn good(files: &Files) -> Validity {
    with_certificate(&text(files, CERT).unwrap().unwrap(), validity).unwrap()
}

fn trusted(files: &Files) -> usize {
    text(files, CA)
        .unwrap()
        .unwrap()
        .matches("BEGIN CERTIFICATE")
        .count()
}

#[test]
fn a_second_run_changes_nothing() {
    let (mut authority, mut leaf) = (Files::new(), Files::new());
    let (step, why) = run(&mut authority, &mut leaf, terms());
    assert_eq!((step, why.as_deref()), (Step::Create, Some("there was none")));
    let before = (authority.clone(), leaf.clone());
    assert_eq!(run(&mut authority, &mut leaf, later(1)), (Step::Keep, None));
    assert_eq!((authority, leaf), before);
}

#[test]
fn a_leaf_is_issued_anew_when_it_runs_out_or_is_wrong() {
    let (mut authority, mut leaf) = (Files::new(), Files::new());
    run(&mut authority, &mut leaf, terms());
    assert_eq!(run(&mut authority, &mut leaf, later(2_160 - 721)).1, None);
    let why = run(&mut authority, &mut leaf, later(2_160 - 720)).1.unwrap();
    assert!(why.contains("good until 2027-02-19"), "{why}");
    let mut spoil = |change: &dyn Fn(&mut Files)| {
        change(&mut leaf);
        run(&mut authority, &mut leaf, later(2_160 - 720)).1.unwrap()
    };
    assert_eq!(spoil(&|leaf| drop(leaf.remove(KEY))), "it was not whole");
    let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let put = |leaf: &mut Files| drop(leaf.insert(KEY.to_owned(), other.clone().into_bytes()));
    assert_eq!(spoil(&put), "its certificate was not of its key");
    let rubbish = |leaf: &mut Files| drop(leaf.insert(CERT.to_owned(), b"rubbish".to_vec()));
    assert!(spoil(&rubbish).starts_with("it could not be read"));
}

#[test]
fn a_leaf_with_other_names_is_issued_anew() {
    let (mut files, mut leaf) = (Files::new(), Files::new());
    run(&mut files, &mut leaf, terms());
    let authority = Authority::read(&files).unwrap().unwrap();
    for (hosts, domain, same) in [
        (&["::1", "groundplane-eip.ns.svc"][..], "groundplane", true),
        (&["groundplane-eip.ns.svc"], "groundplane", false),
        (&["::1", "groundplane-eip.ns.svc"], "another", false),
    ] {
        let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let wanted = Wanted::new(Caller::Eip, &hosts, domain);
        let why = leaf::why_not(&leaf, &wanted, &authority, terms());
        assert_eq!(why.is_none(), same, "{why:?}");
    }
}

/// Nobody ever holds a leaf of an authority that somebody else may not have heard of for an overlap.
#[test]
fn an_authority_is_announced_used_and_forgotten_an_overlap_apart() {
    let (mut authority, mut leaf) = (Files::new(), Files::new());
    run(&mut authority, &mut leaf, terms());
    let rotate = Terms {
        rotate: true,
        ..later(1)
    };
    assert_eq!(run(&mut authority, &mut leaf, rotate), (Step::Announce, None));
    assert_eq!(trusted(&leaf), 2, "both are trusted, the old one still issues");
    assert_eq!(run(&mut authority, &mut leaf, later(24)), (Step::Keep, None));
    let asked_again = Terms {
        rotate: true,
        ..later(24)
    };
    assert_eq!(
        run(&mut authority, &mut leaf, asked_again),
        (Step::Keep, None),
        "one at a time"
    );
    let (step, why) = run(&mut authority, &mut leaf, later(25));
    assert_eq!(
        (step, why.as_deref()),
        (Step::Use, Some("the authority is another one"))
    );
    assert_eq!(trusted(&leaf), 2, "who has an old leaf yet is trusted");
    assert_eq!(run(&mut authority, &mut leaf, later(48)), (Step::Keep, None));
    assert_eq!(run(&mut authority, &mut leaf, later(49)), (Step::Forget, None));
    assert_eq!(trusted(&leaf), 1);
    assert_eq!(run(&mut authority, &mut leaf, later(50)), (Step::Keep, None));
}

/// In time for what it issues: no leaf outlives its authority.
#[test]
fn an_authority_that_runs_out_is_replaced_in_time() {
    let (mut authority, mut leaf) = (Files::new(), Files::new());
    run(&mut authority, &mut leaf, terms());
    let mut now = 0;
    let mut steps = Vec::new();
    while now < 87_600 + 100 {
        now += 24;
        let (step, _) = run(&mut authority, &mut leaf, later(now));
        let terms = later(now);
        let known = Authority::read(&authority).unwrap().unwrap();
        assert!(good(&leaf).expires <= known.expires(), "day {}", now / 24);
        assert!(good(&leaf).expires > terms.now + HOUR * 700, "day {}", now / 24);
        if step != Step::Keep {
            steps.push(step);
        }
    }
    assert_eq!(steps, [Step::Announce, Step::Use, Step::Forget]);
}

#[test]
fn an_authority_that_has_expired_or_is_damaged_is_told_from_a_good_one() {
    let (mut authority, mut leaf) = (Files::new(), Files::new());
    run(&mut authority, &mut leaf, terms());
    let mut expired = authority.clone();
    assert_eq!(
        run(&mut expired, &mut leaf.clone(), later(87_600)).0,
        Step::Create
    );
    let mut half = authority.clone();
    half.remove(KEY);
    assert!(Authority::read(&half).is_err(), "never replaced in silence");
    let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
    authority.insert(KEY.to_owned(), other.into_bytes());
    assert!(Authority::read(&authority).is_err());
}

#[test]
fn files_are_for_their_owner_alone_and_what_is_gone_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::new(dir.path().join("certs"));
    assert_eq!(folder.read("eip").unwrap(), Files::new());
    let file = |name: &str, text: &str| (name.to_owned(), text.as_bytes().to_vec());
    let first = Files::from([file(CERT, "a"), file(KEY, "b"), file("next.crt", "c")]);
    folder.write("eip", &first).unwrap();
    assert_eq!(folder.read("eip").unwrap(), first);
    let second = Files::from([file(CERT, "a"), file(KEY, "d")]);
    folder.write("eip", &second).unwrap();
    assert_eq!(folder.read("eip").unwrap(), second);
    let mode = |path: &str| {
        let metadata = std::fs::metadata(dir.path().join("certs").join(path)).unwrap();
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(
        (mode("eip"), mode("eip/tls.key"), mode("eip/tls.crt")),
        (0o700, 0o600, 0o600)
    );
}
