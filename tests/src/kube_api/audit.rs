//! What was asked of the API, by whom: the audit log. It counts the writes that a scenario allows.
//!
//! The log is shared by all tests of one API, so narrow it: by the user agent, and by the namespace or the names of one's
//! own corner. Requests are logged when they have been answered (watches when they have begun).

use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, SeekFrom};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::{Connection, User};
use crate::eventually::eventually;

/// Logs everything but health checks and discovery, without bodies. `/version` carries our marks.
pub(super) const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  nonResourceURLs: ["/version"]
- level: None
  nonResourceURLs: ["*"]
- level: Metadata
"#;

/// A point in the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u64);

/// One request, as the API server saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The user's name.
    pub user: String,
    /// The `User-Agent` of the client.
    pub agent: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// The resource, with its subresource: `services`, `services/status`; empty for a path that is none.
    pub resource: String,
    /// Empty for what has none.
    pub namespace: String,
    /// Empty where the request names none: lists, and creates that leave it to the body.
    pub name: String,
    /// The path and query.
    pub uri: String,
    /// The HTTP status of the answer; 0 when there was none.
    pub code: u16,
}

impl Request {
    /// Whether it asks for a change.
    pub fn is_write(&self) -> bool {
        matches!(
            self.verb.as_str(),
            "create" | "update" | "patch" | "delete" | "deletecollection"
        )
    }
}

/// Some requests, in the order in which they were answered.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    requests: Vec<Request>,
}

impl Audit {
    /// The requests.
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// How many they are.
    pub fn count(&self) -> usize {
        self.requests.len()
    }

    /// Those for which `keep` says so.
    #[must_use]
    pub fn only(mut self, keep: impl Fn(&Request) -> bool) -> Self {
        self.requests.retain(keep);
        self
    }

    /// Those of clients whose user agent begins with `prefix`.
    #[must_use]
    pub fn by_agent(self, prefix: &str) -> Self {
        self.only(|request| request.agent.starts_with(prefix))
    }

    /// Those of one user.
    #[must_use]
    pub fn by_user(self, user: User) -> Self {
        let name = user.name();
        self.only(|request| request.user == name)
    }

    /// Those in one namespace.
    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        self.only(|request| request.namespace == namespace)
    }

    /// Writes, other than those that keep a lease, which are made for as long as a process lives.
    #[must_use]
    pub fn writes(self) -> Self {
        self.only(|request| request.is_write() && request.resource != "leases")
    }

    /// How many there are of each user agent, verb and resource.
    pub fn counts(&self) -> BTreeMap<(&str, &str, &str), usize> {
        let mut counts = BTreeMap::new();
        for Request {
            agent,
            verb,
            resource,
            ..
        } in &self.requests
        {
            *counts
                .entry((agent.as_str(), verb.as_str(), resource.as_str()))
                .or_default() += 1;
        }
        counts
    }

    /// How many there are of each verb and resource, as `patch services/status`: what an assertion reads well with.
    pub fn summary(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for request in &self.requests {
            *counts
                .entry(format!("{} {}", request.verb, request.resource))
                .or_default() += 1;
        }
        counts
    }
}

impl Connection {
    /// A point in the audit log, after everything that was answered before this call.
    ///
    /// # Errors
    /// When the API does not answer.
    pub async fn mark(&self) -> Result<Mark> {
        Ok(Mark(self.log_until_now(Mark(0)).await?.1))
    }

    /// Every request that was answered between `mark` and this call.
    ///
    /// # Errors
    /// When the API does not answer, or its log cannot be read.
    pub async fn requests_since(&self, mark: Mark) -> Result<Audit> {
        let (text, _) = self.log_until_now(mark).await?;
        parse(&text)
    }

    /// The log from `mark` to the line of a request that is made now, and where that line ends. The server logs a request
    /// just after it has answered it; when the later request is in the log, the earlier ones are.
    async fn log_until_now(&self, mark: Mark) -> Result<(String, u64)> {
        let needle = format!("/version?mark={:016x}", fastrand::u64(..));
        let request = http::Request::get(&needle).body(Vec::new())?;
        self.client(User::Admin)?
            .request_text(request)
            .await
            .context("mark the audit log")?;
        eventually("the audit log has our mark", async || {
            let text = self.log_since(mark)?;
            let found = text.find(&needle).context("it is not there")?;
            let length = text[found..].find('\n').context("its line has no end yet")?;
            let end = found + length + 1;
            let begin = text[..found].rfind('\n').map_or(0, |newline| newline + 1);
            Ok((text[..begin].to_owned(), mark.0 + u64::try_from(end)?))
        })
        .await
    }

