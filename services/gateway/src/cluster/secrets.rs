//! Secrets by name, for `groundplane certs`, which runs beside the gateway and never within it. The gateway itself reads none.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;

use super::client::{ConnectError, connect};

/// A call to the API that failed.
#[derive(Debug, thiserror::Error)]
#[error("secret {namespace}/{name} cannot be {verb}")]
pub struct SecretError {
    namespace: String,
    name: String,
    verb: &'static str,
    #[source]
    source: Box<kube::Error>,
}

/// A Secret as it is stored.
#[derive(Clone, Default)]
pub struct StoredSecret {
    /// Its keys. Never printed.
    pub data: BTreeMap<String, Vec<u8>>,
    object: Secret,
}

impl std::fmt::Debug for StoredSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredSecret")
            .field("name", &self.object.metadata.name)
            .finish_non_exhaustive()
    }
}

/// The Secrets of one namespace.
#[derive(Clone)]
pub struct Secrets {
    api: Api<Secret>,
    namespace: String,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secrets")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Secrets {
    /// Those of this namespace; of the one that the kubeconfig, or the pod, is at home in, if none is given.
    pub async fn connect(kubeconfig: Option<&Path>, namespace: Option<&str>) -> Result<Self, ConnectError> {
        let (client, home) = connect(kubeconfig).await?;
        let namespace = namespace.map_or(home, str::to_owned);
        Ok(Self {
            api: Api::namespaced(client, &namespace),
            namespace,
        })
    }

    fn failed(&self, name: &str, verb: &'static str) -> impl FnOnce(kube::Error) -> SecretError {
        let (namespace, name) = (self.namespace.clone(), name.to_owned());
        move |source| SecretError {
            namespace,
            name,
            verb,
            source: Box::new(source),
        }
    }

    /// The Secret of this name, if there is one.
    pub async fn read(&self, name: &str) -> Result<Option<StoredSecret>, SecretError> {
        let found = self.api.get_opt(name).await.map_err(self.failed(name, "read"))?;
        Ok(found.map(|object| StoredSecret {
            data: object
                .data
                .clone()
                .unwrap_or_default()
                .into_iter()
                .map(|(key, value)| (key, value.0))
                .collect(),
            object,
        }))
    }

    /// Writes a Secret whole: creates it, or replaces the one that was read, if it is still as it was then.
    pub async fn write(
        &self,
        name: &str,
        type_: &str,
        labels: &BTreeMap<String, String>,
        read: Option<StoredSecret>,
        data: BTreeMap<String, Vec<u8>>,
    ) -> Result<(), SecretError> {
        let exists = read.is_some();
        let mut object = read.unwrap_or_default().object;
        object.data = Some(
            data.into_iter()
                .map(|(key, value)| (key, ByteString(value)))
                .collect(),
        );
        object.string_data = None;
        object
            .metadata
            .labels
            .get_or_insert_default()
            .extend(labels.clone());
        let parameters = PostParams {
            field_manager: Some(groundplane_core::names::FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        if exists {
            let replaced = self.api.replace(name, &parameters, &object).await;
            return replaced.map(drop).map_err(self.failed(name, "replaced"));
        }
        object.metadata.name = Some(name.to_owned());
        object.type_ = Some(type_.to_owned());
        let created = self.api.create(&parameters, &object).await;
        created.map(drop).map_err(self.failed(name, "created"))
    }
}
