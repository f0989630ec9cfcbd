use pretty_assertions::assert_eq;

use super::*;

fn pools(yaml: &str) -> Vec<PoolConfig> {
    groundplane_runtime::config::parse("test", yaml).unwrap()
}

#[test]
fn every_problem_is_told_at_once_with_its_place_and_the_way_out() {
    let pools = pools(
        r#"
- name: a
  addresses: ["10.0.0.0/24", "10.1.0.9-10.1.0.1", "10.2.0.1/24", "10.3.0.1-2001:db8::1", "nonsense"]
- name: a
  addresses: ["10.0.0.128/25"]
- name: ""
  addresses: ["192.0.2.0/24"]
- name: empty
- name: out
  addresses: ["198.51.100.0/24"]
  exclude: ["203.0.113.1"]
- name: nothing
  addresses: ["203.0.113.0/24"]
  exclude: ["203.0.113.0/24"]
"#,
    );
    let problems = validate_pools(&pools);
    let told: Vec<_> = problems
        .iter()
        .map(|problem| format!("{}: {}", problem.path, problem.message))
        .collect();
    assert_eq!(
        told,
        [
            "[0].addresses[1]: range `10.1.0.9-10.1.0.1` ends before it starts; swap its ends",
            "[0].addresses[2]: `10.2.0.1/24` has host bits set; the network is `10.2.0.0/24`",
            "[0].addresses[3]: `10.3.0.1-2001:db8::1` mixes IPv4 and IPv6",
            "[0].addresses[4]: `nonsense` is not an IP address, a CIDR (`192.0.2.0/24`) or a range \
             (`192.0.2.10-192.0.2.20`)",
            "[1].name: pool `a` is there twice, first as [0]",
            "[2].name: pool must not be empty",
            "[3].addresses: no addresses",
            "[4].exclude[0]: `203.0.113.1` is outside the pool's addresses",
            "[5].addresses: every address is excluded",
        ]
    );
    assert!(problems.iter().all(|problem| !problem.help.is_empty()));
}

#[test]
fn overlapping_pools_are_refused_within_a_network_only_and_both_are_named() {
    let mut both = pools(
        r#"
- name: wide
  addresses: ["10.0.0.0/8"]
- name: narrow
  addresses: ["192.0.2.0/24", "10.9.0.0/24"]
"#,
    );
    let problems = validate_pools(&both);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].path, "[1].addresses[1]");
    assert_eq!(
        problems[0].message,
        "`10.9.0.0/24` of pool `narrow` overlaps `10.0.0.0/8` of pool `file:wide` in network `default`"
    );
    both[1].network = "blue".to_owned();
    assert_eq!(validate_pools(&both), []);
}

#[test]
fn a_good_section_has_defaults_and_refuses_unknown_keys() {
    let config: IpamConfig = groundplane_runtime::config::parse("test", "cooldown: 1m\n").unwrap();
    assert_eq!(config.cooldown, Duration::from_secs(60));
    assert_eq!(
        config.store,
        StoreConfig {
            kind: StoreKind::Redb,
            path: "ipam.redb".into()
        }
    );
    assert!(groundplane_runtime::config::parse::<IpamConfig>("test", "coolDown: 1m\n").is_err());
    let config: IpamConfig =
        groundplane_runtime::config::parse("test", "store: {kind: memory}\ncooldown: 0s\n").unwrap();
    assert_eq!(
        (config.store.kind, config.cooldown),
        (StoreKind::Memory, Duration::ZERO)
    );
}

#[test]
fn the_section_ipam_is_checked() {
    let config = IpamConfig {
        store: StoreConfig {
            kind: StoreKind::Redb,
            path: "/".into(),
        },
        cooldown: Duration::from_secs(400 * 24 * 3600),
    };
    let paths: Vec<_> = config
        .validate()
        .into_iter()
        .map(|problem| problem.path)
        .collect();
    assert_eq!(paths, ["store.path", "cooldown"]);
}
