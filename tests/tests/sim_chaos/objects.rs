//! The objects of a Kubernetes API server, in memory: versions, preconditions, patches, finalizers, and what a watch tells.

use std::collections::BTreeMap;

use groundplane_tests::kube_api::proxy::Call;
use serde_json::{Value, json};

/// Names an object: resource, namespace, name.
pub(crate) type Path = (String, String, String);

/// Something that a watch tells.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) version: u64,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub(crate) kind: &'static str,
    pub(crate) path: Path,
    pub(crate) object: Value,
}

/// What a write did: the object before and after; `None` where it does not exist.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) path: Path,
    pub(crate) before: Option<Value>,
    pub(crate) after: Option<Value>,
}

/// An answer, and what was done.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) done: Option<Done>,
}

/// How a patch is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Merge,
    Strategic,
    /// Server-side apply, by one manager.
    Apply,
}

/// The objects.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    all: BTreeMap<Path, Value>,
    version: u64,
    told: Vec<Told>,
    /// What was applied last to an object.
    applied: BTreeMap<Path, Value>,
}

impl Objects {
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<&Value> {
        let path = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        self.all.get(&path)
    }

    /// Objects of a resource, of one namespace or of all.
    pub(crate) fn list<'a>(
        &'a self,
        resource: &'a str,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Path, &'a Value)> {
        self.all
            .iter()
            .filter(move |(path, _)| path.0 == resource && (namespace.is_empty() || path.1 == namespace))
    }

    /// What happened to objects of a resource after `version`.
    pub(crate) fn since(&self, version: u64, resource: &str, namespace: &str) -> Vec<Told> {
        let first = self.told.partition_point(|told| told.version <= version);
        self.told[first..]
            .iter()
            .filter(|told| told.path.0 == resource && (namespace.is_empty() || told.path.1 == namespace))
            .cloned()
            .collect()
    }

    fn tell(&mut self, kind: &'static str, path: &Path, object: &Value) {
        self.told.push(Told {
            version: self.version,
            kind,
            path: path.clone(),
            object: object.clone(),
        });
    }

    /// Makes an object.
    pub(crate) fn create(&mut self, resource: &str, namespace: &str, mut object: Value) -> Answer {
        let named = object["metadata"]["name"].as_str().map(str::to_owned);
        let name = named.unwrap_or_else(|| {
            let begin = object["metadata"]["generateName"].as_str().unwrap_or_default();
            format!("{begin}{}", self.version)
        });
        let path = (resource.to_owned(), namespace.to_owned(), name.clone());
        if self.all.contains_key(&path) {
            return refused(409, "AlreadyExists");
        }
        self.version += 1;
        let metadata = &mut object["metadata"];
        metadata["name"] = json!(name);
        if !namespace.is_empty() {
            metadata["namespace"] = json!(namespace);
        }
        metadata["uid"] = json!(format!("uid-{}", self.version));
        metadata["resourceVersion"] = json!(self.version.to_string());
        self.all.insert(path.clone(), object.clone());
        self.tell("ADDED", &path, &object);
        done(201, object.clone(), path, None, Some(object))
    }

    /// Changes an object in place, as its owner does: no precondition.
    pub(crate) fn edit(
        &mut self,
        resource: &str,
        namespace: &str,
        name: &str,
        edit: impl FnOnce(&mut Value),
    ) {
        let path = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        if let Some(before) = self.all.get(&path).cloned() {
            let mut after = before.clone();
            edit(&mut after);
            self.put(&path, &before, after);
        }
    }

    /// Keeps what an object has become, or lets it go where nothing holds it any more.
    fn put(&mut self, path: &Path, before: &Value, mut after: Value) -> Option<Value> {
        let held = after["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|all| !all.is_empty());
        if !after["metadata"]["deletionTimestamp"].is_null() && !held {
            self.version += 1;
            after["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.all.remove(path);
            self.applied.remove(path);
            self.tell("DELETED", path, &after);
            return None;
        }
        if after != *before {
            self.version += 1;
            after["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.all.insert(path.clone(), after.clone());
            self.tell("MODIFIED", path, &after);
        }
        Some(after)
    }

    /// Changes an object by a patch, of its status or of all else.
    pub(crate) fn patch(&mut self, call: &Call, manner: Manner, patch: &Value) -> Answer {
        let (resource, status) = match call.resource.strip_suffix("/status") {
            Some(resource) => (resource, true),
            None => (call.resource.as_str(), false),
        };
        let at = (resource.to_owned(), call.namespace.clone(), call.name.clone());
        let Some(before) = self.all.get(&at).cloned() else {
            return refused(404, "NotFound");
        };
        for field in ["resourceVersion", "uid"] {
            let read = &patch["metadata"][field];
            if !read.is_null() && *read != before["metadata"][field] {
                return refused(409, "Conflict");
            }
        }
        let mut change = match manner {
            Manner::Merge | Manner::Apply => patch.clone(),
            Manner::Strategic => plain(&before, patch),
        };
        if let Some(fields) = change.as_object_mut()
            && matches!(resource, "nodes" | "services")
        {
            // As the API server: each part by its own way. Metadata goes by both.
            fields.retain(|key, _| key == "metadata" || (key == "status") == status);
        }
        let mut after = before.clone();
        merge(&mut after, &change);
        after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
        let after = self.put(&at, &before, after);
        let body = after.clone().unwrap_or_else(|| before.clone());
        done(200, body, at, Some(before), after)
    }

    /// Makes an object say this, and no more what was applied before and is not among it; makes the object, if there is none.
    pub(crate) fn apply(&mut self, call: &Call, wanted: &Value) -> Answer {
        let path = (call.resource.clone(), call.namespace.clone(), call.name.clone());
        let applied = self.applied.insert(path.clone(), wanted.clone());
        let Some(before) = self.all.get(&path).cloned() else {
            return self.create(&call.resource, &call.namespace, wanted.clone());
        };
        let mut after = before.clone();
        forget(&mut after, &applied.unwrap_or_default(), wanted);
        merge(&mut after, wanted);
        let after = self.put(&path, &before, after);
        let body = after.clone().unwrap_or_else(|| before.clone());
        done(200, body, path, Some(before), after)
    }

    /// Deletes an object, or marks it where finalizers hold it.
    pub(crate) fn delete(&mut self, call: &Call, preconditions: &Value) -> Answer {
        let path = (call.resource.clone(), call.namespace.clone(), call.name.clone());
        let Some(before) = self.all.get(&path).cloned() else {
            return refused(404, "NotFound");
        };
        for field in ["resourceVersion", "uid"] {
            let read = &preconditions[field];
            if !read.is_null() && *read != before["metadata"][field] {
                return refused(409, "Conflict");
            }
        }
        let mut after = before.clone();
        after["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let after = self.put(&path, &before, after);
        let body = json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" });
        done(200, body, path, Some(before), after)
    }
}

fn done(code: u16, body: Value, path: Path, before: Option<Value>, after: Option<Value>) -> Answer {
    Answer {
        code,
        body,
        done: Some(Done { path, before, after }),
    }
}

/// A refusal, with the body that the API server gives.
pub(crate) fn refused(code: u16, reason: &str) -> Answer {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": reason, "message": format!("simulated {reason}"),
    });
    Answer {
        code,
        body,
        done: None,
    }
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// A strategic merge patch as a plain one: finalizers are a set, conditions a map by type.
fn plain(object: &Value, patch: &Value) -> Value {
    let mut plain = patch.clone();
    if let Some(metadata) = plain["metadata"].as_object_mut() {
        let removed = metadata.remove("$deleteFromPrimitiveList/finalizers");
        let removed = list(&removed.unwrap_or_default());
        let mut finalizers = list(&object["metadata"]["finalizers"]);
        for one in list(&patch["metadata"]["finalizers"]) {
            if !finalizers.contains(&one) {
                finalizers.push(one);
            }
        }
        finalizers.retain(|finalizer| !removed.contains(finalizer));
        let change = if finalizers.is_empty() {
            Value::Null
        } else {
            json!(finalizers)
        };
        plain["metadata"]["finalizers"] = change;
    }
    if patch["status"]["conditions"].is_array() {
        let mut conditions = list(&object["status"]["conditions"]);
        for patch in list(&patch["status"]["conditions"]) {
            conditions.retain(|condition| condition["type"] != patch["type"]);
            if patch["$patch"] != "delete" {
                conditions.push(patch);
            }
        }
        plain["status"]["conditions"] = json!(conditions);
    }
    plain
}

/// RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(target) = target.as_object_mut() else {
        return;
    };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Takes away what `old` says and `new` does not.
fn forget(target: &mut Value, old: &Value, new: &Value) {
    let (Some(target), Some(old)) = (target.as_object_mut(), old.as_object()) else {
        return;
    };
    for (key, old) in old {
        match (target.get_mut(key), new.get(key)) {
            (Some(_), None) => {
                target.remove(key);
            }
            (Some(value), Some(new)) => forget(value, old, new),
            (None, _) => {}
        }
    }
}
