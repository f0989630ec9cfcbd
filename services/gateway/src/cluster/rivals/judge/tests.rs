//! Who runs, and who did.

use pretty_assertions::assert_eq;

use super::*;

/// A judge of one driver, and its time.
struct Court {
    judge: Judge,
    now: Instant,
    wall: Timestamp,
    writes: Vec<Write>,
}

fn lease(renewed: i64) -> Seen {
    Seen::Held(Renewal {
        holder: "old_1".to_owned(),
        renewed: Some(Timestamp::from_second(renewed).unwrap()),
        duration: Duration::from_secs(15),
    })
}

impl Court {
    fn new(driver: DriverName) -> Self {
        Self {
            judge: Judge::new(driver),
            now: Instant::now(),
            wall: Timestamp::from_second(1_000_000).unwrap(),
            writes: Vec::new(),
        }
    }

    /// A look so many seconds later: the lease, and no pods.
    fn after(&mut self, seconds: u64, lease: Seen) -> Verdict {
        self.look(seconds, lease, Some(0))
    }

    fn look(&mut self, seconds: u64, lease: Seen, pods: Option<i32>) -> Verdict {
        self.now += Duration::from_secs(seconds);
        let workloads = self
            .judge
            .workloads()
            .into_iter()
            .map(|one| (one, pods))
            .collect();
        let sight = Sight {
            lease,
            workloads,
            writes: Some(self.writes.clone()),
        };
        self.judge.see(sight, self.now, self.wall)
    }
}

