//! Rules of the ledger, one test each; invariants under random operations are in `model`.

mod adoption;
mod cooldown;
mod model;

use std::collections::BTreeMap;
use std::sync::Arc;

use groundplane_core::{Family, Kinded as _, NetworkName, Owner, PoolSource, Prefix};
use jiff::{SignedDuration, Timestamp};
use pretty_assertions::assert_eq;

use super::*;

pub(super) const COOLDOWN: SignedDuration = SignedDuration::from_secs(300);

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).unwrap()
}

pub(super) fn owner(name: &str) -> Owner {
    Owner::service(
        "east".parse().unwrap(),
        "default".parse().unwrap(),
        name.parse().unwrap(),
    )
}

pub(super) fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

pub(super) fn pool(name: &str, addresses: &[&str]) -> PoolConfig {
    let addresses = addresses.iter().map(|text| (*text).to_owned()).collect();
    PoolConfig {
        name: name.to_owned(),
        addresses,
        ..PoolConfig::default()
    }
}

pub(super) fn put(ledger: &mut Ledger, pools: &[PoolConfig]) -> PutPoolsOutcome {
    ledger
        .put_pools(&PoolSource("file".parse().unwrap()), 0, pools)
        .unwrap()
}

pub(super) fn ledger(pools: &[PoolConfig]) -> Ledger {
    let mut ledger = Ledger::new(COOLDOWN);
    put(&mut ledger, pools);
    ledger
}

pub(super) fn v4() -> Want {
    Want::Any {
        family: Family::V4,
        length: 32,
    }
}

pub(super) fn v6() -> Want {
    Want::Any {
        family: Family::V6,
        length: 128,
    }
}

pub(super) fn ask(name: &str, wants: &[Want]) -> Ask {
    Ask {
        owner: Arc::new(owner(name)),
        uid: "".into(),
        network: NetworkName::default(),
        wanted: wants
            .iter()
            .map(|want| Wanted {
                want: *want,
                optional: false,
            })
            .collect(),
        selector: Selector::default(),
    }
}

pub(super) fn carry_out(ledger: &mut Ledger, plan: &Plan) {
    for change in &plan.changes {
        ledger.apply(change);
    }
    ledger.check().unwrap();
}

pub(super) fn give(ledger: &mut Ledger, ask: &Ask, now: Timestamp) -> Result<Vec<String>, Refusal> {
    let plan = ledger.plan_allocate(ask, now)?;
    carry_out(ledger, &plan);
    Ok(plan
        .allocations
        .iter()
        .map(|held| held.key.prefix.to_string())
        .collect())
}

pub(super) fn release(ledger: &mut Ledger, name: &str, now: Timestamp) -> usize {
    let network = NetworkName::default();
    let ask = ReleaseAsk {
        owner: owner(name),
        uid: "".into(),
        network,
        prefixes: Vec::new(),
    };
    let plan = ledger.plan_release(&ask, now);
    carry_out(ledger, &plan);
    plan.allocations.len()
}

fn refused(ledger: &Ledger, ask: &Ask) -> (&'static str, String) {
    let refusal = ledger.plan_allocate(ask, at(0)).unwrap_err();
    (refusal.reason(), refusal.to_string())
}

#[test]
fn an_owner_that_asks_again_gets_what_it_holds() {
    let mut ledger = ledger(&[pool("a", &["10.0.0.0/24", "2001:db8::/64"])]);
    let both = ask("web", &[v6(), v4()]);
    assert_eq!(
        give(&mut ledger, &both, at(0)).unwrap(),
        ["2001:db8::1/128", "10.0.0.1/32"]
    );
    assert_eq!(ledger.plan_allocate(&both, at(9)).unwrap().changes, []);
    assert_eq!(
        give(&mut ledger, &ask("web", &[v4()]), at(9)).unwrap(),
        ["10.0.0.1/32"]
    );
}

