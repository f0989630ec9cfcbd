//! What is known of the machine that is looked for.

use std::net::IpAddr;

use groundplane_core::{NodeName, ProviderId};

/// A node, by which its machine is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sought {
    /// Where the node has one, nothing else counts.
    pub(crate) provider_id: Option<ProviderId>,
    pub(crate) node: Option<NodeName>,
    pub(crate) addresses: Vec<IpAddr>,
}

/// Why a request names no machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SoughtError {
    #[error("provider id `{0}` is none: {1}")]
    ProviderId(String, String),
    #[error("node `{0}`: {1}")]
    Node(String, String),
    #[error("neither provider id, node nor address is given")]
    Nothing,
}

impl Sought {
    /// Reads a request. Addresses that are none are left out: a node may report names.
    pub(crate) fn parse(provider_id: &str, node: &str, addresses: &[String]) -> Result<Self, SoughtError> {
        let sought = Self {
            provider_id: optional(provider_id, parse_provider_id)?,
            node: optional(node, |text| {
                text.parse().map_err(|error: groundplane_core::ParseNameError| {
                    SoughtError::Node(text.to_owned(), error.to_string())
                })
            })?,
            // The annotation `provided-node-ip` of a dual-stack node has two, with a comma between them.
            addresses: addresses
                .iter()
                .flat_map(|text| text.split(','))
                .filter_map(|text| text.trim().parse().ok())
                .collect(),
        };
        if sought.provider_id.is_none() && sought.node.is_none() && sought.addresses.is_empty() {
            return Err(SoughtError::Nothing);
        }
        Ok(sought)
    }
}

fn optional<T, E>(text: &str, parse: impl Fn(&str) -> Result<T, E>) -> Result<Option<T>, E> {
    if text.is_empty() {
        Ok(None)
    } else {
        parse(text).map(Some)
    }
}

fn parse_provider_id(text: &str) -> Result<ProviderId, SoughtError> {
    let error = |message: String| SoughtError::ProviderId(text.to_owned(), message);
    let id: ProviderId = text
        .parse()
        .map_err(|cause: groundplane_core::ParseNameError| error(cause.to_string()))?;
    if id.id().is_empty() || id.scheme() == Some("") {
        return Err(error("write `<cloud>://<id>`".to_owned()));
    }
    if id.id().contains("://") {
        return Err(error("`://` stands in it more than once".to_owned()));
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// E14: provider ids that are none are refused, and never looked up.
    #[rstest]
    #[case("a://b://c")]
    #[case("equinixmetal://")]
    #[case("://abc")]
    #[case("equinixmetal://a b")]
    fn a_malformed_provider_id_is_refused(#[case] text: &str) {
        let error = Sought::parse(text, "n1", &[]).unwrap_err();
        assert!(matches!(error, SoughtError::ProviderId(..)), "{error}");
    }

    #[rstest]
    #[case("equinixmetal://abc", "abc")]
    #[case("packet://abc", "abc")]
    #[case("abc", "abc")]
    fn a_provider_id_is_read_with_and_without_its_cloud(#[case] text: &str, #[case] id: &str) {
        let sought = Sought::parse(text, "", &[]).unwrap();
        assert_eq!(sought.provider_id.unwrap().id(), id);
    }

    #[test]
    fn addresses_are_read_and_names_among_them_left_out() {
        let given = ["10.0.0.1, 2001:db8::1".to_owned(), "n1".to_owned()];
        let sought = Sought::parse("", "", &given).unwrap();
        let expected: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        assert_eq!(sought.addresses, expected);
    }

    #[test]
    fn a_request_that_names_nothing_is_refused() {
        assert_eq!(
            Sought::parse("", "", &["n1".to_owned()]),
            Err(SoughtError::Nothing)
        );
    }
}
