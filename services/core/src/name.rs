//! Names of things, each of its own type, so that one is never passed for another. A clone shares the text.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Why a text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseNameError {
    /// Nothing there.
    #[error("{0} must not be empty")]
    Empty(&'static str),
    /// Longer than a Kubernetes object name may be.
    #[error("{0} is {1} bytes long; at most 253 are allowed")]
    TooLong(&'static str, usize),
    /// Blanks, control characters, or a slash where it would make the name ambiguous.
    #[error("{what} `{given}` must not contain {character:?}")]
    Character {
        /// Which name.
        what: &'static str,
        /// What was given.
        given: String,
        /// The first character that is not allowed.
        character: char,
    },
}

/// Checks what all names share: not empty, at most 253 bytes, no blanks or control characters, no slash.
fn check(what: &'static str, text: &str, slash: bool) -> Result<(), ParseNameError> {
    if text.is_empty() {
        return Err(ParseNameError::Empty(what));
    }
    if text.len() > 253 {
        return Err(ParseNameError::TooLong(what, text.len()));
    }
    // Nearly every name, read quickly: this is asked several times for each call.
    if text
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && (byte != b'/' || slash))
    {
        return Ok(());
    }
    let bad = |c: char| c.is_control() || c.is_whitespace() || (c == '/' && !slash);
    match text.chars().find(|c| bad(*c)) {
        Some(character) => Err(ParseNameError::Character {
            what,
            given: text.to_owned(),
            character,
        }),
        None => Ok(()),
    }
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident, $what:literal, slash: $slash:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name, as it is written.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = ParseNameError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                check($what, &text, $slash)?;
                Ok(Self(text.into()))
            }
        }

        impl std::str::FromStr for $name {
            type Err = ParseNameError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                check($what, text, $slash)?;
                Ok(Self(text.into()))
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                (*name.0).to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    )*};
}

names! {
    /// The name of a Kubernetes object, or of what stands for one.
    Name, "name", slash: false;
    /// A cluster: the UID of its `kube-system` namespace, unless configured.
    ClusterId, "cluster", slash: false;
    /// An address space in which an address is unique: a VRF, a tenant.
    NetworkName, "network", slash: false;
    /// A pool of addresses, within its source and namespace.
    PoolName, "pool", slash: false;
    /// A Kubernetes node.
    NodeName, "node", slash: false;
    /// A machine in its cloud, as Kubernetes writes it: `equinixmetal://<uuid>`, `static://<name>`.
    ProviderId, "provider id", slash: true;
}

impl Default for NetworkName {
    /// `default`: the network of everything that names none.
    fn default() -> Self {
        Self("default".into())
    }
}

impl ProviderId {
    /// The part before `://`, where there is one: which cloud this id belongs to.
    pub fn scheme(&self) -> Option<&str> {
        self.0.split_once("://").map(|(scheme, _)| scheme)
    }

    /// The part behind `://`, or all of a bare id.
    pub fn id(&self) -> &str {
        self.0.split_once("://").map_or(&*self.0, |(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_refuse_what_would_make_a_key_ambiguous() {
        assert_eq!("".parse::<PoolName>(), Err(ParseNameError::Empty("pool")));
        assert!("a/b".parse::<PoolName>().is_err());
        assert!("a b".parse::<NodeName>().is_err());
        assert!("a\u{1f}b".parse::<ClusterId>().is_err());
        assert!("x".repeat(254).parse::<Name>().is_err());
    }

    #[test]
    fn a_provider_id_has_a_scheme_unless_it_is_bare() {
        let id: ProviderId = "equinixmetal://abc".parse().unwrap();
        assert_eq!((id.scheme(), id.id()), (Some("equinixmetal"), "abc"));
        let bare: ProviderId = "abc".parse().unwrap();
        assert_eq!((bare.scheme(), bare.id()), (None, "abc"));
    }
}
