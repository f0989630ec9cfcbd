//! Probes of real servers on loopback, that do what servers do on bad days.

use std::sync::atomic::{AtomicUsize, Ordering};

use groundplane_runtime::Tasks;
use parking_lot::Mutex;
use pretty_assertions::assert_eq;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::*;

mod secure;

/// Long enough for a busy machine, short enough to wait for.
const TIMEOUT: Duration = Duration::from_secs(5);
/// For probes that are to run into it.
const SHORT: Duration = Duration::from_millis(300);

/// What a server does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Answers, and keeps the connection.
    Answer(u16, &'static str),
    /// Answers, and closes the connection without having said so.
    Hasty,
    /// Takes it, and says nothing.
    Hang,
    /// Takes it, and closes the connection.
    Close,
    /// Resets the connection.
    Reset,
    /// Says something that is not HTTP.
    Babble,
    /// 200 for who sends this token, 401 for others.
    Token(&'static str),
}

/// A server that can be told how to behave. Stops with the test.
struct Server {
    address: SocketAddr,
    state: Arc<State>,
    tasks: Tasks,
}

struct State {
    manner: Mutex<Manner>,
    /// Swapped when certificates are renewed.
    tls: Mutex<Option<TlsAcceptor>>,
    accepted: AtomicUsize,
    requests: Mutex<Vec<String>>,
}

impl Server {
    async fn start(manner: Manner) -> Self {
        Self::secure(manner, None).await
    }

    async fn secure(manner: Manner, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            manner: Mutex::new(manner),
            tls: Mutex::new(tls),
            accepted: AtomicUsize::new(0),
            requests: Mutex::default(),
        });
        let tasks = Tasks::new();
        let (serving, spawner, stop) = (Arc::clone(&state), tasks.clone(), tasks.token());
        tasks.spawn("server", async move {
            let accept = async {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    serving.accepted.fetch_add(1, Ordering::SeqCst);
                    let (serving, stop) = (Arc::clone(&serving), stop.clone());
                    spawner.spawn("connection", async move {
                        tokio::select! {
                            () = stop.cancelled() => {}
                            () = connection(&serving, stream) => {}
                        }
                    });
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = accept => {}
            }
        });
        Self {
            address,
            state,
            tasks,
        }
    }

    fn behave(&self, manner: Manner) {
        *self.state.manner.lock() = manner;
    }

    fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.token().cancel();
    }
}

async fn connection(state: &State, stream: TcpStream) {
    let acceptor = state.tls.lock().clone();
    match acceptor {
        None if *state.manner.lock() == Manner::Reset => {
            // The bytes that the peer sent and nobody read make the kernel reset the connection.
            stream.peek(&mut [0]).await.ok();
        }
        None => serve(state, stream).await,
        Some(acceptor) => {
            if let Ok(stream) = acceptor.accept(stream).await {
                serve(state, stream).await;
            }
        }
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(state: &State, mut stream: S) {
    loop {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            match stream.read(&mut byte).await {
                Ok(1) => request.push(byte[0]),
                _ => return,
            }
        }
        let request = String::from_utf8(request).unwrap();
        let manner = *state.manner.lock();
        let (status, body) = match manner {
            Manner::Answer(status, body) => (status, body),
            Manner::Hasty => (200, "ok"),
            Manner::Hang => std::future::pending().await,
            Manner::Close | Manner::Reset => return,
            Manner::Babble => {
                stream.write_all(b"SSH-2.0-OpenSSH\r\n\r\n").await.ok();
                return;
            }
            Manner::Token(token) if request.contains(&format!("authorization: Bearer {token}\r\n")) => {
                (200, "ok")
            }
            Manner::Token(_) => (401, "Unauthorized"),
        };
        state.requests.lock().push(request);
        let answer = format!(
            "HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(answer.as_bytes()).await.is_err() || manner == Manner::Hasty {
            return;
        }
    }
}

fn plain() -> ProbeConfig {
    ProbeConfig {
        kind: ProbeKind::Http,
        ..ProbeConfig::default()
    }
}

fn prober(config: ProbeConfig, timeout: Duration) -> Prober {
    Prober::new(config, timeout).unwrap()
}

/// Sign and detail.
async fn probe(prober: &Prober, address: SocketAddr) -> (Sign, String) {
    let outcome = prober.probe(address).await;
    (outcome.sign, outcome.detail)
}

fn alive(detail: &str) -> (Sign, String) {
    (Sign::Alive, detail.to_owned())
}

fn ready() -> (Sign, String) {
    (Sign::Ready, String::new())
}

#[tokio::test]
async fn an_answer_of_200_is_ready_and_its_connection_is_kept() {
    let server = Server::start(Manner::Answer(200, "ok")).await;
    let prober = prober(plain(), TIMEOUT);
    for _ in 0..5 {
        assert_eq!(probe(&prober, server.address).await, ready());
    }
    assert_eq!(server.accepted(), 1);
    let requests = server.state.requests.lock();
    assert!(
        requests[0].starts_with("GET /readyz HTTP/1.1\r\n"),
        "{requests:?}"
    );
    assert!(
        requests[0].contains(&format!("host: {}\r\n", server.address)),
        "{requests:?}"
    );
}

/// E80: anonymous requests are refused. A server that asks who we are lives; its detail says what is wrong with us.
#[tokio::test]
async fn a_server_that_does_not_accept_our_credentials_is_alive() {
    let prober = prober(plain(), TIMEOUT);
    for (status, body) in [(401, "Unauthorized"), (403, "Forbidden")] {
        let server = Server::start(Manner::Answer(status, body)).await;
        let detail = format!("alive, but our credentials are not accepted ({status}: {body})");
        assert_eq!(probe(&prober, server.address).await, (Sign::Ready, detail));
    }
}

/// A disk that is full: the API server answers, and says that it is not ready.
#[tokio::test]
async fn an_answer_that_is_no_success_tells_its_gist() {
    let server = Server::start(Manner::Answer(
        500,
        "[+]ping ok\n[-]etcd failed: reason withheld\n",
    ))
    .await;
    let prober = prober(plain(), TIMEOUT);
    assert_eq!(
        probe(&prober, server.address).await,
        alive("500: etcd failed: reason withheld")
    );
    server.behave(Manner::Answer(302, ""));
    assert_eq!(probe(&prober, server.address).await, alive("302"));
    server.behave(Manner::Answer(200, "ok"));
    assert_eq!(probe(&prober, server.address).await, ready());
    assert_eq!(
        server.accepted(),
        1,
        "a failure that was said in order costs no connection"
    );
}

#[tokio::test]
async fn a_server_that_hangs_misses_after_the_timeout() {
    let server = Server::start(Manner::Hang).await;
    let prober = prober(plain(), SHORT);
    let outcome = prober.probe(server.address).await;
    assert_eq!(outcome.sign, Sign::Alive, "it took the connection");
    assert!(
        outcome.detail.starts_with("timed out: it took the connection"),
        "{outcome:?}"
    );
    assert!(outcome.took >= SHORT);
}

/// The other end of a kept connection goes silent, as if its packets were dropped. That is a miss after the timeout, too, and the next
/// probe goes by a fresh one.
#[tokio::test]
async fn silence_on_a_kept_connection_is_a_miss_and_ends_it() {
    let server = Server::start(Manner::Answer(200, "ok")).await;
    let prober = prober(plain(), SHORT);
    assert_eq!(probe(&prober, server.address).await, ready());
    server.behave(Manner::Hang);
    let outcome = prober.probe(server.address).await;
    assert_eq!(outcome.sign, Sign::Silent);
    assert!(
        outcome.detail.starts_with("timed out: nothing within"),
        "{outcome:?}"
    );
    assert_eq!(server.accepted(), 1);
    server.behave(Manner::Answer(200, "ok"));
    assert_eq!(probe(&prober, server.address).await, ready());
    assert_eq!(server.accepted(), 2);
}

/// A listener whose queue is full drops what knocks, as a machine does that is gone.
#[tokio::test]
async fn a_machine_that_drops_packets_is_silent() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = tokio::time::timeout(SHORT, TcpStream::connect(address)).await {
        waiting.push(stream.unwrap());
    }
    for kind in [ProbeKind::Tcp, ProbeKind::Http, ProbeKind::Grpc] {
        let config = ProbeConfig { kind, ..plain() };
        let (sign, detail) = probe(&prober(config, SHORT), address).await;
        assert_eq!(sign, Sign::Silent, "{kind:?}: {detail}");
        assert!(detail.starts_with("timed out"), "{detail}");
    }
}

