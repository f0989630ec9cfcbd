//! MetalLB in a run: the real one by its custom resources, or the one of before, of which nothing is at work but what it would write. People
//! have entries of their own in its configuration.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use groundplane_tests::chaos::metallb::{
    CONFIG, Object, Wanted, covers, document, edited, is_intact, objects_of_people, wrong_in_objects,
    wrong_in_text,
};
use groundplane_tests::chaos::{Announcer, Plan};
use groundplane_tests::kube_api::ingress_of;
use groundplane_tests::metallb::{self, Metallb, api_of};
use groundplane_tests::{Corner, KubeApi};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Service};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::act::suffix;

/// What is read of MetalLB's objects.
const KINDS: [&str; 4] = ["IPAddressPool", "BGPPeer", "BGPAdvertisement", "L2Advertisement"];
/// How often people read the `ConfigMap` again, which somebody else has changed meanwhile.
const TRIES: usize = 20;

/// MetalLB's side of a run.
pub(super) struct Side {
    announcer: Announcer,
    namespace: String,
    edit: u32,
    controller: Option<Metallb>,
}

impl Side {
    /// The corner of a run, with MetalLB and what people have there, if the plan has a MetalLB.
    pub(super) async fn begin(plan: &Plan) -> Result<(Corner, Option<Self>)> {
        let corner = KubeApi::shared()
            .await?
            .corner(&format!("chaos-{}", plan.seed))
            .await?;
        if !plan.announcer.is_metallb() {
            return Ok((corner, None));
        }
        let by_resources = plan.announcer == Announcer::Metallb;
        if by_resources {
            metallb::install(&corner.client()).await?;
        }
        let namespace = corner.another_namespace("metallb").await?;
        groundplane_tests::chart::grant_metallb(&corner.client(), plan.announcer.name(), &namespace).await?;
        let mut side = Self {
            announcer: plan.announcer,
            namespace,
            edit: 0,
            controller: None,
        };
        if by_resources {
            side.put_objects(&corner, 0).await?;
            side.controller = Some(Metallb::controller(&corner, &side.namespace).await?);
        } else {
            let config_map = ConfigMap {
                metadata: kube::api::ObjectMeta {
                    name: Some(CONFIG.to_owned()),
                    ..kube::api::ObjectMeta::default()
                },
                data: Some(BTreeMap::from([(CONFIG.to_owned(), document(0))])),
                ..ConfigMap::default()
            };
            let api = side.config_maps(&corner);
            api.create(&PostParams::default(), &config_map).await?;
        }
        Ok((corner, Some(side)))
    }

    /// What groundplane is told of it.
    pub(super) fn section(&self, corner: &Corner) -> String {
        crate::metallb::section(corner, self.announcer.name(), &self.namespace, "")
    }

    /// What the real one has said.
    pub(super) fn log(&self) -> Result<String> {
        self.controller.as_ref().map_or(Ok(String::new()), Metallb::log)
    }

    fn config_maps(&self, corner: &Corner) -> Api<ConfigMap> {
        Api::namespaced(corner.client(), &self.namespace)
    }

    async fn config(&self, corner: &Corner) -> Result<(String, Option<String>)> {
        let found = self.config_maps(corner).get(CONFIG).await?;
        let version = found.resource_version();
        let text = found.data.unwrap_or_default().remove(CONFIG);
        Ok((text.unwrap_or_default(), version))
    }

    /// People change what is theirs.
    pub(super) async fn edit(&mut self, corner: &Corner, edit: u32) -> Result<()> {
        if self.announcer == Announcer::Metallb {
            self.put_objects(corner, edit).await?;
        } else {
            self.put_text(corner, edit).await?;
        }
        self.edit = edit;
        Ok(())
    }

