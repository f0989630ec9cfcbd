//! TLS by file: who we are, and whom we trust.
//!
//! Files are read again while the process runs, since a certificate is renewed more often than a process is started. New
//! connections use what was read last. A certificate whose key is not there yet, or any other set of files that does not
//! fit together, is never used: the old set stays, and the log says so once.
//!
//! ```text
//! files ──► ServerCredentials ──► each accepted connection ──► Identity of the caller
//!       └─► ClientCredentials ──► each opened connection; open ones are replaced when the files change
//! ```
//!
//! Who a caller is stands in its certificate as `spiffe://<trust domain>/<service>` ([`identity`]); why a handshake failed
//! is said in words by [`failure`].

mod client;
pub mod failure;
pub mod identity;
mod material;
pub(crate) mod metrics;
mod reload;
mod server;

use std::path::PathBuf;

pub use client::ClientCredentials;
pub(crate) use client::Renew;
pub use failure::TlsFailure;
pub use identity::{Caller, Identity, TRUST_DOMAIN};
pub(crate) use reload::RELOAD_INTERVAL;
pub(crate) use server::ServerCredentials;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{field}: cannot read `{}`", .path.display())]
    Read {
        /// Which setting names it.
        field: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file does not hold what it should.
    #[error("{field}: `{}` holds no PEM block `{expected}`", .path.display())]
    Content {
        /// Which setting names it.
        field: &'static str,
        /// The file.
        path: PathBuf,
        /// What was looked for.
        expected: &'static str,
    },
    /// A certificate in a file is none.
    #[error("{field}: `{}` holds a certificate that cannot be read", .path.display())]
    Certificate {
        /// Which setting names it.
        field: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: identity::ParseCertificateError,
    },
    /// A certificate and a key that are not of each other.
    #[error("{field}: the certificate in `{}` is not of the key in `{}`", .cert.display(), .key.display())]
    Pair {
        /// Which setting names the certificate.
        field: &'static str,
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        source: Box<rustls::Error>,
    },
    /// A certificate in the file of an authority is of no use as one.
    #[error("{field}: `{}` holds a certificate that cannot be trusted as an authority", .path.display())]
    Root {
        /// Which setting names it.
        field: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// The parts do not fit together.
    #[error("certificate, key and authority do not fit together")]
    Config(#[source] rustls::Error),
    /// The authority is of no use to check clients by.
    #[error("no client can be checked by `{}`", .path.display())]
    Authority {
        /// The authority's file.
        path: PathBuf,
        /// Why.
        source: rustls::server::VerifierBuilderError,
    },
}

/// Installs the provider of cryptography. The first thing that `main` does, and every test that uses TLS.
///
/// Calling it again does nothing.
pub fn install() {
    // `Err` says that one is installed already, which is what we want.
    drop(rustls::crypto::ring::default_provider().install_default());
}

/// A server's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTls {
    /// Its certificate chain.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Whose clients are let in; `None` lets any client in.
    pub client_ca: Option<PathBuf>,
}

/// A client's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// Whose servers are trusted.
    pub ca: PathBuf,
    /// The client's certificate chain and private key, where the server asks for them.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name that the server's certificate must carry, where it is not the host of the address.
    pub server_name: Option<String>,
}

/// By which settings people know a client's files, and by which label metrics do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// In metrics: whose certificate it is. Other files than our own ones need a side of their own.
    pub side: &'static str,
    /// Names the authority's file.
    pub ca: &'static str,
    /// Names the file of the certificate chain.
    pub certificate: &'static str,
    /// Names the file of the private key.
    pub key: &'static str,
    /// Holds the name that the server's certificate must carry.
    pub server_name: &'static str,
}

impl ClientSettings {
    /// Those of our own services towards each other.
    pub const OURS: Self = Self {
        side: "client",
        ca: "client_ca",
        certificate: "client_cert",
        key: "client_key",
        server_name: "server_name",
    };
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
