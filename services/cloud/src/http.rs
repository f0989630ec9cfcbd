//! The HTTP client of every driver: no call without a deadline, no secret in what it says, nothing repeated that may not be.
//!
//! ```text
//!  call ─► slot (bounded concurrency) ─► ┌ gate (rate limit) ─► try ─► classify ┐ ─► answer
//!                                        └──────◄── GET, DELETE: jitter ◄───────┘
//!                                         all of it within one deadline, the body included
//! ```
//!
//! `POST` and `PUT` are sent once, whatever happens: after a failure without an answer the caller lists before it tries again. `GET` and
//! `DELETE` are tried at most three times, save a `DELETE` whose caller must know that it was its own. A rate limit that the cloud tells of holds back every call of the driver; where it would
//! outlast a call's deadline, the call fails at once and says when to come back.

mod classify;
mod gate;
mod metrics;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use groundplane_core::Clock;
use groundplane_runtime::config::SecretFile;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument as _, debug, field, info_span};

use crate::tries::Tries;
use crate::{CloudError, CloudErrorKind};
use gate::Gate;
pub(crate) use metrics::HttpMetrics;

/// A connection that takes longer than this will not come.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Below the idle timeouts of common load balancers (60 s), so that a pooled connection is rarely dead when it is used.
const POOL_IDLE: Duration = Duration::from_secs(30);
/// A page of 1000 machines is about 4 MB. More than this is not an answer to us.
const LONGEST_BODY: usize = 64 << 20;

/// A client with timeouts and without redirects, which would take the token elsewhere. `timeout` bounds a whole request.
///
/// # Errors
/// The machine has no usable root certificates.
pub fn client(timeout: Duration) -> Result<reqwest::Client, reqwest::Error> {
    groundplane_runtime::tls::install();
    reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(timeout)
        .pool_idle_timeout(POOL_IDLE)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .user_agent(concat!("groundplane/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Can this id stand in a path as it is?
pub(crate) fn is_plain(id: &str) -> bool {
    !id.is_empty()
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// How a driver talks to its API.
#[derive(Clone, Debug)]
pub(crate) struct HttpOptions {
    /// In metrics and traces.
    pub(crate) driver: &'static str,
    /// Without a slash at its end.
    pub(crate) base_url: String,
    /// Where the token goes.
    pub(crate) token_header: HeaderName,
    /// What stands before it there: `Bearer `.
    pub(crate) token_prefix: &'static str,
    /// How the API says what went wrong.
    pub(crate) errors: ErrorBodies,
    /// Where the token is, and the setting that says so.
    pub(crate) token: SecretFile,
    pub(crate) token_field: &'static str,
    /// Other secrets of ours that the cloud may repeat in what it says, each with its setting.
    pub(crate) hidden: Vec<(SecretFile, &'static str)>,
    /// Bound of one call, all of its tries included.
    pub(crate) deadline: Duration,
    /// Calls at once.
    pub(crate) concurrency: usize,
}

/// How an API says what went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorBodies {
    /// `{"error": "…"}` or `{"errors": ["…"]}`.
    Texts,
    /// `{"code": 404, "message": "…"}`.
    Coded,
}

/// A call, before it is made.
pub(crate) struct Call {
    /// For people: `list reservations`.
    pub(crate) operation: String,
    pub(crate) method: Method,
    /// The path's pattern, for metrics and traces: `/ips/{id}`.
    pub(crate) route: &'static str,
    /// The path itself.
    pub(crate) path: String,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) body: Option<Value>,
    /// Sent once, whatever happens to it.
    pub(crate) once: bool,
}

/// Without the body, which may hold a password.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("operation", &self.operation)
            .field("method", &self.method)
            .field("path", &self.path)
            .field("query", &self.query)
            .finish_non_exhaustive()
    }
}

impl Call {
    pub(crate) fn new(
        operation: impl Into<String>,
        method: Method,
        route: &'static str,
        path: impl Into<String>,
    ) -> Self {
        let (operation, path) = (operation.into(), path.into());
        Self {
            operation,
            method,
            route,
            path,
            query: Vec::new(),
            body: None,
            once: false,
        }
    }

    /// What is called by its id below `/ips`: in both clouds an address, in one an assignment, too.
    ///
    /// # Errors
    /// `Refused`: that is no id.
    pub(crate) fn on_ip(operation: impl Into<String>, method: Method, id: &str) -> Result<Self, CloudError> {
        let call = Self::new(operation, method, "/ips/{id}", format!("/ips/{id}"));
        if is_plain(id) {
            return Ok(call);
        }
        Err(call.error(CloudErrorKind::Refused, "not an id of this cloud"))
    }

    pub(crate) fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    pub(crate) fn body(self, body: Value) -> Self {
        Self {
            body: Some(body),
            ..self
        }
    }

    /// Sent once, though its method could be repeated: a repeated `DELETE` whose first answer was lost is told 404, and its caller takes
    /// its own deed for somebody else's.
    pub(crate) fn once(self) -> Self {
        Self { once: true, ..self }
    }

    /// An error in this call.
    pub(crate) fn error(&self, kind: CloudErrorKind, message: impl Into<String>) -> CloudError {
        CloudError::new(kind, &self.operation, message)
    }

    fn may_repeat(&self) -> bool {
        !self.once && matches!(self.method, Method::GET | Method::DELETE)
    }
}

/// A driver's way to its API. Cheap to clone; all clones share slots, gate and connections.
#[derive(Clone)]
pub(crate) struct Http {
    inner: Arc<Inner>,
}

struct Inner {
    options: HttpOptions,
    client: reqwest::Client,
    slots: Semaphore,
    gate: Gate,
    metrics: HttpMetrics,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http")
            .field("base_url", &self.inner.options.base_url)
            .finish_non_exhaustive()
    }
}

