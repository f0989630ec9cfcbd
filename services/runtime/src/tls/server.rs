//! A server's certificate, and whose clients it lets in.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::SingleCertAndKey;

use super::identity::Validity;
use super::material::{self, Bytes, File, file};
use super::reload::{Reloading, Source};
use super::{ServerTls, TlsError};
use crate::Context;

const H2: &[u8] = b"h2";

struct Files {
    cert: File,
    key: File,
    client_ca: Option<File>,
}

impl Source for Files {
    type Made = ServerConfig;

    fn side(&self) -> &'static str {
        "server"
    }

    fn read(&self) -> Result<Bytes, TlsError> {
        Ok(Bytes {
            pair: Some((material::read(&self.cert)?, material::read(&self.key)?)),
            authority: self.client_ca.as_ref().map(material::read).transpose()?,
        })
    }

    fn make(&self, bytes: &Bytes) -> Result<(ServerConfig, Option<Validity>), TlsError> {
        let (cert, key) = bytes
            .pair
            .as_ref()
            .ok_or(TlsError::Config(rustls::Error::NoCertificatesPresented))?;
        let pair = material::pair((&self.cert, cert), (&self.key, key))?;
        let builder = ServerConfig::builder_with_provider(material::provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Config)?;
        let builder = match (&self.client_ca, &bytes.authority) {
            (Some(file), Some(authority)) => {
                let roots = Arc::new(material::authorities(file, authority)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, material::provider())
                    .build()
                    .map_err(|source| TlsError::Authority {
                        path: file.path.clone(),
                        source,
                    })?;
                builder.with_client_cert_verifier(verifier)
            }
            _ => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(pair.key)));
        config.alpn_protocols = vec![H2.to_vec()];
        // Connections last for hours: what would make the next one cheaper only costs. And who resumed a session would
        // not be asked for the certificate that it has by then.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        Ok((config, Some(pair.validity)))
    }

    fn name(&self) -> String {
        self.cert.path.display().to_string()
    }
}

/// What a server shows, and whom it lets in: as its files say now. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ServerCredentials {
    files: Arc<Reloading<Files>>,
    asks_clients: bool,
}

impl ServerCredentials {
    /// Reads the files.
    pub(crate) fn load(files: &ServerTls) -> Result<Self, TlsError> {
        let asks_clients = files.client_ca.is_some();
        let files = Files {
            cert: file("tls_cert", &files.cert),
            key: file("tls_key", &files.key),
            client_ca: files.client_ca.as_deref().map(|path| file("tls_client_ca", path)),
        };
        Ok(Self {
            files: Arc::new(Reloading::load(files)?),
            asks_clients,
        })
    }

    /// Must clients show a certificate?
    pub(crate) fn asks_clients(&self) -> bool {
        self.asks_clients
    }

    /// For the next connection.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.files.current().0
    }

    /// Looks at the files once.
    #[cfg(test)]
    pub(super) fn look(&self, metrics: &super::metrics::TlsMetrics, clock: &dyn groundplane_core::Clock) {
        self.files.watch(metrics, clock);
    }

    /// Looks at the files every `interval`, until the process stops.
    pub(crate) fn watch(&self, context: &Context, interval: Duration) {
        let (files, metrics) = (Arc::clone(&self.files), context.metrics.tls().clone());
        let (clock, stopping) = (Arc::clone(&context.clock), context.tasks.token());
        context.tasks.spawn("certificates", async move {
            loop {
                files.watch(&metrics, &*clock);
                tokio::select! {
                    () = tokio::time::sleep(interval) => {}
                    () = stopping.cancelled() => return,
                }
            }
        });
    }
}

impl fmt::Debug for ServerCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCredentials")
            .field("cert", &self.files.source().cert.path)
            .finish_non_exhaustive()
    }
}