    async fn put_text(&self, corner: &Corner, edit: u32) -> Result<()> {
        let api = self.config_maps(corner);
        for _ in 0..TRIES {
            let (before, version) = self.config(corner).await?;
            let text = edited(&before, self.edit, edit);
            let text = text.with_context(|| format!("people do not find what they wrote in\n{before}"))?;
            let patch = json!({ "metadata": { "resourceVersion": version }, "data": { CONFIG: text } });
            match api
                .patch(CONFIG, &PatchParams::default(), &Patch::Merge(patch))
                .await
            {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error.into()),
            }
        }
        bail!("somebody else writes the ConfigMap all the time")
    }

    fn people(corner: &Corner, edit: u32) -> Vec<Object> {
        objects_of_people(edit, &corner.node_name(&suffix(0)))
    }

    fn api(&self, corner: &Corner, kind: &str) -> Api<DynamicObject> {
        let version = if kind == "BGPPeer" { "v1beta2" } else { "v1beta1" };
        api_of(corner, &self.namespace, version, kind)
    }

    async fn put_objects(&self, corner: &Corner, edit: u32) -> Result<()> {
        let (before, after) = (Self::people(corner, self.edit), Self::people(corner, edit));
        for gone in &before {
            let stays = |other: &Object| other.kind == gone.kind && other.name == gone.name;
            let api = self.api(corner, &gone.kind);
            if !after.iter().any(stays) && api.get_opt(&gone.name).await?.is_some() {
                api.delete(&gone.name, &DeleteParams::default()).await?;
            }
        }
        for Object {
            kind,
            name,
            labels,
            spec,
        } in after
        {
            let api = self.api(corner, &kind);
            if api.get_opt(&name).await?.is_some() {
                let patch = Patch::Merge(json!({ "spec": spec }));
                api.patch(&name, &PatchParams::default(), &patch).await?;
            } else {
                metallb::create(corner, &self.namespace, &kind, &name, json!(labels), spec).await?;
            }
        }
        Ok(())
    }

    /// What MetalLB up to 0.12 would write, if there was one: what its pools have and Services ask for.
    pub(super) async fn play(&self, corner: &Corner) -> Result<()> {
        if self.announcer != Announcer::MetallbConfigMap {
            return Ok(());
        }
        let (text, _) = self.config(corner).await?;
        ensure!(
            is_intact(&text, self.edit),
            "people wrote\n{}and now it is\n{text}",
            document(self.edit)
        );
        let config: Value = serde_saphyr::from_str(&text)?;
        let pools = config["address-pools"].as_array().into_iter().flatten();
        let entries: Vec<&str> = pools
            .flat_map(|pool| pool["addresses"].as_array().into_iter().flatten())
            .filter_map(Value::as_str)
            .collect();
        let has = |address: &str| entries.iter().any(|entry| covers(entry, address));
        for service in corner.api::<Service>().list(&ListParams::default()).await? {
            let shows = ingress_of(&service).first().cloned().unwrap_or_default();
            let spec = service.spec.clone().unwrap_or_default();
            let asks = spec.load_balancer_ip.unwrap_or_default();
            let keeps = has(&shows) && (asks.is_empty() || asks == shows);
            let says = match spec.type_.as_deref() {
                Some("LoadBalancer") if keeps => shows.clone(),
                Some("LoadBalancer") if has(&asks) => asks,
                _ => String::new(),
            };
            if says != shows {
                let ingress = if says.is_empty() {
                    Value::Null
                } else {
                    json!([{ "ip": says }])
                };
                let patch = json!({
                    "metadata": { "resourceVersion": service.resource_version() },
                    "status": { "loadBalancer": { "ingress": ingress } },
                });
                // Who has changed it meanwhile is looked at the next time.
                corner.edit_service_status(&service.name_any(), &patch).await.ok();
            }
        }
        Ok(())
    }

    async fn objects(&self, corner: &Corner) -> Result<Vec<Object>> {
        let mut all = Vec::new();
        for kind in KINDS {
            for found in self.api(corner, kind).list(&ListParams::default()).await? {
                all.push(object(kind, &found, found.data["spec"].clone()));
            }
        }
        let secrets = kube::core::GroupVersionKind::gvk("", "v1", "Secret");
        let secrets = kube::core::ApiResource::from_gvk(&secrets);
        let secrets: Api<DynamicObject> = Api::namespaced_with(corner.client(), &self.namespace, &secrets);
        let ours = ListParams::default().labels("app.kubernetes.io/managed-by=groundplane");
        for found in secrets.list(&ours).await? {
            all.push(object("Secret", &found, Value::Null));
        }
        Ok(all)
    }

    /// What MetalLB's configuration lacks, or has too much of.
    pub(super) async fn is_well(&self, corner: &Corner) -> Result<()> {
        let mut wanted = Wanted::default();
        for service in corner.api::<Service>().list(&ListParams::default()).await? {
            wanted.addresses.extend(ingress_of(&service));
        }
        let own = corner.node_name("");
        for node in Api::<Node>::all(corner.client())
            .list(&ListParams::default())
            .await?
        {
            let name = node.name_any();
            if name.starts_with(&own) {
                let told = node.annotations().iter();
                wanted.learn(&name, told.map(|(key, value)| (&**key, &**value)));
            }
        }
        let wrong = if self.announcer == Announcer::MetallbConfigMap {
            wrong_in_text(&self.config(corner).await?.0, self.edit, &wanted)
        } else {
            let people = Self::people(corner, self.edit);
            wrong_in_objects(&self.objects(corner).await?, &people, &wanted)
        };
        wrong.map_or(Ok(()), |wrong| bail!("{wrong}"))
    }
}

fn object(kind: &str, found: &DynamicObject, spec: Value) -> Object {
    Object {
        kind: kind.to_owned(),
        name: found.name_any(),
        labels: found.labels().clone(),
        spec,
    }
}
