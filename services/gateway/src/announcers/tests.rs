use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::*;

#[allow(clippy::needless_pass_by_value, reason = "called with json! in place")]
fn service(annotations: Value, load_balancer_ip: &str) -> ServiceObject {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u1", "annotations": annotations},
        "spec": {"type": "LoadBalancer", "ipFamilies": ["IPv4"], "loadBalancerIP": load_balancer_ip},
    }))
    .unwrap()
}

/// The Service after the changes were written, as the API server would hold it.
fn written(service: &ServiceObject, changes: &Changes) -> ServiceObject {
    let mut annotations: BTreeMap<String, String> = service
        .annotations
        .iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    for (key, value) in &changes.annotations {
        match value {
            Some(value) => annotations.insert(key.clone(), value.clone()),
            None => annotations.remove(key),
        };
    }
    let ip = match &changes.load_balancer_ip {
        Change::Set(ip) => ip.clone(),
        Change::Clear => String::new(),
        Change::Keep => service.load_balancer_ip.to_string(),
    };
    self::service(json!(annotations), &ip)
}

fn addresses(text: &[&str]) -> Vec<IpAddr> {
    text.iter().map(|text| text.parse().unwrap()).collect()
}

fn set(pairs: &[(&str, &str)]) -> BTreeMap<String, Option<String>> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), Some((*value).to_owned())))
        .collect()
}

/// E35: the spec and the annotation that kube-vip reads carry the address.
#[test]
fn kube_vip_is_told_by_annotation_and_by_the_spec() {
    let fresh = service(json!({}), "");
    let changes = apply(&KubeVip, &fresh, &addresses(&["192.0.2.7"])).unwrap();
    assert_eq!(
        changes,
        Changes {
            annotations: set(&[
                ("kube-vip.io/loadbalancerIPs", "192.0.2.7"),
                (
                    "groundplane.dev/announced",
                    "kube-vip.io/loadbalancerIPs=192.0.2.7 spec.loadBalancerIP=192.0.2.7"
                ),
            ]),
            load_balancer_ip: Change::Set("192.0.2.7".to_owned()),
        }
    );
    let told = written(&fresh, &changes);
    assert_eq!(
        apply(&KubeVip, &told, &addresses(&["192.0.2.7"])),
        Ok(Changes::default()),
        "said twice"
    );
}

#[test]
fn two_families_do_not_fit_into_the_spec() {
    let changes = apply(
        &KubeVip,
        &service(json!({}), ""),
        &addresses(&["192.0.2.7", "2001:db8::7"]),
    )
    .unwrap();
    assert_eq!(changes.load_balancer_ip, Change::Keep);
    assert_eq!(
        changes.annotations,
        set(&[
            ("kube-vip.io/loadbalancerIPs", "192.0.2.7,2001:db8::7"),
            (
                "groundplane.dev/announced",
                "kube-vip.io/loadbalancerIPs=192.0.2.7,2001:db8::7"
            ),
        ])
    );
}

/// E40: what we wrote is gone after the removal, and nothing else.
#[test]
fn removal_leaves_the_service_as_it_was() {
    for announcer in all() {
        for before in [
            service(json!({}), ""),
            service(json!({"groundplane.dev/pool": "a"}), "192.0.2.7"),
        ] {
            let changes = apply(&*announcer, &before, &addresses(&["192.0.2.7"])).unwrap();
            let told = written(&before, &changes);
            assert_eq!(written(&told, &remove(&told)), before, "{}", announcer.name());
        }
    }
}

/// S2: `empty` needs no write to the Service.
#[test]
fn empty_writes_nothing() {
    let changes = apply(
        &Empty::default(),
        &service(json!({}), ""),
        &addresses(&["192.0.2.7"]),
    )
    .unwrap();
    assert!(changes.is_empty());
}

