use serde_json::{Value, json};

use super::*;

#[allow(clippy::needless_pass_by_value, reason = "called with json! in place")]
fn service(status: Value) -> ServiceObject {
    serde_json::from_value(json!({
        "metadata": { "name": "web", "namespace": "default", "uid": "u1" },
        "spec": { "type": "LoadBalancer", "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack" },
        "status": status,
    }))
    .unwrap()
}

/// S8: only addresses, host names and modes make a difference.
#[test]
fn what_makes_a_status_different() {
    let held: Vec<IpAddr> = vec!["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()];
    let says = |ingress: Value| {
        status_says(
            &service(json!({ "loadBalancer": { "ingress": ingress } })),
            &held,
            false,
        )
    };
    let (v4, v6) = (
        json!({ "ip": "192.0.2.7", "ipMode": "VIP" }),
        json!({ "ip": "2001:db8::7", "ipMode": "VIP" }),
    );
    assert!(says(json!([v4, v6])));
    assert!(says(json!([v6, v4])), "order is left to whoever else writes it");
    assert!(
        says(json!([{ "ip": "192.0.2.7", "ports": [{ "port": 80, "protocol": "TCP" }] }, v6])),
        "ports"
    );
    assert!(
        says(json!([v4, { "ip": "2001:DB8:0::7" }])),
        "the same address in other words"
    );
    assert!(!says(json!([v4])));
    assert!(!says(json!([])));
    assert!(!says(json!([v4, v6, { "ip": "192.0.2.8" }])));
    assert!(!says(json!([v4, v4])));
    assert!(!says(json!([v4, { "ip": "2001:db8::7", "ipMode": "Proxy" }])));
    assert!(!says(
        json!([v4, { "ip": "2001:db8::7", "hostname": "a.example" }])
    ));
    let proxy = service(json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.7", "ipMode": "Proxy" }] } }));
    assert!(
        status_says(&proxy, &held[..1], true),
        "the mode of an adopted address is its giver's"
    );
}
