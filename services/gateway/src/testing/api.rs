//! An API server in memory: objects by path, JSON merge patches and strategic ones, preconditions, scripted failures, and a journal.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    version: u64,
    journal: Vec<String>,
    failures: Vec<Failure>,
    /// Collections whose lists say what is there.
    served: std::collections::BTreeSet<String>,
    /// Answers to other lists and watches, in order; after the last one, none comes.
    streams: std::collections::VecDeque<(u16, String)>,
}

/// Stands for no answer at all.
const HANG: u16 = 0;

struct Failure {
    call: String,
    code: u16,
    /// So many pass before.
    skip: usize,
    times: usize,
}

impl Failure {
    /// Is it the turn of this call to fail?
    fn falls(&mut self) -> bool {
        let passes = self.skip > 0;
        let left = if passes { &mut self.skip } else { &mut self.times };
        *left -= 1;
        !passes
    }
}

/// The API server. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub(crate) struct FakeApi {
    state: Arc<Mutex<State>>,
}

impl FakeApi {
    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { api.answer(request).await }
        });
        Client::new(service, "default")
    }

    /// Stores an object of a collection, with an uid and a version; returns it.
    pub(crate) fn put(&self, collection: &str, mut object: Value) -> Value {
        let mut state = self.state.lock();
        state.version += 1;
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        object["metadata"]["resourceVersion"] = json!(state.version.to_string());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{}", state.version));
        }
        state
            .objects
            .insert(format!("{collection}/{name}"), object.clone());
        object
    }

    /// Lists of this collection say what is stored.
    pub(crate) fn serve(&self, collection: &str) {
        self.state.lock().served.insert(collection.to_owned());
    }

    /// What a collection has.
    pub(crate) fn all(&self, collection: &str) -> Vec<Value> {
        let list: Value = serde_json::from_str(&self.state.lock().list(collection, "")).unwrap();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Removes the object at `path`, by force.
    pub(crate) fn remove(&self, path: &str) {
        self.state.lock().objects.remove(path);
    }

    /// The object at `path`.
    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.state.lock().objects.get(path).cloned()
    }

    /// Calls since the last look: `PATCH /api/v1/nodes/n`.
    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().journal)
    }

    /// The next `times` calls that start with `call` (`PATCH /api/v1/nodes`) fail with `code`.
    pub(crate) fn fail(&self, call: &str, code: u16, times: usize) {
        self.fail_after(call, 0, code, times);
    }

    /// The same, but so many calls of the kind pass before.
    pub(crate) fn fail_after(&self, call: &str, skip: usize, code: u16, times: usize) {
        self.state.lock().failures.push(Failure {
            call: call.to_owned(),
            code,
            skip,
            times,
        });
    }

    /// Calls that start with `call` are never answered.
    pub(crate) fn hang(&self, call: &str) {
        self.fail(call, HANG, usize::MAX);
    }

    /// The next list or watch is never answered.
    pub(crate) fn silence(&self) {
        self.stream(HANG, "");
    }

    /// The next list or watch is answered like this.
    pub(crate) fn stream(&self, code: u16, body: impl Into<String>) {
        self.state.lock().streams.push_back((code, body.into()));
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let path = parts.uri.path().to_owned();
        let kind = parts
            .headers
            .get(http::header::CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok());
        let strategic = kind == Some("application/strategic-merge-patch+json");
        let query = parts.uri.query().unwrap_or_default();
        let outcome = self
            .state
            .lock()
            .handle(&parts.method, &path, query, &body, strategic);
        let Some((code, body)) = outcome else {
            return std::future::pending().await;
        };
        Ok(Response::builder()
            .status(StatusCode::from_u16(code)?)
            .body(Body::from(body.into_bytes()))?)
    }
}

