//! TLS by file: one provider of cryptography for the process, and errors that name the field and the file.

use std::path::{Path, PathBuf};

use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

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
    /// The parts do not fit together.
    #[error("certificate, key and authority do not fit together")]
    Config(#[source] tonic::transport::Error),
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

impl ServerTls {
    /// Reads the files.
    pub fn load(&self) -> Result<ServerTlsConfig, TlsError> {
        let identity = identity("tls_cert", &self.cert, "tls_key", &self.key)?;
        let mut config = ServerTlsConfig::new().identity(identity);
        if let Some(path) = &self.client_ca {
            config = config.client_ca_root(Certificate::from_pem(read("tls_client_ca", path, CERTIFICATE)?));
        }
        Ok(config)
    }
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

impl ClientTls {
    /// Reads the files.
    pub fn load(&self) -> Result<ClientTlsConfig, TlsError> {
        let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(
            "tls_ca",
            &self.ca,
            CERTIFICATE,
        )?));
        if let Some((cert, key)) = &self.identity {
            config = config.identity(identity("tls_cert", cert, "tls_key", key)?);
        }
        if let Some(name) = &self.server_name {
            config = config.domain_name(name);
        }
        Ok(config)
    }
}

const CERTIFICATE: &str = "CERTIFICATE";
const PRIVATE_KEY: &str = "PRIVATE KEY";

fn identity(
    cert_field: &'static str,
    cert: &Path,
    key_field: &'static str,
    key: &Path,
) -> Result<Identity, TlsError> {
    Ok(Identity::from_pem(
        read(cert_field, cert, CERTIFICATE)?,
        read(key_field, key, PRIVATE_KEY)?,
    ))
}

fn read(field: &'static str, path: &Path, expected: &'static str) -> Result<Vec<u8>, TlsError> {
    let content = std::fs::read(path).map_err(|source| TlsError::Read {
        field,
        path: path.to_owned(),
        source,
    })?;
    let text = String::from_utf8_lossy(&content);
    // `EC PRIVATE KEY` and `RSA PRIVATE KEY` count, too.
    let found = text.lines().any(|line| {
        line.starts_with("-----BEGIN ") && line.trim_end().ends_with(&format!("{expected}-----"))
    });
    if !found {
        return Err(TlsError::Content {
            field,
            path: path.to_owned(),
            expected,
        });
    }
    Ok(content)
}
