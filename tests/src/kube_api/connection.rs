//! Who may talk to the API, and how.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{HeaderName, HeaderValue};
use serde_json::json;

/// The namespace that the chart is installed to where the user follows its documentation.
pub const GATEWAY_NAMESPACE: &str = "groundplane-system";
/// The name of the gateway's service account there.
pub const GATEWAY_SERVICE_ACCOUNT: &str = "groundplane-gateway";

/// Somebody whom the API knows by a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// May do everything.
    Admin,
    /// The gateway's service account. May do what its roles say, and without a role nothing.
    Gateway,
}

impl User {
    pub(super) const ALL: [Self; 2] = [Self::Admin, Self::Gateway];

    /// The name by which the API knows this user, as roles are bound to it.
    pub fn name(self) -> String {
        match self {
            Self::Admin => "admin".to_owned(),
            Self::Gateway => format!("system:serviceaccount:{GATEWAY_NAMESPACE}:{GATEWAY_SERVICE_ACCOUNT}"),
        }
    }

    /// The token that proves it. These open an API on loopback which ends with the test.
    pub fn token(self) -> &'static str {
        match self {
            Self::Admin => "admin-of-a-test",
            Self::Gateway => "gateway-of-a-test",
        }
    }

    fn groups(self) -> String {
        match self {
            Self::Admin => "system:masters".to_owned(),
            Self::Gateway => format!("system:serviceaccounts,system:serviceaccounts:{GATEWAY_NAMESPACE}"),
        }
    }

    fn slug(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Gateway => "gateway",
        }
    }
}

/// The table of users in the format of `--token-auth-file`.
pub(super) fn tokens_csv() -> String {
    let line = |user: User| {
        format!(
            "{},{},{},\"{}\"\n",
            user.token(),
            user.name(),
            user.slug(),
            user.groups()
        )
    };
    User::ALL.into_iter().map(line).collect()
}

/// What is needed to talk to one API server.
#[derive(Debug)]
pub struct Connection {
    address: SocketAddr,
    folder: PathBuf,
    pub(super) audit_log: PathBuf,
}

impl Connection {
    /// The server at `address`, with its files in `folder`. The certificate need not be there yet.
    pub(super) fn new(address: SocketAddr, folder: &Path, audit_log: PathBuf) -> Self {
        Self {
            address,
            folder: folder.to_owned(),
            audit_log,
        }
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server's own certificate authority and certificate, as PEM.
    pub(super) fn certificate(&self) -> Result<Vec<u8>> {
        let path = self.folder.join("certificates/apiserver.crt");
        std::fs::read(&path).with_context(|| format!("read {}", path.display()))
    }

    /// Whether the server has written the certificate, which it does before it listens.
    pub(super) fn has_certificate(&self) -> bool {
        // The file is not written at once.
        self.certificate()
            .is_ok_and(|pem| pem.ends_with(b"-----END CERTIFICATE-----\n"))
    }

    /// A client of this user, which never tries again by itself. Belongs to the async runtime that it is made in.
    ///
    /// # Errors
    /// When the certificate cannot be used.
    pub fn client(&self, user: User) -> Result<kube::Client> {
        self.client_as(user, "groundplane-tests")
    }

    /// A client that calls itself `agent` in the audit log.
    ///
    /// # Errors
    /// When the certificate cannot be used, or the name is not a header's value.
    pub fn client_as(&self, user: User, agent: &str) -> Result<kube::Client> {
        crate::tls::install();
        let mut config = kube::Config::new(format!("https://{}", self.address).parse()?);
        config.root_cert = Some(certificates_of(&self.certificate()?)?);
        config.auth_info.token = Some(user.token().into());
        config.headers = vec![(
            HeaderName::from_static("user-agent"),
            HeaderValue::from_str(agent)?,
        )];
        config.connect_timeout = Some(Duration::from_secs(5));
        config.default_retry = false;
        kube::Client::try_from(config).context("make a client")
    }

    /// The kubeconfig of this user, written when the server came up.
    pub fn kubeconfig(&self, user: User) -> PathBuf {
        self.folder.join(format!("{}.kubeconfig", user.slug()))
    }

    /// Writes the kubeconfig of every user. JSON is YAML.
    pub(super) fn write_kubeconfigs(&self) -> Result<()> {
        let authority = BASE64.encode(self.certificate()?);
        for user in User::ALL {
            let config = json!({
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "contexts": [{ "name": "test", "context": { "cluster": "test", "user": user.slug() } }],
                "clusters": [{ "name": "test", "cluster": {
                    "server": format!("https://{}", self.address),
                    "certificate-authority-data": authority,
                } }],
                "users": [{ "name": user.slug(), "user": { "token": user.token() } }],
            });
            let path = self.kubeconfig(user);
            std::fs::write(&path, serde_json::to_vec_pretty(&config)?)
                .with_context(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }
}

/// The certificates in a PEM file, in DER, as kube's configuration takes them.
fn certificates_of(pem: &[u8]) -> Result<Vec<Vec<u8>>> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    CertificateDer::pem_slice_iter(pem)
        .map(|certificate| Ok(certificate.context("read the server's certificate")?.to_vec()))
        .collect()
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn the_table_of_users_quotes_their_groups() {
        assert_eq!(
            tokens_csv(),
            "admin-of-a-test,admin,admin,\"system:masters\"\n\
             gateway-of-a-test,system:serviceaccount:groundplane-system:groundplane-gateway,gateway,\
             \"system:serviceaccounts,system:serviceaccounts:groundplane-system\"\n"
        );
    }
}