/// E35: where `empty` is to tell, it does: the one address in the spec, all of them in annotations; said once, and taken back.
#[test]
fn empty_tells_where_it_is_told_to() {
    let empty = Empty::new(&config::Empty {
        tell: vec![
            "spec.loadBalancerIP".to_owned(),
            "cherryservers.com/loadBalancerIPs".to_owned(),
        ],
    });
    let fresh = service(json!({}), "");
    let changes = apply(&empty, &fresh, &addresses(&["192.0.2.7"])).unwrap();
    assert_eq!(
        changes,
        Changes {
            annotations: set(&[
                ("cherryservers.com/loadBalancerIPs", "192.0.2.7"),
                (
                    "groundplane.dev/announced",
                    "cherryservers.com/loadBalancerIPs=192.0.2.7 spec.loadBalancerIP=192.0.2.7"
                ),
            ]),
            load_balancer_ip: Change::Set("192.0.2.7".to_owned()),
        }
    );
    let told = written(&fresh, &changes);
    assert_eq!(
        apply(&empty, &told, &addresses(&["192.0.2.7"])),
        Ok(Changes::default())
    );
    assert_eq!(written(&told, &remove(&told)), fresh);
    let two = apply(&empty, &told, &addresses(&["192.0.2.7", "2001:db8::7"])).unwrap();
    let two = written(&told, &two);
    assert_eq!(&*two.load_balancer_ip, "", "one address is not both");
    assert_eq!(
        two.annotations.get("cherryservers.com/loadBalancerIPs"),
        Some("192.0.2.7,2001:db8::7")
    );
    let users = service(json!({"cherryservers.com/loadBalancerIPs": "192.0.2.9"}), "");
    let refused = apply(&empty, &users, &addresses(&["192.0.2.7"])).unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("cherryservers.com/loadBalancerIPs says `192.0.2.9`"),
        "{refused}"
    );
}

#[test]
fn a_word_of_the_user_that_agrees_stays_the_users() {
    let user = service(json!({"kube-vip.io/loadbalancerIPs": "192.0.2.7"}), "192.0.2.7");
    assert_eq!(
        apply(&KubeVip, &user, &addresses(&["192.0.2.7"])),
        Ok(Changes::default())
    );
    assert_eq!(remove(&user), Changes::default());
}

#[test]
fn a_contradiction_is_refused_where_the_backend_would_follow_it() {
    let user = service(json!({"kube-vip.io/loadbalancerIPs": "192.0.2.9"}), "");
    let refused = apply(&KubeVip, &user, &addresses(&["192.0.2.7"])).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "kube-vip.io/loadbalancerIPs says `192.0.2.9`, which groundplane did not write, and kube-vip would announce \
         that instead of 192.0.2.7"
    );
    let spec = service(json!({}), "192.0.2.9");
    let changes = apply(&KubeVip, &spec, &addresses(&["192.0.2.7"])).unwrap();
    assert_eq!(
        changes.load_balancer_ip,
        Change::Keep,
        "kube-vip reads its annotation first"
    );
}

#[test]
fn a_field_that_somebody_changed_is_not_ours_any_more() {
    let fresh = service(json!({}), "");
    let told = written(
        &fresh,
        &apply(&KubeVip, &fresh, &addresses(&["192.0.2.7"])).unwrap(),
    );
    let edit = Changes {
        load_balancer_ip: Change::Set("192.0.2.9".to_owned()),
        ..Changes::default()
    };
    let edited = written(&told, &edit);
    assert_eq!(remove(&edited).load_balancer_ip, Change::Keep);
    assert!(!Record::of(&edited).wrote(&Field::LoadBalancerIp, Some("192.0.2.9")));
}

#[test]
fn a_new_announcer_takes_back_what_the_old_one_was_told() {
    let fresh = service(json!({}), "");
    let told = written(
        &fresh,
        &apply(&KubeVip, &fresh, &addresses(&["192.0.2.7"])).unwrap(),
    );
    let changes = apply(&Empty::default(), &told, &addresses(&["192.0.2.7"])).unwrap();
    assert_eq!(written(&told, &changes), fresh);
}

#[test]
fn our_own_word_follows_the_addresses() {
    let fresh = service(json!({}), "");
    let told = written(
        &fresh,
        &apply(&KubeVip, &fresh, &addresses(&["192.0.2.7"])).unwrap(),
    );
    let moved = written(
        &told,
        &apply(&KubeVip, &told, &addresses(&["192.0.2.8"])).unwrap(),
    );
    assert_eq!(&*moved.load_balancer_ip, "192.0.2.8");
    assert_eq!(
        moved.annotations.get("kube-vip.io/loadbalancerIPs"),
        Some("192.0.2.8")
    );
}
