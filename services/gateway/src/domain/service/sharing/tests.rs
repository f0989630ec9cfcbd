use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::*;

const SHARED: &str = "192.0.2.7";

/// What is different about a Service.
type Edit = fn(&mut Value);

fn service(name: &str, change: impl FnOnce(&mut Value)) -> ServiceObject {
    let mut service = json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": name,
            "annotations": { "metallb.io/allow-shared-ip": "k" },
        },
        "spec": {
            "type": "LoadBalancer", "loadBalancerIP": SHARED, "ipFamilies": ["IPv4"],
            "ports": [{ "port": name.len(), "protocol": "TCP" }],
        },
    });
    change(&mut service);
    serde_json::from_value(service).unwrap()
}

fn claimant(service: &ServiceObject, holds: bool) -> Claimant<'_> {
    Claimant { service, holds }
}

fn says(one: &ServiceObject, holds: bool, other: &ServiceObject, other_holds: bool) -> Result<usize, String> {
    let others = [claimant(other, other_holds)].into_iter();
    company(claimant(one, holds), SHARED.parse().unwrap(), others)
        .map(|sharers| sharers.len())
        .map_err(|refusal| refusal.reason)
}

/// Same namespace, same key, ports apart.
#[test]
fn who_may_share_shares() {
    let other = service("bb", |_| {});
    assert_eq!(says(&service("a", |_| {}), false, &other, true), Ok(1));
    let udp = service("aa", |service| {
        service["spec"]["ports"][0]["protocol"] = json!("UDP");
    });
    assert_eq!(says(&udp, false, &other, true), Ok(1), "TCP and UDP are apart");
    let old = service("a", |service| {
        service["metadata"]["annotations"] = json!({ "metallb.universe.tf/allow-shared-ip": " k " });
    });
    assert_eq!(
        says(&old, false, &other, true),
        Ok(1),
        "the older name, and blanks"
    );
}

/// What keeps two Services apart, each with its reason; and the refusal names the other.
#[test]
fn who_may_not_share_is_told_why() {
    let other = service("bb", |_| {});
    let changes: [(&str, Edit); 6] = [
        (IN_USE, |service| service["metadata"]["annotations"] = json!({})),
        (IN_USE, |service| {
            service["metadata"]["annotations"]["metallb.io/allow-shared-ip"] = json!("other");
        }),
        (IN_USE, |service| {
            service["metadata"]["annotations"]["metallb.io/allow-shared-ip"] = json!(" ");
        }),
        (IN_USE, |service| {
            service["metadata"]["namespace"] = json!("other");
        }),
        (PORT_IN_USE, |service| {
            service["spec"]["ports"][0]["port"] = json!(2);
        }),
        (LOCAL_TRAFFIC, |service| {
            service["spec"]["externalTrafficPolicy"] = json!("Local");
        }),
    ];
    for (reason, change) in changes {
        let one = service("a", change);
        assert_eq!(says(&one, false, &other, true), Err(reason.to_owned()));
        let refusal = company(
            claimant(&one, false),
            SHARED.parse().unwrap(),
            [claimant(&other, true)].into_iter(),
        );
        assert!(refusal.unwrap_err().message.contains("default/bb"));
    }
}

/// One of two has it: who has it already, else the first by name; whichever of them is asked.
#[test]
fn exactly_one_of_two_rivals_has_it() {
    let none = |service: &mut Value| service["metadata"]["annotations"] = json!({});
    let (first, second) = (service("a", none), service("b", none));
    for (first_holds, second_holds, first_wins) in [
        (false, false, true),
        (true, false, true),
        (false, true, false),
        (true, true, true),
    ] {
        let of_first = says(&first, first_holds, &second, second_holds);
        let of_second = says(&second, second_holds, &first, first_holds);
        assert_eq!((of_first.is_ok(), of_second.is_ok()), (first_wins, !first_wins));
    }
}

#[test]
fn a_claim_is_what_is_shown_or_asked_for() {
    let address = SHARED.parse().unwrap();
    assert!(claims(&service("a", |_| {}), address));
    let shows = service("a", |service| {
        service["spec"]["loadBalancerIP"] = json!("");
        service["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": SHARED }] } });
    });
    assert!(claims(&shows, address));
    let neither = service("a", |service| {
        service["spec"]["loadBalancerIP"] = json!("192.0.2.70");
    });
    assert!(!claims(&neither, address));
}