/// What came back, whatever its status.
struct Reply {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Http {
    pub(crate) fn new(
        options: HttpOptions,
        metrics: HttpMetrics,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, reqwest::Error> {
        let client = client(options.deadline)?;
        let slots = Semaphore::new(options.concurrency);
        let inner = Inner {
            options,
            client,
            slots,
            gate: Gate::new(clock),
            metrics,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Makes a call and decodes its answer. An answer that is not what it should be is `Unavailable`.
    pub(crate) async fn read<T: DeserializeOwned>(&self, call: &Call) -> Result<T, CloudError> {
        self.run(call, |reply| json(&reply.body)).await
    }

    /// As [`Http::read`], with what a header of the answer says; `None`: there is none that is a text.
    pub(crate) async fn read_with<T: DeserializeOwned>(
        &self,
        call: &Call,
        header: &'static str,
    ) -> Result<(T, Option<String>), CloudError> {
        self.run(call, |reply| {
            let said = reply.headers.get(header).and_then(|value| value.to_str().ok());
            Ok((json(&reply.body)?, said.map(str::to_owned)))
        })
        .await
    }

    /// Makes a call whose answer does not matter, beyond its status.
    pub(crate) async fn send(&self, call: &Call) -> Result<(), CloudError> {
        self.run(call, |_| Ok(())).await
    }

    /// As [`Http::send`], of what may be gone already: that is success.
    pub(crate) async fn delete(&self, call: &Call) -> Result<(), CloudError> {
        match self.send(call).await {
            Err(error) if error.is(CloudErrorKind::NotFound) => Ok(()),
            result => result,
        }
    }

    async fn run<T>(
        &self,
        call: &Call,
        decode: impl Fn(&Reply) -> Result<T, String>,
    ) -> Result<T, CloudError> {
        // Waiting for a slot is the caller's time: its own deadline drops this future.
        let _slot = self
            .inner
            .slots
            .acquire()
            .await
            .map_err(|_| call.error(CloudErrorKind::Unavailable, "closed"))?;
        let deadline = Instant::now() + self.inner.options.deadline;
        let mut tries = Tries::default();
        loop {
            self.pass_gate(call, deadline).await?;
            let attempt = tries.number();
            let error = match self.attempt(call, attempt, deadline, &decode).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let may_repeat = call.may_repeat() && is_passing(error.kind);
            let Some(pause) = may_repeat.then(|| tries.rest(&error, deadline)).flatten() else {
                return Err(error);
            };
            debug!(error = %error, attempt, pause = ?pause, "trying again");
            tokio::time::sleep(pause).await;
        }
    }

    /// Waits for the rate limit to pass, where it does in time.
    async fn pass_gate(&self, call: &Call, deadline: Instant) -> Result<(), CloudError> {
        while let Some(opens) = self.inner.gate.opens() {
            if opens >= deadline {
                let mut error = call.error(
                    CloudErrorKind::RateLimited,
                    "held back: the cloud's rate limit is used up",
                );
                error.retry_after = Some(opens.saturating_duration_since(Instant::now()));
                return Err(error);
            }
            tokio::time::sleep_until(opens).await;
        }
        Ok(())
    }

    /// One try: traced, counted, bounded.
    async fn attempt<T>(
        &self,
        call: &Call,
        attempt: u32,
        deadline: Instant,
        decode: &impl Fn(&Reply) -> Result<T, String>,
    ) -> Result<T, CloudError> {
        // One token for the request and for what must not be shown of its answer: the file may change meanwhile.
        let token = self.token(call)?;
        let span = info_span!(
            "cloud.http",
            otel.kind = "client",
            driver = self.inner.options.driver,
            http.request.method = %call.method,
            http.route = call.route,
            http.response.status_code = field::Empty,
            attempt,
        );
        let observer = self
            .inner
            .metrics
            .start(self.inner.options.driver, call.route, &call.method);
        let started = Instant::now();
        let outcome = timeout_at(deadline, self.exchange(call, &token))
            .instrument(span.clone())
            .await;
        let status = match &outcome {
            Ok(Ok(reply)) => Some(reply.status),
            _ => None,
        };
        // Neither query nor bodies, which may hold what is nobody's business. Without a status there was no whole answer.
        span.in_scope(|| {
            debug!(
                method = %call.method,
                path = call.path,
                status,
                milliseconds = started.elapsed().as_millis(),
                "called the cloud"
            );
        });
        let reply = match outcome {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) => {
                observer.finish(if error.is(CloudErrorKind::Timeout) {
                    "timeout"
                } else {
                    "error"
                });
                return Err(error);
            }
            Err(_) => {
                observer.finish("timeout");
                let waited = self.inner.options.deadline;
                return Err(call.error(CloudErrorKind::Timeout, format!("no answer within {waited:?}")));
            }
        };
        span.record("http.response.status_code", reply.status);
        observer.finish(metrics::code(reply.status));
        let held = self.inner.gate.heed(reply.status, &reply.headers);
        if !(200..300).contains(&reply.status) {
            let scrub = |text: &str| self.scrub(text, &token);
            let mut error =
                classify::refusal(call, reply.status, &reply.body, self.inner.options.errors, &scrub);
            error.retry_after = held.or_else(|| gate::retry_after(&reply.headers));
            return Err(error);
        }
        decode(&reply).map_err(|message| {
            call.error(
                CloudErrorKind::Unavailable,
                format!("the answer cannot be read: {}", self.scrub(&message, &token)),
            )
        })
    }

    async fn exchange(&self, call: &Call, token: &SecretString) -> Result<Reply, CloudError> {
        let failed = |error: reqwest::Error| classify::transport(call, error);
        let options = &self.inner.options;
        let mut request = self
            .inner
            .client
            .request(call.method.clone(), format!("{}{}", options.base_url, call.path))
            .header(http::header::ACCEPT, "application/json")
            .header(options.token_header.clone(), self.header(call, token)?);
        if !call.query.is_empty() {
            request = request.query(&call.query);
        }
        if let Some(body) = &call.body {
            request = request.json(body);
        }
        let mut response = request.send().await.map_err(failed)?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > LONGEST_BODY {
                return Err(call.error(CloudErrorKind::Unavailable, "the answer is too long"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Reply {
            status,
            headers,
            body,
        })
    }

    /// The token, read again when its file changes.
    fn token(&self, call: &Call) -> Result<SecretString, CloudError> {
        let options = &self.inner.options;
        let token = options.token.read(options.token_field);
        token.map_err(|error| call.error(CloudErrorKind::Unauthenticated, error.to_string()))
    }

    /// The token as a header that shows nobody its value.
    fn header(&self, call: &Call, token: &SecretString) -> Result<HeaderValue, CloudError> {
        let options = &self.inner.options;
        let text = SecretString::from(format!("{}{}", options.token_prefix, token.expose_secret()));
        let mut value = HeaderValue::from_str(text.expose_secret()).map_err(|_| {
            let (field, source) = (options.token_field, &options.token);
            let message = format!("{field}: `{source}` holds characters that a token cannot have");
            call.error(CloudErrorKind::Unauthenticated, message)
        })?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Takes our secrets out of a text that came from the cloud. Whole texts only: of one that was cut, half a secret may be left.
    fn scrub(&self, text: &str, token: &SecretString) -> String {
        let mut text = text.replace(token.expose_secret(), "[token]");
        for (file, field) in &self.inner.options.hidden {
            if let Ok(secret) = file.read(field) {
                text = text.replace(secret.expose_secret(), "[secret]");
            }
        }
        text
    }
}

fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

/// May the same call succeed a little later?
fn is_passing(kind: CloudErrorKind) -> bool {
    matches!(
        kind,
        CloudErrorKind::Unavailable | CloudErrorKind::RateLimited | CloudErrorKind::Timeout
    )
}
