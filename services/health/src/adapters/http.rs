//! HTTP and HTTPS: `GET /readyz`.
//!
//! 2xx is ready. So are 401 and 403: a server that tells whom it knows is alive, and our credentials are what is wrong; the detail
//! says so. Everything else is not ready, and the detail says what the server said. Redirects are not followed, and proxies of the
//! environment are not asked.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::body::Body;

use super::credentials::{Credentials, Loaded};
use super::detail::{Failure, of_body};
use super::dial::{Attempt, dial};
use super::{Answer, KEPT_FOR};

/// As much of a body as is read. `/readyz` that fails is about 2 KiB long.
const BODY: usize = 16 * 1024;

type Driver = Pin<Box<dyn Future<Output = Result<(), hyper::Error>> + Send>>;

/// A connection between two probes. Nobody drives it meanwhile; whether the server closed it shows with the next request.
struct Kept {
    sender: SendRequest<Body>,
    /// `None`: it ended.
    driver: Option<Driver>,
    since: Instant,
    with: Arc<Loaded>,
}

/// Asks by HTTP.
pub(super) struct HttpProbe {
    path: String,
    credentials: Arc<Credentials>,
    /// One an address. Held to take and to put back.
    kept: Mutex<BTreeMap<SocketAddr, Kept>>,
}

impl std::fmt::Debug for HttpProbe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpProbe")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl HttpProbe {
    pub(super) fn new(path: &str, credentials: Arc<Credentials>) -> Self {
        Self {
            path: path.to_owned(),
            credentials,
            kept: Mutex::default(),
        }
    }

    pub(super) async fn ask(&self, address: SocketAddr, attempt: &Attempt) -> Answer {
        let with = self.credentials.current();
        if let Some(mut kept) = self.take(address, &with) {
            // The server may have closed it since; whether it lives, a fresh one tells.
            if let Ok(answer) = self.get(&mut kept, address).await {
                return self.judge(answer, address, kept).await;
            }
        }
        let wire = dial(address, &with, attempt).await?;
        let made = http1::handshake(TokioIo::new(wire)).await;
        let (sender, connection) = made.map_err(|error| Failure::of_request(&error))?;
        let mut kept = Kept {
            sender,
            driver: Some(Box::pin(connection)),
            since: Instant::now(),
            with,
        };
        let answer = self.get(&mut kept, address).await;
        let answer = answer.map_err(|error| Failure::of_request(&error))?;
        self.judge(answer, address, kept).await
    }

    async fn get(&self, kept: &mut Kept, address: SocketAddr) -> Result<Response<Incoming>, hyper::Error> {
        let mut request = Request::new(Body::empty());
        // The path was checked with the configuration.
        *request.uri_mut() = self.path.parse().unwrap_or_default();
        let headers = request.headers_mut();
        if let Ok(host) = header::HeaderValue::try_from(address.to_string()) {
            headers.insert(header::HOST, host);
        }
        let agent = header::HeaderValue::from_static(concat!("groundplane/", env!("CARGO_PKG_VERSION")));
        headers.insert(header::USER_AGENT, agent);
        if let Some(token) = &kept.with.authorization {
            headers.insert(header::AUTHORIZATION, token.clone());
        }
        let Kept { sender, driver, .. } = kept;
        drive(driver, async {
            sender.ready().await?;
            sender.send_request(request).await
        })
        .await
    }

    /// Reads the answer to its end, and keeps the connection where it can be used again.
    async fn judge(&self, answer: Response<Incoming>, address: SocketAddr, mut kept: Kept) -> Answer {
        let status = answer.status();
        let body = drive(&mut kept.driver, read(answer.into_body())).await;
        let body = body.map_err(|error| Failure::of_request(&error))?;
        if body.whole && kept.driver.is_some() {
            self.keep(address, kept);
        }
        if status.is_success() {
            return Ok(String::new());
        }
        let told = of_body(status.as_u16(), &body.bytes);
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Ok(format!("alive, but our credentials are not accepted ({told})"))
            }
            _ => Err(Failure::alive(told)),
        }
    }

    fn take(&self, address: SocketAddr, with: &Arc<Loaded>) -> Option<Kept> {
        let mut kept = self.kept.lock();
        kept.retain(|_, kept| kept.since.elapsed() < KEPT_FOR && Arc::ptr_eq(&kept.with, with));
        kept.remove(&address).filter(|kept| !kept.sender.is_closed())
    }

    fn keep(&self, address: SocketAddr, kept: Kept) {
        self.kept.lock().insert(address, kept);
    }
}

struct Read {
    bytes: Vec<u8>,
    /// It was read to its end.
    whole: bool,
}

async fn read(mut body: Incoming) -> Result<Read, hyper::Error> {
    let mut bytes = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let data: Option<Bytes> = frame?.into_data().ok();
        bytes.extend_from_slice(&data.unwrap_or_default());
        if bytes.len() > BODY {
            return Ok(Read { bytes, whole: false });
        }
    }
    Ok(Read { bytes, whole: true })
}

/// Runs `work`, and the connection that it needs, together.
async fn drive<T>(
    driver: &mut Option<Driver>,
    work: impl Future<Output = Result<T, hyper::Error>>,
) -> Result<T, hyper::Error> {
    let mut work = pin!(work);
    let Some(running) = driver else {
        return work.await;
    };
    tokio::select! {
        biased;
        done = &mut work => done,
        ended = running => {
            // It holds the other end of what `work` waits for. What had come before the end is still an answer.
            *driver = None;
            let done = work.await;
            match ended {
                Err(error) if done.is_err() => Err(error),
                _ => done,
            }
        }
    }
}
