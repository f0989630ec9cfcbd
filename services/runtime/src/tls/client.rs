//! A client's certificate, and whose servers it trusts.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::client::Resumption;

use super::identity::Validity;
use super::material::{self, Bytes, File, file};
use super::reload::{Reloading, Source};
use super::{ClientSettings, ClientTls, TlsError};
use crate::Context;

const H2: &[u8] = b"h2";

struct Files {
    settings: ClientSettings,
    ca: File,
    identity: Option<(File, File)>,
}

impl Source for Files {
    type Made = ClientConfig;

    fn side(&self) -> &'static str {
        self.settings.side
    }

    fn read(&self) -> Result<Bytes, TlsError> {
        let pair = self.identity.as_ref();
        Ok(Bytes {
            pair: pair
                .map(|(cert, key)| Ok::<_, TlsError>((material::read(cert)?, material::read(key)?)))
                .transpose()?,
            authority: Some(material::read(&self.ca)?),
        })
    }

    fn make(&self, bytes: &Bytes) -> Result<(ClientConfig, Option<Validity>), TlsError> {
        let authority = bytes.authority.as_deref().unwrap_or_default();
        let roots = material::authorities(&self.ca, authority)?;
        let builder = ClientConfig::builder_with_provider(material::provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Config)?
            .with_root_certificates(roots);
        let (mut config, validity) = match (&self.identity, &bytes.pair) {
            (Some((cert_file, key_file)), Some((cert, key))) => {
                let pair = material::pair((cert_file, cert), (key_file, key))?;
                let resolver = Arc::new(rustls::sign::SingleCertAndKey::from(pair.key));
                (builder.with_client_cert_resolver(resolver), Some(pair.validity))
            }
            _ => (builder.with_no_client_auth(), None),
        };
        config.alpn_protocols = vec![H2.to_vec()];
        config.resumption = Resumption::disabled();
        Ok((config, validity))
    }

    fn name(&self) -> String {
        let shown = self.identity.as_ref().map_or(&self.ca, |(cert, _)| cert);
        shown.path.display().to_string()
    }
}

/// Something that holds an open connection, and is told when the files have changed.
pub(crate) trait Renew: Send + Sync {
    /// Replaces the connection, if it was made with older files.
    fn renew(self: Arc<Self>) -> futures::future::BoxFuture<'static, ()>;
}

/// What a client shows, and whom it trusts: as its files say now. Cheap to clone; clones are the same.
///
/// Each new connection uses the files as they are. [`ClientCredentials::watch`] renews connections that are open, too.
#[derive(Clone)]
pub struct ClientCredentials {
    files: Arc<Reloading<Files>>,
    channels: Arc<Mutex<Vec<Weak<dyn Renew>>>>,
    server_name: Option<Arc<str>>,
    watched: Arc<AtomicBool>,
}

impl ClientCredentials {
    /// Reads the files.
    pub fn load(files: &ClientTls) -> Result<Self, TlsError> {
        Self::load_of(files, ClientSettings::OURS)
    }

    /// Reads the files towards a server of others. What is wrong with them, or with a connection, is told by `settings`.
    pub fn load_of(files: &ClientTls, settings: ClientSettings) -> Result<Self, TlsError> {
        let server_name = files.server_name.as_deref().map(Arc::from);
        let pair = files.identity.as_ref();
        let named =
            |(cert, key): &(PathBuf, PathBuf)| (file(settings.certificate, cert), file(settings.key, key));
        let files = Files {
            settings,
            ca: file(settings.ca, &files.ca),
            identity: pair.map(named),
        };
        Ok(Self {
            files: Arc::new(Reloading::load(files)?),
            channels: Arc::default(),
            server_name,
            watched: Arc::default(),
        })
    }

    /// Looks at the files every few seconds, until the process stops. When they change, open connections are replaced by
    /// new ones, which are made first; calls under way end on the old ones.
    pub fn watch(&self, context: &Context) {
        self.watch_every(context, super::RELOAD_INTERVAL);
    }

    /// As [`ClientCredentials::watch`], every `interval`.
    pub(crate) fn watch_every(&self, context: &Context, interval: Duration) {
        self.watched.store(true, Ordering::Relaxed);
        let (this, metrics) = (self.clone(), context.metrics.tls().clone());
        let (clock, stopping) = (Arc::clone(&context.clock), context.tasks.token());
        context.tasks.spawn("certificates", async move {
            loop {
                this.files.watch(&metrics, &*clock);
                let pause = async {
                    this.renew().await;
                    tokio::time::sleep(interval).await;
                };
                tokio::select! {
                    () = pause => {}
                    () = stopping.cancelled() => return,
                }
            }
        });
    }

    /// Replaces connections that were made with older files. Those that cannot be replaced yet are tried again next time.
    async fn renew(&self) {
        let channels: Vec<_> = {
            let mut channels = self.channels.lock();
            channels.retain(|channel| channel.strong_count() > 0);
            channels.iter().filter_map(Weak::upgrade).collect()
        };
        futures::future::join_all(channels.into_iter().map(Renew::renew)).await;
    }

    pub(crate) fn register(&self, channel: Weak<dyn Renew>) {
        self.channels.lock().push(channel);
    }

    /// For the next connection, and its version. Looks at the files where nobody else does.
    pub(crate) fn fresh(&self) -> (Arc<ClientConfig>, u64) {
        if !self.watched.load(Ordering::Relaxed) {
            self.files.look();
        }
        self.files.current()
    }

    pub(crate) fn version(&self) -> u64 {
        self.files.current().1
    }

    /// By which settings they are known.
    pub(crate) fn settings(&self) -> ClientSettings {
        self.files.source().settings
    }

    pub(crate) fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }
}

impl fmt::Debug for ClientCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCredentials")
            .field("files", &self.files.source().name())
            .finish_non_exhaustive()
    }
}
