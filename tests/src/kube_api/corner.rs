//! One test's own part of a shared API server.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, ensure};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::objects::{NodeDraft, ServiceDraft, ingress_of, ready_condition};
use super::{Audit, Connection, Mark, User};
use crate::eventually::eventually;

/// A name that nobody else has, a namespace of that name, and what a test does there. What is cluster-wide (nodes)
/// carries the name as its prefix.
///
/// Namespaces are never deleted: nothing here would finish it.
#[derive(Clone)]
pub struct Corner {
    connection: Arc<Connection>,
    client: Client,
    name: String,
}

impl Debug for Corner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Corner")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Corner {
    pub(super) async fn new(connection: Arc<Connection>, name: &str) -> Result<Self> {
        let client = connection.client(User::Admin)?;
        let name = format!("{name}-{:06x}", fastrand::u32(..0x0100_0000));
        let corner = Self {
            connection,
            client,
            name,
        };
        corner.create_namespace(&corner.name).await?;
        Ok(corner)
    }

    /// Its name: of its namespace, and the prefix of all else.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        &self.name
    }

    /// A cluster identity of its own, for the configuration of what is tested.
    pub fn cluster(&self) -> &str {
        &self.name
    }

    /// A load-balancer class of its own, by which a process under test can tell its Services from those of other corners.
    pub fn class(&self) -> String {
        format!("{}/{}", groundplane_core::names::GROUP, self.name)
    }

    /// The name of its node `suffix`.
    pub fn node_name(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.name)
    }

    /// A further namespace, its name ending with `suffix`.
    ///
    /// # Errors
    /// The API's.
    pub async fn another_namespace(&self, suffix: &str) -> Result<String> {
        let name = format!("{}-{suffix}", self.name);
        self.create_namespace(&name).await?;
        Ok(name)
    }

    async fn create_namespace(&self, name: &str) -> Result<()> {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        };
        let namespace = Namespace {
            metadata,
            ..Namespace::default()
        };
        self.create_cluster_wide(&namespace).await.map(drop)
    }

    /// An administrator's client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The API server that this is a corner of.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The kubeconfig of a user.
    pub fn kubeconfig(&self, user: User) -> PathBuf {
        self.connection.kubeconfig(user)
    }

    /// A kind of object in its namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// All nodes of the cluster, those of other corners included.
    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// A draft of the Service `name` in its namespace, without a class.
    pub fn service_draft(&self, name: &str) -> ServiceDraft {
        ServiceDraft::new(&self.name, name)
    }

    /// A draft of its node `suffix`.
    pub fn node_draft(&self, suffix: &str) -> NodeDraft {
        NodeDraft::new(&self.node_name(suffix))
    }

    /// Creates a Service, in the namespace that it names.
    ///
    /// # Errors
    /// The API's.
    pub async fn create_service(&self, draft: ServiceDraft) -> Result<Service> {
        let service = draft.build();
        let namespace = service.metadata.namespace.as_deref().unwrap_or(&self.name);
        let api = Api::<Service>::namespaced(self.client.clone(), namespace);
        let created = api.create(&PostParams::default(), &service).await;
        created.with_context(|| format!("create Service {namespace}/{}", service.name_any()))
    }

    /// Creates a Service that asks for an address and for nothing else.
    ///
    /// # Errors
    /// The API's.
    pub async fn add_service(&self, name: &str) -> Result<Service> {
        self.create_service(self.service_draft(name)).await
    }

    /// Creates a node.
    ///
    /// # Errors
    /// The API's.
    pub async fn create_node(&self, draft: NodeDraft) -> Result<Node> {
        self.create_cluster_wide(&draft.build()).await
    }

    async fn create_cluster_wide<K>(&self, object: &K) -> Result<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
    {
        let created = Api::all(self.client.clone())
            .create(&PostParams::default(), object)
            .await;
        created.with_context(|| format!("create {} {}", K::kind(&()), object.name_any()))
    }

    /// Reads the Service `name` until `look` finds something in it.
    ///
    /// # Errors
    /// When it does not within the patience of [`eventually`], with the Service as it then was.
    pub async fn service_until<T>(
        &self,
        name: &str,
        what: &str,
        look: impl Fn(&Service) -> Option<T>,
    ) -> Result<T> {
        until(&self.api::<Service>(), name, what, look).await
    }

    /// Reads the node `suffix` until `look` finds something in it.
    ///
    /// # Errors
    /// As [`Corner::service_until`].
    pub async fn node_until<T>(
        &self,
        suffix: &str,
        what: &str,
        look: impl Fn(&Node) -> Option<T>,
    ) -> Result<T> {
        until(&self.nodes(), &self.node_name(suffix), what, look).await
    }

    /// Waits until the Service `name` has `count` addresses in its status, and returns them.
    ///
    /// # Errors
    /// As [`Corner::service_until`].
    pub async fn addresses_of(&self, name: &str, count: usize) -> Result<Vec<String>> {
        self.service_until(name, &format!("has {count} addresses"), |service| {
            let addresses = ingress_of(service);
            (addresses.len() == count).then_some(addresses)
        })
        .await
    }

    /// Asks for the deletion of the Service `name`, which its finalizers may put off.
    ///
    /// # Errors
    /// The API's.
    pub async fn delete_service(&self, name: &str) -> Result<()> {
        self.api::<Service>()
            .delete(name, &DeleteParams::default())
            .await
            .map(drop)
            .context("delete a Service")
    }

    /// Waits until the Service `name` is gone.
    ///
    /// # Errors
    /// As [`Corner::service_until`].
    pub async fn service_gone(&self, name: &str) -> Result<()> {
        gone(&self.api::<Service>(), name).await
    }

    /// Deletes the node `suffix`.
    ///
    /// # Errors
    /// The API's.
    pub async fn delete_node(&self, suffix: &str) -> Result<()> {
        let name = self.node_name(suffix);
        self.nodes()
            .delete(&name, &DeleteParams::default())
            .await
            .map(drop)
            .context("delete a node")
    }

    /// Waits until the node `suffix` is gone.
    ///
    /// # Errors
    /// As [`Corner::service_until`].
    pub async fn node_gone(&self, suffix: &str) -> Result<()> {
        gone(&self.nodes(), &self.node_name(suffix)).await
    }

    /// Makes the node `suffix` ready, or not ready in the way the node controller of Kubernetes does it.
    ///
    /// # Errors
    /// The API's.
    pub async fn set_ready(&self, suffix: &str, ready: bool) -> Result<Node> {
        let patch = json!({ "status": { "conditions": [ready_condition(ready)] } });
        let (name, patch) = (self.node_name(suffix), Patch::Strategic(&patch));
        self.nodes()
            .patch_status(&name, &PatchParams::default(), &patch)
            .await
            .context("patch a node")
    }

    /// Merges `patch` into the Service `name`, as a user does with an editor.
    ///
    /// # Errors
    /// The API's.
    pub async fn edit_service(&self, name: &str, patch: &serde_json::Value) -> Result<Service> {
        let patch = Patch::Merge(patch);
        self.api()
            .patch(name, &PatchParams::default(), &patch)
            .await
            .context("edit a Service")
    }

    /// Merges `patch` into the status of the Service `name`, as another controller does.
    ///
    /// # Errors
    /// The API's.
    pub async fn edit_service_status(&self, name: &str, patch: &serde_json::Value) -> Result<Service> {
        let patch = Patch::Merge(patch);
        self.api()
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .context("edit a Service's status")
    }

    /// Takes all finalizers from the Service `name`, as a user in despair does.
    ///
    /// # Errors
    /// The API's.
    pub async fn strip_finalizers(&self, name: &str) -> Result<Service> {
        self.edit_service(name, &json!({ "metadata": { "finalizers": null } }))
            .await
    }

    /// The events about an object, oldest first.
    ///
    /// # Errors
    /// The API's, or an object that was never created.
    pub async fn events_of<K: Resource>(&self, object: &K) -> Result<Vec<Event>> {
        let uid = object
            .meta()
            .uid
            .as_deref()
            .context("the object has no uid: it was never created")?;
        let about = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
        let mut events = Api::<Event>::all(self.client.clone())
            .list(&about)
            .await
            .context("list events")?
            .items;
        events.sort_by_key(|event| event.metadata.creation_timestamp.clone());
        Ok(events)
    }

    /// Waits for an event about an object, of this reason, and returns it.
    ///
    /// # Errors
    /// When there is none within the patience of [`eventually`], with the reasons of those that there are.
    pub async fn event<K: Resource>(&self, object: &K, reason: &str) -> Result<Event> {
        eventually(
            format_args!("{} has an event {reason}", object.name_any()),
            async || {
                let events = self.events_of(object).await?;
                let seen: Vec<_> = events.iter().filter_map(|event| event.reason.clone()).collect();
                let found = events
                    .into_iter()
                    .find(|event| event.reason.as_deref() == Some(reason));
                found.ok_or_else(|| anyhow!("its events are {seen:?}"))
            },
        )
        .await
    }

    /// A point in the audit log; see [`Corner::requests_since`].
    ///
    /// # Errors
    /// When the API does not answer.
    pub async fn mark(&self) -> Result<Mark> {
        self.connection.mark().await
    }

    /// The requests since `mark` that were about something of this corner: in its namespaces, or under its prefix.
    ///
    /// # Errors
    /// When the API does not answer, or its log cannot be read.
    pub async fn requests_since(&self, mark: Mark) -> Result<Audit> {
        let all = self.connection.requests_since(mark).await?;
        let own = |name: &str| {
            name.strip_prefix(&self.name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        // An event about a node is in the namespace `default`, and named after the node.
        Ok(all.only(|request| own(&request.namespace) || own(&request.name)))
    }
}

async fn until<K, T>(api: &Api<K>, name: &str, what: &str, look: impl Fn(&K) -> Option<T>) -> Result<T>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
{
    eventually(format_args!("{} {name} {what}", K::kind(&())), async || {
        let object = api.get(name).await?;
        match look(&object) {
            Some(found) => Ok(found),
            None => Err(anyhow!("it is {}", serde_json::to_string(&object)?)),
        }
    })
    .await
}

async fn gone<K>(api: &Api<K>, name: &str) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
{
    eventually(format_args!("{} {name} is gone", K::kind(&())), async || {
        let left = api.get_opt(name).await?;
        ensure!(left.is_none(), "it is {}", serde_json::to_string(&left)?);
        Ok(())
    })
    .await
}