#[test]
fn edges_exclusions_and_reserved_addresses_are_given_to_nobody_who_asks_for_any() {
    let mut raw = pool("a", &["10.0.0.0/29"]);
    raw.exclude = vec!["10.0.0.2".into()];
    raw.reserved = vec!["10.0.0.1".into()];
    let mut ledger = ledger(&[raw]);
    for (name, address) in [
        ("a", "10.0.0.3/32"),
        ("b", "10.0.0.4/32"),
        ("c", "10.0.0.5/32"),
        ("d", "10.0.0.6/32"),
    ] {
        assert_eq!(give(&mut ledger, &ask(name, &[v4()]), at(0)).unwrap(), [address]);
    }
    let (reason, text) = refused(&ledger, &ask("e", &[v4()]));
    assert_eq!(reason, "POOL_EXHAUSTED");
    assert!(
        text.contains("`file:a`") && text.contains("1 more are reserved"),
        "{text}"
    );
    for edge in ["10.0.0.0", "10.0.0.7", "10.0.0.2"] {
        assert_eq!(
            refused(&ledger, &ask("e", &[Want::Exact(prefix(edge))])).0,
            "ADDRESS_RESERVED"
        );
    }
    assert_eq!(
        give(&mut ledger, &ask("e", &[Want::Exact(prefix("10.0.0.1"))]), at(0)).unwrap(),
        ["10.0.0.1/32"]
    );
    assert_eq!(release(&mut ledger, "e", at(1)), 1);
    assert_eq!(
        refused(&ledger, &ask("f", &[v4()])).0,
        "POOL_EXHAUSTED",
        "it is reserved again"
    );
}

#[test]
fn ranges_have_no_edges_and_a_pool_may_give_those_of_its_cidrs() {
    let mut all = pool("b", &["10.1.0.0/30"]);
    all.use_edge_addresses = true;
    let pools = [
        pool("a", &["10.0.0.0-10.0.0.1", "10.0.1.0/31", "10.0.2.0/32"]),
        all,
    ];
    let ledger = ledger(&pools);
    let totals: Vec<_> = ledger.pools(at(0)).iter().map(|pool| pool.total).collect();
    assert_eq!(totals, [5, 4]);
}

#[test]
fn an_exact_address_is_refused_with_the_reason_that_helps() {
    let mut secret = pool("secret", &["10.9.0.0/24"]);
    secret.namespaces = vec!["kube-system".into()];
    let mut ledger = ledger(&[pool("a", &["10.0.0.0/24"]), secret]);
    give(
        &mut ledger,
        &ask("web", &[Want::Exact(prefix("10.0.0.7"))]),
        at(0),
    )
    .unwrap();
    let exact = |text| ask("api", &[Want::Exact(prefix(text))]);
    let (reason, text) = refused(&ledger, &exact("10.0.0.7"));
    assert_eq!(
        (reason, text.as_str()),
        ("ADDRESS_TAKEN", "10.0.0.7/32 is taken by service default/web")
    );
    assert_eq!(refused(&ledger, &exact("192.0.2.1")).0, "OUTSIDE_POOLS");
    let (reason, text) = refused(&ledger, &exact("10.9.0.1"));
    assert_eq!(reason, "OUTSIDE_POOLS");
    assert!(text.contains("namespace `default`"), "{text}");
    assert_eq!(
        refused(&ledger, &ask("web", &[Want::Exact(prefix("10.0.0.8"))])).0,
        "ALREADY_HOLDS"
    );
}

#[test]
fn a_block_contains_its_addresses() {
    let mut ledger = ledger(&[pool("a", &["2001:db8::/56"])]);
    let block = Want::Any {
        family: Family::V6,
        length: 64,
    };
    // The first /64 holds the anycast address of the /56.
    assert_eq!(
        give(&mut ledger, &ask("a", &[block]), at(0)).unwrap(),
        ["2001:db8:0:1::/64"]
    );
    assert_eq!(
        refused(&ledger, &ask("b", &[Want::Exact(prefix("2001:db8:0:1::5"))])).0,
        "ADDRESS_TAKEN"
    );
    assert_eq!(
        give(&mut ledger, &ask("b", &[v6()]), at(0)).unwrap(),
        ["2001:db8::1/128"]
    );
    assert_eq!(
        refused(&ledger, &ask("c", &[Want::Exact(prefix("2001:db8::/64"))])).0,
        "ADDRESS_RESERVED"
    );
    let network = NetworkName::default();
    let holder = ledger
        .holder(&network, "2001:db8:0:1::99".parse().unwrap())
        .unwrap();
    assert_eq!(holder.owner.to_string(), "service default/a");
}

