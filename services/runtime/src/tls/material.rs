//! What stands in the files: read, parsed, and found to belong together.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, RootCertStore};

use super::TlsError;
use super::identity::Validity;

const CERTIFICATE: &str = "CERTIFICATE";
const PRIVATE_KEY: &str = "PRIVATE KEY";

/// A setting that names a file, and the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    pub(super) field: &'static str,
    pub(super) path: PathBuf,
}

/// The bytes of the files, as they were read. Holds a key: never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) pair: Option<(Vec<u8>, Vec<u8>)>,
    pub(super) authority: Option<Vec<u8>>,
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bytes")
    }
}

/// A certificate with its key, and for how long it is good.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) key: Arc<CertifiedKey>,
    pub(super) validity: Validity,
}

/// Reads a file.
pub(super) fn read(file: &File) -> Result<Vec<u8>, TlsError> {
    std::fs::read(&file.path).map_err(|source| TlsError::Read {
        field: file.field,
        path: file.path.clone(),
        source,
    })
}

/// The pair in these bytes.
pub(super) fn pair(cert: (&File, &[u8]), key: (&File, &[u8])) -> Result<Pair, TlsError> {
    let chain = certificates(cert.0, cert.1)?;
    let secret = PrivateKeyDer::from_pem_slice(key.1).map_err(|_| empty(key.0, PRIVATE_KEY))?;
    let validity = match chain.first() {
        Some(leaf) => Validity::of(leaf).map_err(|source| TlsError::Certificate {
            field: cert.0.field,
            path: cert.0.path.clone(),
            source,
        })?,
        None => return Err(empty(cert.0, CERTIFICATE)),
    };
    let certified = CertifiedKey::from_der(chain, secret, &provider());
    let certified = certified.map_err(|source| TlsError::Pair {
        field: cert.0.field,
        cert: cert.0.path.clone(),
        key: key.0.path.clone(),
        source: Box::new(source),
    })?;
    Ok(Pair {
        key: Arc::new(certified),
        validity,
    })
}

/// The authorities in these bytes. Several are several that are trusted: while one takes over from another.
pub(super) fn authorities(file: &File, bytes: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, bytes)? {
        roots.add(certificate).map_err(|source| TlsError::Root {
            field: file.field,
            path: file.path.clone(),
            source,
        })?;
    }
    Ok(roots)
}

fn certificates(file: &File, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(empty(file, CERTIFICATE)),
    }
}

fn empty(file: &File, expected: &'static str) -> TlsError {
    TlsError::Content {
        field: file.field,
        path: file.path.clone(),
        expected,
    }
}

/// A setting and its file.
pub(super) fn file(field: &'static str, path: &Path) -> File {
    File {
        field,
        path: path.to_owned(),
    }
}

/// ring, with AES of 128 bits first: it is strong enough, and both ends of ours have it in hardware. A peer that lacks it
/// takes another.
pub(super) fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}
