use groundplane_cloud::{Assignment, ReservationState};
use pretty_assertions::assert_eq;

use super::*;

const CLUSTER: [&str; 2] = ["usage=x", "cluster=c"];

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn owner(name: &str) -> Owner {
    Owner::service(
        "c".parse().unwrap(),
        "default".parse().unwrap(),
        name.parse().unwrap(),
    )
}

fn reservation(tags: &[&str]) -> Reservation {
    Reservation {
        id: "r".to_owned(),
        prefix: Some("192.0.2.7".parse().unwrap()),
        state: ReservationState::Ready,
        tags: strings(tags),
        assignments: Vec::new(),
        usable: true,
    }
}

fn orphan() -> Reservation {
    reservation(&["usage=x", "cluster=c", "service=gone"])
}

/// What is found of the one reservation, where there is one Service, `web`.
fn found(reservation: &Reservation, in_use: &[&str], endpoint: Option<&EndpointSelector>) -> Option<Finding> {
    let web = owner("web");
    let population = Population {
        cluster: "c".parse().unwrap(),
        owners: vec![web.clone()],
        in_use: in_use.iter().map(|text| text.parse().unwrap()).collect(),
    };
    let tags = strings(&["usage=x", "cluster=c", "service=web"]);
    let marks = Marks {
        cluster: strings(&CLUSTER),
        telling: true,
        usage: &strings(&CLUSTER[..1]),
        owner_prefix: Some("service="),
        owners: [("service=web".to_owned(), (&web, tags))].into(),
        endpoint,
    };
    let former = |tags: &[String]| tags.contains(&"usage=old".to_owned()).then_some(Former::Unsaid);
    audit(std::iter::once(reservation), &population, &marks, former).pop()
}

/// E37, E51: what is held, what is nobody's, and what is none of our business.
#[test]
fn tags_tell_whose_it_is() {
    let held = reservation(&["usage=x", "service=web", "cluster=c", "more"]);
    let of_held = found(&held, &[], None).unwrap();
    assert_eq!(
        (of_held.standing, of_held.owner),
        (Standing::Held, Some(owner("web")))
    );
    assert_eq!(found(&orphan(), &[], None).unwrap().standing, Standing::Orphan);
    for others in [
        &["usage=x", "service=gone"][..],
        &["usage=x", "cluster=other"],
        &["service=web", "cluster=other"],
        &["mine"],
        &[],
    ] {
        assert_eq!(found(&reservation(others), &[], None), None, "{others:?}");
    }
    let of_other = found(
        &reservation(&["usage=x", "service=web", "cluster=other"]),
        &[],
        None,
    )
    .unwrap();
    assert_eq!((of_other.standing, of_other.owner), (Standing::Foreign, None));
    let of_former = found(&reservation(&["usage=old", "service=web"]), &[], None).unwrap();
    assert_eq!(
        (of_former.standing, of_former.owner),
        (Standing::Former(Former::Unsaid), Some(owner("web")))
    );
}

/// E51: whatever else may explain it spares it.
#[test]
fn what_anything_explains_is_spared() {
    let standing = |change: &dyn Fn(&mut Reservation)| {
        let mut one = orphan();
        change(&mut one);
        found(&one, &[], None).unwrap().standing
    };
    assert_eq!(standing(&|_| {}), Standing::Orphan);
    assert_eq!(
        standing(&|one| one.prefix = None),
        Standing::Orphan,
        "one that waits for its address is one"
    );
    assert_eq!(standing(&|one| one.usable = false), Standing::Spared);
    let block = "192.0.2.0/28".parse().unwrap();
    assert_eq!(standing(&|one| one.prefix = Some(block)), Standing::Spared);
    assert_eq!(
        standing(&|one| one.tags = strings(&CLUSTER)),
        Standing::Spared,
        "it has no owner's tag"
    );
    let assigned = |one: &mut Reservation| {
        one.assignments = vec![Assignment {
            id: "i".to_owned(),
            machine: "m".to_owned(),
        }];
    };
    assert_eq!(standing(&assigned), Standing::Spared);
    let used = found(&orphan(), &["192.0.2.7"], None).unwrap();
    assert_eq!(used.standing, Standing::Spared);
    for endpoint in [
        EndpointSelector::Address("192.0.2.7".parse().unwrap()),
        EndpointSelector::Tag("service=gone".to_owned()),
    ] {
        let of_endpoint = found(&orphan(), &[], Some(&endpoint)).unwrap();
        assert_eq!(of_endpoint.standing, Standing::Spared, "{endpoint:?}");
    }
}
