//! Messages of `core.v1` and the values that they stand for: one conversion for every service.

use std::fmt::Display;
use std::str::FromStr;

use groundplane_core::{Family, Owner};

use crate::core::v1 as pb;

/// A field of a message that does not hold what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Which one, from the message: `cluster`.
    pub field: &'static str,
    /// What is wrong.
    pub message: String,
}

fn parse<T: FromStr<Err: Display>>(field: &'static str, text: &str) -> Result<T, FieldError> {
    text.parse().map_err(|error: T::Err| FieldError {
        field,
        message: error.to_string(),
    })
}

impl TryFrom<pb::Owner> for Owner {
    type Error = FieldError;

    fn try_from(owner: pb::Owner) -> Result<Self, FieldError> {
        let namespace = match owner.namespace.as_str() {
            "" => None,
            text => Some(parse("namespace", text)?),
        };
        Ok(Self {
            cluster: parse("cluster", &owner.cluster)?,
            kind: parse("kind", &owner.kind)?,
            namespace,
            name: parse("name", &owner.name)?,
            slot: owner.slot.into(),
        })
    }
}

impl From<&Owner> for pb::Owner {
    fn from(owner: &Owner) -> Self {
        Self {
            cluster: owner.cluster.as_str().to_owned(),
            kind: owner.kind.as_str().to_owned(),
            namespace: owner
                .namespace
                .as_ref()
                .map_or_else(String::new, |namespace| namespace.as_str().to_owned()),
            name: owner.name.as_str().to_owned(),
            slot: owner.slot.to_string(),
        }
    }
}

impl From<Family> for pb::Family {
    fn from(family: Family) -> Self {
        match family {
            Family::V4 => Self::Ipv4,
            Family::V6 => Self::Ipv6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> pb::Owner {
        pb::Owner {
            cluster: "east".to_owned(),
            kind: "service".to_owned(),
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            slot: "2".to_owned(),
        }
    }

    #[test]
    fn an_owner_is_the_same_there_and_back() {
        for namespace in ["default", ""] {
            let message = pb::Owner {
                namespace: namespace.to_owned(),
                ..message()
            };
            let owner = Owner::try_from(message.clone()).unwrap();
            assert_eq!(owner.namespace.is_none(), namespace.is_empty());
            assert_eq!(pb::Owner::from(&owner), message);
        }
    }

    #[test]
    fn the_field_that_is_wrong_is_named() {
        let wrong = |change: fn(&mut pb::Owner)| {
            let mut message = message();
            change(&mut message);
            Owner::try_from(message).unwrap_err().field
        };
        assert_eq!(wrong(|owner| owner.cluster.clear()), "cluster");
        assert_eq!(wrong(|owner| owner.kind = "no kind".to_owned()), "kind");
        assert_eq!(wrong(|owner| owner.namespace = "a b".to_owned()), "namespace");
        assert_eq!(wrong(|owner| owner.name.clear()), "name");
    }

    #[test]
    fn families_have_their_numbers() {
        assert_eq!(pb::Family::from(Family::V4), pb::Family::Ipv4);
        assert_eq!(pb::Family::from(Family::V6), pb::Family::Ipv6);
    }
}