fn stops(verdict: &Verdict) -> Vec<&str> {
    match verdict {
        Verdict::Rivals(rivals) => rivals.iter().map(|rival| rival.stop.as_str()).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cluster_without_any_is_clear_at_once() {
    assert_eq!(
        Court::new(DriverName::Equinix).after(0, Seen::Free),
        Verdict::Clear
    );
}

#[test]
fn a_lease_is_judged_by_its_renewals_and_not_by_clocks() {
    let mut court = Court::new(DriverName::Equinix);
    // By our clock it is of tomorrow, or long over: neither counts.
    assert_eq!(court.after(0, lease(1_003_000)), Verdict::Undecided);
    assert_eq!(court.after(14, lease(1_003_000)), Verdict::Undecided);
    let renewed = court.after(0, lease(1_003_002));
    assert_eq!(
        stops(&renewed),
        [
            "kubectl -n kube-system delete --ignore-not-found daemonset/cloud-provider-equinix-metal \
             deployment/cloud-provider-equinix-metal deployment/packet-cloud-controller-manager"
        ]
    );
    assert!(matches!(court.after(14, lease(1_003_002)), Verdict::Rivals(_)));
    assert_eq!(court.after(1, lease(1_003_002)), Verdict::Clear);
    // It is back.
    assert!(matches!(court.after(100, lease(1_003_117)), Verdict::Rivals(_)));
}

#[test]
fn a_lease_that_somebody_left_is_waited_out_once_and_released_ones_not_at_all() {
    let mut court = Court::new(DriverName::Cherry);
    assert_eq!(court.after(0, lease(999_990)), Verdict::Undecided);
    assert_eq!(court.after(15, lease(999_990)), Verdict::Clear);
    assert_eq!(court.after(15, Seen::Free), Verdict::Clear);
    let mut court = Court::new(DriverName::Cherry);
    // More than an hour old by any clock.
    assert_eq!(court.after(0, lease(996_000)), Verdict::Clear);
    assert!(matches!(court.after(2, lease(996_002)), Verdict::Rivals(_)));
}

#[test]
fn a_lease_that_is_taken_while_we_look_is_somebodys() {
    let mut court = Court::new(DriverName::Equinix);
    assert_eq!(court.after(0, Seen::Free), Verdict::Clear);
    assert!(matches!(court.after(10, lease(1_000_005)), Verdict::Rivals(_)));
}

#[test]
fn workloads_are_named_with_the_command_that_stops_them() {
    let mut court = Court::new(DriverName::Cherry);
    let verdict = court.look(0, Seen::Free, Some(2));
    assert_eq!(
        stops(&verdict),
        ["kubectl -n kube-system delete deployment cloud-provider-cherry"]
    );
    assert_eq!(court.after(2, Seen::Free), Verdict::Undecided);
}

/// Its workload goes at once, its pod has 30 seconds: where no lease tells that it has ended, these are waited for, and what it writes
/// meanwhile does not count as another's.
#[test]
fn a_pod_without_a_lease_has_its_time_to_end() {
    let mut court = Court::new(DriverName::Cherry);
    court.look(0, Seen::Free, Some(1));
    assert_eq!(court.after(2, Seen::Free), Verdict::Undecided);
    court.writes = vec![write("cloud-provider-cherry", 1_000_020)];
    assert_eq!(court.after(30, Seen::Free), Verdict::Undecided);
    assert_eq!(court.after(3, Seen::Free), Verdict::Clear);
    assert!(matches!(court.look(2, Seen::Free, Some(1)), Verdict::Rivals(_)));
    assert_eq!(court.after(34, Seen::Free), Verdict::Undecided);
    assert_eq!(court.after(1, Seen::Free), Verdict::Clear);
}

/// One that had renewed a lease is gone when that runs out.
#[test]
fn the_lease_tells_when_its_holder_has_ended() {
    let mut court = Court::new(DriverName::Equinix);
    court.look(0, lease(1_000_000), Some(1));
    court.look(2, lease(1_000_002), Some(1));
    assert!(matches!(court.after(2, lease(1_000_002)), Verdict::Rivals(_)));
    assert_eq!(court.after(13, lease(1_000_002)), Verdict::Clear);
}

#[test]
fn what_cannot_be_read_is_as_it_was() {
    let mut court = Court::new(DriverName::Equinix);
    assert_eq!(court.look(0, Seen::Unread, None), Verdict::Undecided);
    assert_eq!(court.look(2, Seen::Free, None), Verdict::Undecided);
    assert_eq!(court.look(2, Seen::Unread, Some(0)), Verdict::Clear);
    assert!(matches!(court.look(2, Seen::Unread, Some(1)), Verdict::Rivals(_)));
    assert!(matches!(court.look(60, Seen::Unread, None), Verdict::Rivals(_)));
    assert_eq!(court.look(35, Seen::Unread, Some(0)), Verdict::Clear);
}

fn write(manager: &'static str, at: i64) -> Write {
    Write {
        object: "Service shop/web".to_owned(),
        uid: "u".into(),
        manager,
        at: Some(Timestamp::from_second(at).unwrap()),
    }
}

/// One that runs where nobody looks is known by what it writes, with the command that finds it; not by what it wrote before we looked.
#[test]
fn who_writes_by_an_older_controllers_name_is_one() {
    let mut court = Court::new(DriverName::Equinix);
    court.writes = vec![write("packet-cloud-controller-manager", 999_999)];
    assert_eq!(court.after(0, Seen::Free), Verdict::Clear);
    court.writes = vec![write("packet-cloud-controller-manager", 1_000_001)];
    let verdict = court.after(10, Seen::Free);
    assert_eq!(
        stops(&verdict),
        [
            "kubectl get daemonsets,deployments,pods -A -o wide | grep -E 'packet-ccm|packet-cloud-controller-manager', and delete what \
             that finds"
        ]
    );
    let Verdict::Rivals(rivals) = &verdict else {
        panic!("{verdict:?}");
    };
    assert!(
        rivals[0]
            .found
            .contains("Service shop/web at 1970-01-12T13:46:41Z"),
        "{rivals:?}"
    );
    assert!(matches!(court.after(299, Seen::Free), Verdict::Rivals(_)));
    assert_eq!(court.after(1, Seen::Free), Verdict::Clear);
}

/// While its pods are there they tell more, and what it wrote at the end bars nobody.
#[test]
fn what_a_known_one_wrote_bars_nobody_when_it_is_gone() {
    let mut court = Court::new(DriverName::Equinix);
    court.look(0, Seen::Free, Some(0));
    court.writes = vec![write("cloud-provider-equinix-metal", 1_000_001)];
    let verdict = court.look(2, Seen::Free, Some(1));
    assert_eq!(
        stops(&verdict).len(),
        3,
        "a line a workload, and none for its writes"
    );
    court.writes = vec![write("cloud-provider-equinix-metal", 1_000_003)];
    assert_eq!(court.look(2, Seen::Free, Some(0)), Verdict::Undecided);
    assert_eq!(court.look(35, Seen::Free, Some(0)), Verdict::Clear);
}
