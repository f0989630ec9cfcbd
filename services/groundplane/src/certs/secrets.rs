//! Certificates in Secrets of the cluster: `PREFIX-SERVICE-tls`.

use std::collections::BTreeMap;
use std::path::Path;

use groundplane_gateway::{Secrets, StoredSecret};

use super::{AUTHORITY, Files};

/// What mounts as `tls.crt`, `tls.key` and `ca.crt`.
const TYPE: &str = "kubernetes.io/tls";

pub(super) struct ClusterSecrets {
    secrets: Secrets,
    prefix: String,
    /// As they were read: what has changed since is not overwritten.
    read: BTreeMap<String, StoredSecret>,
}

impl ClusterSecrets {
    pub(super) async fn connect(
        kubeconfig: Option<&Path>,
        namespace: Option<&str>,
        prefix: String,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            secrets: Secrets::connect(kubeconfig, namespace).await?,
            prefix,
            read: BTreeMap::new(),
        })
    }

    fn name(&self, name: &str) -> String {
        format!("{}-{name}-tls", self.prefix)
    }

    pub(super) async fn read(&mut self, name: &str) -> anyhow::Result<Files> {
        let Some(secret) = self.secrets.read(&self.name(name)).await? else {
            return Ok(Files::new());
        };
        let files = secret.data.clone();
        self.read.insert(name.to_owned(), secret);
        Ok(files)
    }

    pub(super) async fn write(&mut self, name: &str, files: Files) -> anyhow::Result<()> {
        let component = if name == AUTHORITY { "certs" } else { name };
        let labels = BTreeMap::from([
            (
                "app.kubernetes.io/managed-by".to_owned(),
                "groundplane-certs".to_owned(),
            ),
            ("app.kubernetes.io/component".to_owned(), component.to_owned()),
        ]);
        let before = self.read.remove(name);
        self.secrets
            .write(&self.name(name), TYPE, &labels, before, files)
            .await?;
        Ok(())
    }
}
