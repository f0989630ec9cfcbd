//! The one TLS provider of this process.

use std::sync::OnceLock;

/// Makes `ring` the TLS provider of this process. Call it before any TLS client is built; calling it again does nothing.
pub fn install() {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    // An error means that somebody else has installed a provider, and only ring is compiled in.
    INSTALLED.get_or_init(|| rustls::crypto::ring::default_provider().install_default().is_ok());
}
