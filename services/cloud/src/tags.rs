//! The tags by which an elastic IP is known to be a Service's: the same for every cloud whose own controller descends from the first
//! one of Equinix Metal, but for the value of `usage`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use groundplane_core::{ClusterId, Owner, OwnerKind};
use sha2::{Digest as _, Sha256};

/// All tags of the reservation of `owner`, in the order in which controllers write them. `usage` is `usage=…`.
pub(crate) fn of_owner(usage: &str, owner: &Owner) -> Vec<String> {
    vec![usage.to_owned(), service(owner), cluster(&owner.cluster)]
}

/// Those that every reservation of a cluster has.
pub(crate) fn of_cluster(usage: &str, of: &ClusterId) -> Vec<String> {
    vec![usage.to_owned(), cluster(of)]
}

fn cluster(cluster: &ClusterId) -> String {
    format!("cluster={cluster}")
}

/// `service=` and the padded base64 of SHA-256 of `namespace/name`. What that cannot say (another kind of owner, a slot) is added
/// where it is not empty, so that a Service's tag is the same for every controller.
fn service(owner: &Owner) -> String {
    let kind = if owner.kind == OwnerKind::Service {
        String::new()
    } else {
        format!("{}:", owner.kind)
    };
    let namespace = owner
        .namespace
        .as_ref()
        .map_or("", |namespace| namespace.as_str());
    let slot = if owner.slot.is_empty() {
        String::new()
    } else {
        format!("#{}", owner.slot)
    };
    let hash = Sha256::digest(format!("{kind}{namespace}/{}{slot}", owner.name).as_bytes());
    format!("service={}", STANDARD.encode(hash))
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn owner(namespace: &str, name: &str) -> Owner {
        let cluster: ClusterId = "c1".parse().unwrap();
        Owner::service(cluster, namespace.parse().unwrap(), name.parse().unwrap())
    }

    /// E35: vectors that the clouds' own controllers wrote.
    #[test]
    fn a_services_tags_are_those_of_every_controller() {
        for (namespace, name, hash) in [
            ("default", "nginx", "l7RnKS8k48oG3Qv3Pxx8FzEMj3X3E5c8JPOIzyLWWdY="),
            (
                "kube-system",
                "foo",
                "6AI0U19lNyQbe/RvRL4GrM/Dp5nGlASBBv3CX4QJmSo=",
            ),
        ] {
            assert_eq!(
                of_owner("usage=x", &owner(namespace, name)),
                [
                    "usage=x".to_owned(),
                    format!("service={hash}"),
                    "cluster=c1".to_owned()
                ]
            );
        }
        assert_eq!(
            of_cluster("usage=x", &"c1".parse().unwrap()),
            ["usage=x", "cluster=c1"]
        );
    }
}