    fn log_since(&self, mark: Mark) -> Result<String> {
        let path = self.audit_log.display();
        let mut file = std::fs::File::open(&self.audit_log).with_context(|| format!("open {path}"))?;
        file.seek(SeekFrom::Start(mark.0))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .with_context(|| format!("read {path}"))?;
        // The last line may be half written, in the middle of a character.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    user: LineUser,
    #[serde(default)]
    user_agent: String,
    object_ref: Option<LineObject>,
    response_status: Option<LineStatus>,
}

#[derive(Deserialize)]
struct LineUser {
    #[serde(default)]
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LineObject {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct LineStatus {
    #[serde(default)]
    code: u16,
}

/// The requests in some whole lines of the log, each once, and without our marks.
fn parse(text: &str) -> Result<Audit> {
    let mut requests = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let line: Line = serde_json::from_str(line).with_context(|| format!("not an audit event: {line}"))?;
        // A watch is logged when it begins and when it ends, a request that panicked the server as neither.
        let begun = line.stage == "ResponseStarted";
        if begun != (line.verb == "watch") || line.request_uri.starts_with("/version?mark=") {
            continue;
        }
        let object = line.object_ref.unwrap_or_default();
        let resource = match object.subresource.as_str() {
            "" => object.resource,
            subresource => format!("{}/{subresource}", object.resource),
        };
        requests.push(Request {
            user: line.user.username,
            agent: line.user_agent,
            verb: line.verb,
            resource,
            namespace: object.namespace,
            name: object.name,
            uri: line.request_uri,
            code: line.response_status.map_or(0, |status| status.code),
        });
    }
    Ok(Audit { requests })
}

/// Fails unless exactly these writes were made, each `verb resource` with its number.
///
/// # Errors
/// With both tables.
pub fn ensure_writes(audit: &Audit, expected: &[(&str, usize)]) -> Result<()> {
    let expected: BTreeMap<String, usize> = expected
        .iter()
        .map(|(what, count)| ((*what).to_owned(), *count))
        .collect();
    let found = audit.clone().writes().summary();
    ensure!(
        found == expected,
        "writes were {found:?} and should be {expected:?}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn line(stage: &str, verb: &str, uri: &str, object: &str) -> String {
        format!(
            "{{\"kind\":\"Event\",\"auditID\":\"1\",\"stage\":\"{stage}\",\"requestURI\":\"{uri}\",\"verb\":\"{verb}\",\
             \"user\":{{\"username\":\"admin\"}},\"userAgent\":\"groundplane/0.1\",\"objectRef\":{object},\
             \"responseStatus\":{{\"metadata\":{{}},\"code\":200}}}}\n"
        )
    }

    #[test]
    fn a_request_counts_once_whatever_its_stages_are() -> Result<()> {
        let services =
            "{\"resource\":\"services\",\"namespace\":\"a\",\"name\":\"web\",\"subresource\":\"status\"}";
        let text = [
            line(
                "ResponseStarted",
                "watch",
                "/api/v1/services?watch=1",
                "{\"resource\":\"services\"}",
            ),
            line(
                "ResponseComplete",
                "watch",
                "/api/v1/services?watch=1",
                "{\"resource\":\"services\"}",
            ),
            line(
                "ResponseComplete",
                "patch",
                "/api/v1/namespaces/a/services/web/status",
                services,
            ),
            line("ResponseComplete", "get", "/version?mark=00", "null"),
            line(
                "ResponseComplete",
                "update",
                "/apis/coordination.k8s.io/v1/x",
                "{\"resource\":\"leases\"}",
            ),
        ]
        .concat();
        let audit = parse(&text)?;
        let expected = [
            ("patch services/status", 1),
            ("update leases", 1),
            ("watch services", 1),
        ];
        assert_eq!(
            audit.summary(),
            expected.map(|(what, count)| (what.to_owned(), count)).into()
        );
        ensure_writes(&audit, &[("patch services/status", 1)])?;
        assert!(ensure_writes(&audit, &[]).is_err());
        assert_eq!(audit.clone().in_namespace("a").count(), 1);
        assert_eq!(audit.clone().by_agent("groundplane/").count(), 3);
        assert_eq!(audit.by_agent("kubectl").count(), 0);
        Ok(())
    }

    #[test]
    fn a_line_that_is_no_event_is_an_error() {
        assert!(parse("{\"stage\":").is_err());
    }
}