#[test]
fn pools_are_used_by_priority_then_name_and_only_by_whom_they_serve() {
    let mut low = pool("aaa", &["10.0.0.1"]);
    low.priority = -1;
    let mut labelled = pool("labelled", &["10.1.0.1"]);
    labelled.priority = 9;
    labelled.match_labels = BTreeMap::from([("tier".to_owned(), "web".to_owned())]);
    let mut explicit = pool("explicit", &["10.2.0.1"]);
    explicit.priority = 8;
    explicit.explicit_only = true;
    let mut ledger = ledger(&[
        low,
        pool("c", &["10.3.0.1"]),
        pool("b", &["10.4.0.1"]),
        labelled,
        explicit,
    ]);
    let mut web = ask("web", &[v4()]);
    web.selector.labels = BTreeMap::from([("tier".to_owned(), "web".to_owned())]);
    assert_eq!(give(&mut ledger, &web, at(0)).unwrap(), ["10.1.0.1/32"]);
    for (name, address) in [("b", "10.4.0.1/32"), ("c", "10.3.0.1/32"), ("d", "10.0.0.1/32")] {
        assert_eq!(give(&mut ledger, &ask(name, &[v4()]), at(0)).unwrap(), [address]);
    }
    assert_eq!(refused(&ledger, &ask("e", &[v4()])).0, "POOL_EXHAUSTED");
    let mut named = ask("e", &[v4()]);
    let choice = |name: &str| PoolChoice {
        source: None,
        namespace: None,
        name: name.parse().unwrap(),
    };
    named.selector.pool = Some(choice("explicit"));
    assert_eq!(give(&mut ledger, &named, at(0)).unwrap(), ["10.2.0.1/32"]);
    named.owner = owner("f").into();
    named.selector.pool = Some(choice("labelled"));
    assert_eq!(
        refused(&ledger, &named).0,
        "POOL_NOT_FOUND",
        "it serves labelled objects only"
    );
    named.selector.pool = Some(choice("nowhere"));
    assert_eq!(refused(&ledger, &named).0, "POOL_NOT_FOUND");
}

#[test]
fn a_pool_name_that_two_sources_have_must_say_which() {
    let mut ledger = ledger(&[pool("a", &["10.0.0.1"])]);
    let other = PoolSource("configmaps".parse().unwrap());
    ledger.put_pools(&other, 1, &[pool("a", &["10.0.0.2"])]).unwrap();
    let mut named = ask("web", &[v4()]);
    named.selector.pool = Some(PoolChoice {
        source: None,
        namespace: None,
        name: "a".parse().unwrap(),
    });
    assert_eq!(refused(&ledger, &named).0, "POOL_AMBIGUOUS");
    named.selector.pool.as_mut().unwrap().source = Some(other);
    assert_eq!(give(&mut ledger, &named, at(0)).unwrap(), ["10.0.0.2/32"]);
}

#[test]
fn all_or_nothing_unless_a_family_is_optional() {
    let mut ledger = ledger(&[pool("a", &["10.0.0.0/24"])]);
    let mut both = ask("web", &[v4(), v6()]);
    assert_eq!(refused(&ledger, &both).0, "POOL_NOT_FOUND");
    assert_eq!(ledger.held_by(&NetworkName::default(), &owner("web")), []);
    both.wanted[1].optional = true;
    let plan = ledger.plan_allocate(&both, at(0)).unwrap();
    carry_out(&mut ledger, &plan);
    assert_eq!(plan.allocations.len(), 1);
    assert_eq!(plan.missing[0].family, Family::V6);
    assert_eq!(plan.missing[0].refusal.reason(), "POOL_NOT_FOUND");
}

#[test]
fn an_object_of_the_same_name_does_not_inherit() {
    let mut ledger = ledger(&[pool("a", &["10.0.0.0/24"])]);
    let mut first = ask("web", &[v4()]);
    give(&mut ledger, &first, at(0)).unwrap();
    first.uid = "one".into();
    let plan = ledger.plan_allocate(&first, at(1)).unwrap();
    carry_out(&mut ledger, &plan);
    assert_eq!(&*plan.allocations[0].uid, "one", "who was not known is known now");
    first.uid = "two".into();
    assert_eq!(refused(&ledger, &first).0, "UID_MISMATCH");
    let network = NetworkName::default();
    let by = |uid: &str| ReleaseAsk {
        owner: owner("web"),
        uid: uid.into(),
        network: network.clone(),
        prefixes: Vec::new(),
    };
    assert_eq!(ledger.plan_release(&by("two"), at(2)).changes, []);
    assert_eq!(ledger.plan_release(&by("one"), at(2)).allocations.len(), 1);
}