impl State {
    fn handle(
        &mut self,
        method: &Method,
        path: &str,
        query: &str,
        body: &Bytes,
        strategic: bool,
    ) -> Option<(u16, String)> {
        let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let call = match (method, body["metadata"]["name"].as_str()) {
            (&Method::POST, Some(name)) if self.served.contains(path) => format!("{method} {path}/{name}"),
            _ => format!("{method} {path}"),
        };
        self.journal.push(call.clone());
        let failure = self
            .failures
            .iter_mut()
            .find(|f| f.times > 0 && call.starts_with(&f.call));
        if let Some(failure) = failure
            && failure.falls()
        {
            return (failure.code != HANG).then(|| error(failure.code));
        }
        let object = path.strip_suffix("/status").unwrap_or(path);
        Some(match *method {
            Method::PATCH => self.patch(object, &body, strategic),
            Method::DELETE => self.delete(object, &body["preconditions"]),
            Method::POST if self.served.contains(path) => self.create(path, body),
            Method::POST => (201, body.to_string()),
            Method::GET if self.served.contains(path) => (200, self.list(path, &label(query))),
            Method::GET if !is_collection(path) => {
                let object = self.objects.get(path).map(|object| (200, object.to_string()));
                object.unwrap_or_else(|| error(404))
            }
            _ => return self.streams.pop_front().filter(|(code, _)| *code != HANG),
        })
    }

    fn create(&mut self, collection: &str, mut object: Value) -> (u16, String) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{collection}/{name}");
        if self.objects.contains_key(&path) {
            return error(409);
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        self.objects.insert(path, object.clone());
        (201, object.to_string())
    }

    /// What is there, with a label, if one is named.
    fn list(&self, collection: &str, label: &str) -> String {
        let prefix = format!("{collection}/");
        let within = |path: &str| path.strip_prefix(&prefix).is_some_and(|name| !name.contains('/'));
        let labelled = |object: &Value| {
            let pair = label.split_once('=');
            pair.is_none_or(|(key, value)| object["metadata"]["labels"][key] == value)
        };
        let items: Vec<&Value> = self
            .objects
            .iter()
            .filter(|(path, object)| within(path) && labelled(object))
            .map(|(_, object)| object)
            .collect();
        json!({ "metadata": {}, "items": items }).to_string()
    }

    fn patch(&mut self, path: &str, change: &Value, strategic: bool) -> (u16, String) {
        let Some(object) = self.objects.get_mut(path) else {
            return error(404);
        };
        let read = &change["metadata"]["resourceVersion"];
        if !read.is_null() && *read != object["metadata"]["resourceVersion"] {
            return error(409);
        }
        let uid = &change["metadata"]["uid"];
        if !uid.is_null() && *uid != object["metadata"]["uid"] {
            return error(409);
        }
        merge(
            object,
            &if strategic {
                plain(object, change)
            } else {
                change.clone()
            },
        );
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        (200, object.to_string())
    }

    fn delete(&mut self, path: &str, preconditions: &Value) -> (u16, String) {
        let Some(object) = self.objects.get(path) else {
            return error(404);
        };
        for field in ["uid", "resourceVersion"] {
            if preconditions[field] != object["metadata"][field] {
                return error(409);
            }
        }
        self.objects.remove(path);
        (
            200,
            json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" }).to_string(),
        )
    }
}

/// The label that a list asks for: `key=value`.
fn label(query: &str) -> String {
    let asked = query
        .split('&')
        .find_map(|part| part.strip_prefix("labelSelector="));
    asked.unwrap_or_default().replace("%2F", "/").replace("%3D", "=")
}

/// Is it the path of a list or a watch?
fn is_collection(path: &str) -> bool {
    path.ends_with("/nodes") || path.ends_with("/services")
}

fn error(code: u16) -> (u16, String) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": "Scripted", "message": format!("scripted {code}"),
    });
    (code, status.to_string())
}

/// A strategic merge patch as a plain one: finalizers are a set, conditions a map by type.
fn plain(object: &Value, patch: &Value) -> Value {
    let mut plain = patch.clone();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let metadata = plain["metadata"].as_object_mut().unwrap();
    let removed = metadata
        .remove("$deleteFromPrimitiveList/finalizers")
        .unwrap_or_default();
    let mut finalizers = list(&object["metadata"]["finalizers"]);
    finalizers.extend(list(&patch["metadata"]["finalizers"]));
    finalizers.retain(|finalizer| !list(&removed).contains(finalizer));
    finalizers.dedup();
    plain["metadata"]["finalizers"] = json!(finalizers);
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
    let target = target.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}