#[tokio::test]
async fn what_answers_with_a_refusal_is_alive() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = listener.local_addr().unwrap();
    drop(listener);
    let prober = prober(plain(), TIMEOUT);
    assert_eq!(probe(&prober, nobody).await, alive("connection refused"));
    let server = Server::start(Manner::Reset).await;
    assert_eq!(probe(&prober, server.address).await, alive("connection reset"));
    server.behave(Manner::Close);
    assert_eq!(
        probe(&prober, server.address).await,
        alive("connection closed without an answer")
    );
    server.behave(Manner::Babble);
    assert_eq!(
        probe(&prober, server.address).await,
        alive("the answer is not HTTP")
    );
}

/// An API server that restarts in good order closes idle connections: no probe may miss because of that.
#[tokio::test]
async fn a_connection_that_the_server_closed_meanwhile_is_no_miss() {
    let server = Server::start(Manner::Hasty).await;
    let prober = prober(plain(), TIMEOUT);
    for _ in 0..20 {
        assert_eq!(probe(&prober, server.address).await, ready());
    }
    assert_eq!(server.accepted(), 20);
}

#[tokio::test]
async fn by_tcp_a_connection_is_enough() {
    let server = Server::start(Manner::Hang).await;
    let config = ProbeConfig {
        kind: ProbeKind::Tcp,
        ..ProbeConfig::default()
    };
    assert_eq!(probe(&prober(config, TIMEOUT), server.address).await, ready());
}

#[tokio::test]
async fn by_grpc_the_health_check_is_asked() {
    let (reporter, service) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tasks = Tasks::new();
    let stop = tasks.token();
    tasks.spawn("server", async move {
        let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
        tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming_shutdown(incoming, stop.cancelled_owned())
            .await
            .unwrap();
    });
    let config = |service: &str| ProbeConfig {
        kind: ProbeKind::Grpc,
        service: service.to_owned(),
        ..ProbeConfig::default()
    };
    let whole = prober(config(""), TIMEOUT);
    assert_eq!(probe(&whole, address).await, ready());
    assert_eq!(
        probe(&whole, address).await,
        ready(),
        "by the connection that was kept"
    );
    let unknown = prober(config("x.v1.X"), TIMEOUT);
    assert_eq!(
        probe(&unknown, address).await,
        alive("it knows no service `x.v1.X`")
    );
    reporter
        .set_service_status("x.v1.X", tonic_health::ServingStatus::NotServing)
        .await;
    assert_eq!(probe(&unknown, address).await, alive("NOT_SERVING"));
    reporter
        .set_service_status("x.v1.X", tonic_health::ServingStatus::Serving)
        .await;
    assert_eq!(probe(&unknown, address).await, ready());
    tasks.token().cancel();
    drop((whole, unknown));
}