#[test]
fn what_moves_is_never_without_a_holder() {
    let mut ledger = ledger(&[pool("a", &["10.0.0.0/24", "2001:db8::/64"])]);
    give(&mut ledger, &ask("a", &[v4(), v6()]), at(0)).unwrap();
    give(&mut ledger, &ask("c", &[v4()]), at(0)).unwrap();
    let to = |name: &str| MoveAsk {
        from: owner("a"),
        to: owner(name),
        to_uid: "new".into(),
        network: NetworkName::default(),
    };
    assert_eq!(ledger.plan_move(&to("c")).unwrap_err().reason(), "ALREADY_HOLDS");
    let plan = ledger.plan_move(&to("b")).unwrap();
    assert!(
        plan.changes
            .iter()
            .all(|change| matches!(change.new, Some(Record::Held(_))))
    );
    carry_out(&mut ledger, &plan);
    assert_eq!(plan.allocations.len(), 2);
    assert_eq!(ledger.held_by(&NetworkName::default(), &owner("a")), []);
    let again = ledger.plan_move(&to("b")).unwrap();
    assert_eq!(
        (again.allocations.len(), again.changes.len()),
        (2, 0),
        "a retry finds it done"
    );
}

#[test]
fn a_pool_that_goes_drains_and_ends_when_it_is_empty() {
    let mut ledger = ledger(&[pool("a", &["10.0.0.1-10.0.0.9"]), pool("b", &["10.1.0.1"])]);
    give(&mut ledger, &ask("web", &[v4()]), at(0)).unwrap();
    let outcome = put(&mut ledger, &[]);
    let names = |ids: &[groundplane_core::PoolId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        (names(&outcome.changed), names(&outcome.gone)),
        (vec!["file:a".into()], vec!["file:b".into()])
    );
    let status = &ledger.pools(at(0))[0];
    assert!(status.draining && status.used == 1 && status.free == 0);
    assert_eq!(refused(&ledger, &ask("api", &[v4()])).0, "POOL_DRAINING");
    assert_eq!(
        refused(&ledger, &ask("api", &[Want::Exact(prefix("10.0.0.5"))])).0,
        "POOL_DRAINING"
    );
    assert_eq!(
        give(&mut ledger, &ask("web", &[v4()]), at(1)).unwrap(),
        ["10.0.0.1/32"],
        "the holder keeps it"
    );
    assert_eq!(ledger.end_drained(), []);
    release(&mut ledger, "web", at(2));
    assert_eq!(names(&ledger.end_drained()), ["file:a"]);
    assert_eq!(ledger.pools(at(2)), []);
}

#[test]
fn a_range_that_goes_keeps_its_holders_and_comes_back_without_them() {
    let mut ledger = ledger(&[pool("a", &["10.0.0.1", "10.1.0.1-10.1.0.2"])]);
    for name in ["a", "b"] {
        give(&mut ledger, &ask(name, &[v4()]), at(0)).unwrap();
    }
    put(&mut ledger, &[pool("a", &["10.0.0.1"])]);
    let held = &ledger.held_by(&NetworkName::default(), &owner("b"))[0];
    assert_eq!(ledger.pool_of(&held.key), None);
    put(&mut ledger, &[pool("a", &["10.0.0.1", "10.1.0.1-10.1.0.2"])]);
    ledger.check().unwrap();
    assert_eq!(
        give(&mut ledger, &ask("c", &[v4()]), at(0)).unwrap(),
        ["10.1.0.2/32"]
    );
}

#[test]
fn a_source_cannot_overlap_another_and_cannot_go_back() {
    let mut ledger = ledger(&[pool("a", &["10.0.0.0/24"])]);
    let other = PoolSource("configmaps".parse().unwrap());
    let error = ledger
        .put_pools(&other, 5, &[pool("b", &["10.0.0.77"])])
        .unwrap_err();
    let PutPoolsError::Problems(problems) = error else {
        panic!("{error}")
    };
    assert!(
        problems[0]
            .message
            .contains("overlaps `10.0.0.0/24` of pool `file:a`"),
        "{problems:?}"
    );
    ledger.put_pools(&other, 5, &[]).unwrap();
    let stale = ledger.put_pools(&other, 4, &[]).unwrap_err();
    assert_eq!(stale, PutPoolsError::Stale { told: 4, last: 5 });
    ledger.put_pools(&other, 5, &[pool("b", &["10.0.1.1"])]).unwrap();
}

