//! `Debug` for messages that carry a secret. Destructured completely: a new field that nobody prints does not compile.

use std::fmt;

use crate::bgp::v1::Peer;
use crate::provider::v1::{EnableProjectRequest, GetProjectResponse, Neighbor};

/// What stands in a message for a secret: whether there is one, never what it is.
fn hidden(secret: &str) -> &'static str {
    if secret.is_empty() { "" } else { "[redacted]" }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            peer_address,
            peer_asn,
            local_asn,
            source_address,
            password,
            multihop,
            port,
        } = self;
        f.debug_struct("Peer")
            .field("peer_address", peer_address)
            .field("peer_asn", peer_asn)
            .field("local_asn", local_asn)
            .field("source_address", source_address)
            .field("password", &hidden(password))
            .field("multihop", multihop)
            .field("port", port)
            .finish()
    }
}

impl fmt::Debug for GetProjectResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            enabled,
            pending,
            local_asn,
            password,
            max_prefixes,
        } = self;
        f.debug_struct("GetProjectResponse")
            .field("enabled", enabled)
            .field("pending", pending)
            .field("local_asn", local_asn)
            .field("password", &hidden(password))
            .field("max_prefixes", max_prefixes)
            .finish()
    }
}

impl fmt::Debug for EnableProjectRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { local_asn, password } = self;
        f.debug_struct("EnableProjectRequest")
            .field("local_asn", local_asn)
            .field("password", &hidden(password))
            .finish()
    }
}

impl fmt::Debug for Neighbor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            family,
            local_asn,
            local_address,
            peer_asn,
            peer_addresses,
            password,
            multihop,
            port,
        } = self;
        f.debug_struct("Neighbor")
            .field("family", family)
            .field("local_asn", local_asn)
            .field("local_address", local_address)
            .field("peer_asn", peer_asn)
            .field("peer_addresses", peer_addresses)
            .field("password", &hidden(password))
            .field("multihop", multihop)
            .field("port", port)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_printed() {
        let peer = Peer {
            password: "hunter2".into(),
            ..Peer::default()
        };
        let printed = format!("{peer:?}");
        assert!(!printed.contains("hunter2"), "{printed}");
        assert!(printed.contains("[redacted]"), "{printed}");
    }
}