#[test]
fn a_change_that_is_reversed_leaves_nothing_behind() {
    let mut ledger = ledger(&[pool("a", &["10.0.0.1-10.0.0.2", "2001:db8::/64"])]);
    give(&mut ledger, &ask("a", &[v4()]), at(0)).unwrap();
    release(&mut ledger, "a", at(1));
    give(&mut ledger, &ask("b", &[v4()]), at(2)).unwrap();
    let before = ledger.networks.clone();
    let plan = ledger.plan_allocate(&ask("c", &[v4(), v6()]), at(400)).unwrap();
    carry_out(&mut ledger, &plan);
    assert_ne!(ledger.networks, before);
    for change in plan.changes.iter().rev() {
        ledger.apply(&change.reversed());
    }
    assert_eq!(ledger.networks, before);
    ledger.check().unwrap();
}

#[derive(Debug)]
struct Two;

impl Quota for Two {
    fn limit(
        &self,
        _: &groundplane_core::ClusterId,
        namespace: Option<&groundplane_core::Name>,
    ) -> Option<u64> {
        namespace
            .filter(|namespace| namespace.as_str() == "default")
            .map(|_| 2)
    }
}

#[test]
fn a_quota_is_asked_before_each_allocation() {
    let mut ledger = Ledger::new(COOLDOWN).with_quota(Box::new(Two));
    put(&mut ledger, &[pool("a", &["10.0.0.0/24", "2001:db8::/64"])]);
    give(&mut ledger, &ask("a", &[v4()]), at(0)).unwrap();
    assert_eq!(refused(&ledger, &ask("b", &[v4(), v6()])).0, "QUOTA_EXCEEDED");
    give(&mut ledger, &ask("b", &[v4()]), at(0)).unwrap();
    assert_eq!(
        give(&mut ledger, &ask("b", &[v4()]), at(0)).unwrap().len(),
        1,
        "what is held may be asked for"
    );
    let mut elsewhere = ask("c", &[v4()]);
    Arc::make_mut(&mut elsewhere.owner).namespace = Some("other".parse().unwrap());
    give(&mut ledger, &elsewhere, at(0)).unwrap();
}

#[test]
fn an_explanation_says_what_each_pool_objects_to() {
    let mut closed = pool("closed", &["10.1.0.1"]);
    closed.explicit_only = true;
    let mut ledger = ledger(&[pool("a", &["10.0.0.1"]), closed, pool("six", &["2001:db8::/64"])]);
    let explained = ledger.explain(&ask("web", &[v4()]), at(0));
    assert_eq!(explained.summary, "service default/web would get 10.0.0.1/32");
    let reasons: Vec<_> = explained
        .verdicts
        .iter()
        .map(|verdict| verdict.objection.as_ref().map(|o| o.0))
        .collect();
    assert_eq!(reasons, [None, Some("POOL_NOT_FOUND"), Some("POOL_NOT_FOUND")]);
    give(&mut ledger, &ask("api", &[v4()]), at(0)).unwrap();
    let explained = ledger.explain(&ask("web", &[v4()]), at(0));
    assert_eq!(
        explained.verdicts[0].objection.as_ref().unwrap().0,
        "POOL_EXHAUSTED"
    );
    assert!(
        explained
            .summary
            .starts_with("service default/web would get no address: no room"),
        "{explained:?}"
    );
    let explained = ledger.explain(&ask("api", &[v4()]), at(0));
    assert_eq!(explained.summary, "service default/api holds 10.0.0.1/32");
}

#[test]
fn pages_go_on_behind_a_key_across_networks() {
    let mut blue = pool("blue", &["10.0.0.1-10.0.0.2"]);
    blue.network = "blue".into();
    let mut ledger = ledger(&[pool("a", &["10.0.0.1-10.0.0.2"]), blue]);
    for name in ["a", "b"] {
        for network in ["default", "blue"] {
            let ask = Ask {
                network: network.parse().unwrap(),
                ..ask(name, &[v4()])
            };
            give(&mut ledger, &ask, at(0)).unwrap();
        }
    }
    let all: Vec<_> = ledger.allocations(None).map(|held| held.key.clone()).collect();
    assert_eq!(all.len(), 4);
    assert!(all.is_sorted());
    for (index, key) in all.iter().enumerate() {
        let rest: Vec<_> = ledger
            .allocations(Some(key))
            .map(|held| held.key.clone())
            .collect();
        assert_eq!(rest, all[index + 1..]);
    }
}
