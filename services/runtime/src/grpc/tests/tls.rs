use std::cell::RefCell;
use std::sync::OnceLock;
use std::time::Duration;

use groundplane_core::ErrorKind;
use pretty_assertions::assert_eq;
use tonic::Code;

use super::super::{
    BindError, BoundAddress, Channel, ChannelError, Policy, RpcError, Server, Target, call, channel,
    channel_with,
};
use super::fixture::*;
use crate::Context;
use crate::shutdown::DRAIN;
use crate::tls::testing::{Authority, EXPIRED, GOOD, Leaf, Mount, NOT_YET};
use crate::tls::{Caller, ClientCredentials, ClientTls, install};

/// Renewed certificates are looked for so often here.
const SOON: Duration = Duration::from_millis(20);

/// An authority, a server that trusts it, and where that is.
struct World {
    authority: Authority,
    server: Mount,
    context: Context,
    target: Target,
}

impl World {
    async fn start() -> Self {
        let authority = Authority::new("ours");
        let leaf = authority.leaf(Caller::Ipam);
        Self::with(authority, &leaf).await
    }

    async fn with(authority: Authority, leaf: &Leaf) -> Self {
        install();
        let mount = Mount::new(leaf, &[&authority]);
        let context = Context::new();
        let (server, _did) = server(&context);
        let addresses = server
            .listen("127.0.0.1:0".parse().unwrap())
            .tls(Some(mount.server()))
            .reload_every(SOON)
            .start()
            .await
            .unwrap();
        let [BoundAddress::Tcp(address)] = addresses[..] else {
            panic!("{addresses:?}")
        };
        Self {
            authority,
            server: mount,
            context,
            target: format!("https://localhost:{}", address.port()).parse().unwrap(),
        }
    }

    /// A client with this leaf, that trusts our authority.
    fn client(&self, leaf: &Leaf) -> Channel {
        let mount = Mount::new(leaf, &[&self.authority]);
        channel(&self.target, Some(&mount.client()))
            .unwrap()
            .describe(descriptor_set())
            .unwrap()
    }

    /// How a call of this client fails.
    async fn error(&self, channel: &Channel) -> RpcError {
        RpcError::from(echo(channel).await.unwrap_err())
    }

    async fn stop(self) {
        self.context.tasks.drain(DRAIN).await.unwrap();
    }
}

thread_local! {
    /// What this thread has logged. Each test has a thread of its own.
    static LOGGED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The log of this thread. One subscriber for all threads: one a thread would race for which lines are of interest.
#[derive(Clone, Copy)]
struct Log;

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOGGED.with_borrow_mut(|log| log.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Begins anew.
    fn collect() {
        static COLLECTING: OnceLock<()> = OnceLock::new();
        COLLECTING.get_or_init(|| {
            let subscriber = tracing_subscriber::fmt()
                .with_writer(|| Self)
                .with_ansi(false)
                .finish();
            tracing::subscriber::set_global_default(subscriber).unwrap();
        });
        LOGGED.with_borrow_mut(Vec::clear);
    }

    fn text() -> String {
        LOGGED.with_borrow(|log| String::from_utf8_lossy(log).into_owned())
    }
}

#[tokio::test]
async fn a_client_with_a_certificate_is_let_in() {
    let world = World::start().await;
    let client = world.client(&world.authority.leaf(Caller::Gateway));
    assert_eq!(echo(&client).await.unwrap().into_inner(), "hello");
    world.stop().await;
}

#[tokio::test]
async fn who_may_not_call_is_told_so() {
    let world = World::start().await;
    let client = world.client(&world.authority.leaf(Caller::Eip));
    let error = world.error(&client).await;
    assert_eq!(
        (error.code, error.reason.as_str()),
        (Code::PermissionDenied, "CALLER_NOT_ALLOWED")
    );
    assert_eq!(error.message, "`eip` may not call test.v1.TestService/Echo");
    let nobody = world.client(&world.authority.leaf_with(&["spiffe://elsewhere/gateway"], GOOD));
    let error = world.error(&nobody).await;
    assert_eq!(
        error.message,
        "`spiffe://elsewhere/gateway` may not call test.v1.TestService/Echo"
    );
    world.stop().await;
}

/// A reason, the client's leaf, whom it trusts, and what else is odd about it.
type Case<'a> = (&'static str, Leaf, &'a Authority, fn(&mut ClientTls));

/// Trap: in TLS 1.3 a client learns late that its certificate is refused, and tonic calls it UNKNOWN "transport error".
/// Both ends say the same reason, and what would help.
#[tokio::test]
async fn a_handshake_that_fails_is_explained_at_both_ends() {
    let foreign = Authority::new("theirs");
    let ours = Authority::new("ours");
    let server = ours.leaf(Caller::Ipam);
    let world = World::with(ours, &server).await;
    let gateway = Caller::Gateway.uri("groundplane");
    let files = |mount: &Mount, change: fn(&mut ClientTls)| {
        let mut files = mount.client();
        change(&mut files);
        files
    };
    let same = |_: &mut ClientTls| {};
    let ours = &world.authority;
    let cases: [Case<'_>; 6] = [
        (
            "CLIENT_CERTIFICATE_MISSING",
            ours.leaf(Caller::Gateway),
            ours,
            |files| files.identity = None,
        ),
        (
            "CLIENT_CERTIFICATE_EXPIRED",
            ours.leaf_with(&[&gateway], EXPIRED),
            ours,
            same,
        ),
        (
            "CLIENT_CERTIFICATE_NOT_YET_VALID",
            ours.leaf_with(&[&gateway], NOT_YET),
            ours,
            same,
        ),
        (
            "CLIENT_AUTHORITY_UNKNOWN",
            foreign.leaf(Caller::Gateway),
            ours,
            same,
        ),
        (
            "SERVER_AUTHORITY_UNKNOWN",
            ours.leaf(Caller::Gateway),
            &foreign,
            same,
        ),
        (
            "SERVER_NAME_MISMATCH",
            ours.leaf(Caller::Gateway),
            ours,
            |files| {
                files.server_name = Some("ipam.example".to_owned());
            },
        ),
    ];
    for (reason, leaf, trusted, change) in cases {
        Log::collect();
        let mount = Mount::new(&leaf, &[trusted]);
        let client = channel(&world.target, Some(&files(&mount, change))).unwrap();
        let error = world.error(&client).await;
        assert_eq!(
            (error.kind, error.code),
            (ErrorKind::Unavailable, Code::Unavailable),
            "{error}"
        );
        // TLS has no alert of its own for what is not valid yet, and none for a name.
        let (here, there) = match reason {
            "CLIENT_CERTIFICATE_NOT_YET_VALID" => ("CLIENT_CERTIFICATE_EXPIRED", reason),
            "SERVER_NAME_MISMATCH" => (reason, "SERVER_CERTIFICATE_REFUSED"),
            _ => (reason, reason),
        };
        assert_eq!(error.reason, here, "{error}");
        assert!(
            error.message.len() > 40 && !error.message.contains("transport error"),
            "{error}"
        );
        let text = Log::text();
        assert!(
            text.contains("no connection: ") && text.contains(here),
            "the client: {text}"
        );
        // The server may hear of it after the client.
        let heard = async {
            while !Log::text().contains("a connection is refused: ") {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), heard)
            .await
            .unwrap();
        assert!(Log::text().contains(there), "the server: {}", Log::text());
    }
    world.stop().await;
}

#[tokio::test]
async fn a_server_whose_certificate_has_expired_is_named() {
    let authority = Authority::new("ours");
    let leaf = authority.leaf_with(&[&Caller::Ipam.uri("groundplane")], EXPIRED);
    let world = World::with(authority, &leaf).await;
    let client = world.client(&world.authority.leaf(Caller::Gateway));
    let error = world.error(&client).await;
    assert_eq!(error.reason, "SERVER_CERTIFICATE_EXPIRED", "{error}");
    // It mends itself as soon as the files are renewed, without a restart.
    world
        .server
        .put(&world.authority.leaf(Caller::Ipam), &[&world.authority]);
    assert_eq!(call(Policy::default(), || echo(&client)).await.unwrap(), "hello");
    world.stop().await;
}

#[tokio::test]
async fn plaintext_towards_tls_and_tls_towards_plaintext_are_explained() {
    install();
    let world = World::start().await;
    let Target::Tcp(uri) = &world.target else {
        panic!("{}", world.target)
    };
    Log::collect();
    let plain = channel(
        &format!("http://localhost:{}", uri.port().unwrap())
            .parse()
            .unwrap(),
        None,
    )
    .unwrap();
    assert_eq!(world.error(&plain).await.kind, ErrorKind::Unavailable);
    assert!(Log::text().contains("NOT_TLS"), "{}", Log::text());
    let context = Context::new();
    let (other, _did) = server(&context);
    let bound = other
        .listen("127.0.0.1:0".parse().unwrap())
        .start()
        .await
        .unwrap();
    let [BoundAddress::Tcp(address)] = bound[..] else {
        panic!("{bound:?}")
    };
    let mount = Mount::new(&world.authority.leaf(Caller::Gateway), &[&world.authority]);
    let target = format!("https://localhost:{}", address.port()).parse().unwrap();
    let error = world
        .error(&channel(&target, Some(&mount.client())).unwrap())
        .await;
    assert_eq!(error.reason, "NOT_TLS", "{error}");
    context.tasks.drain(DRAIN).await.unwrap();
    world.stop().await;
}

/// Leaves, then the authority, are renewed under load: first everybody trusts both, then everybody gets a new leaf, then
/// the old authority goes. No call fails, and in the end nobody uses what is old.
#[tokio::test]
async fn certificates_and_authority_are_renewed_without_a_failed_call() {
    let world = World::start().await;
    let next = Authority::new("next");
    let old = &world.authority;
    let client = Mount::new(&old.leaf(Caller::Gateway), &[old]);
    let credentials = ClientCredentials::load(&client.client()).unwrap();
    credentials.watch_every(&world.context, SOON);
    let channel = channel_with(&world.target, Some(&credentials)).unwrap();
    let channel = channel.describe(descriptor_set()).unwrap();
    echo(&channel).await.unwrap();
    let mut stream = watch(&channel).await.unwrap();
    assert_eq!(stream.message().await.unwrap().unwrap(), "first");

    let reloads = |side: &str| {
        let line = format!("groundplane_tls_reloads_total{{side=\"{side}\",outcome=\"ok\"}} ");
        let text = world.context.metrics.encode().unwrap();
        text.lines()
            .find_map(|text| text.strip_prefix(&line)?.parse::<u32>().ok())
            .unwrap_or(0)
    };
    let (mut servers, mut clients) = (0, 0);
    let steps: [(bool, &Authority, Vec<&Authority>); 7] = [
        (true, old, vec![old]),
        (false, old, vec![old]),
        (true, old, vec![old, &next]),
        (false, old, vec![old, &next]),
        (false, &next, vec![old, &next]),
        (true, &next, vec![&next]),
        (false, &next, vec![&next]),
    ];
    for (is_server, issuer, trusted) in steps {
        if is_server {
            world.server.put(&issuer.leaf(Caller::Ipam), &trusted);
            servers += 1;
        } else {
            client.put(&issuer.leaf(Caller::Gateway), &trusted);
            clients += 1;
        }
        while (reloads("server"), reloads("client")) != (servers, clients) {
            echo(&channel).await.unwrap();
        }
        for _ in 0..100 {
            echo(&channel).await.unwrap();
        }
    }
    // The stream lives on, on the connection that it was opened on.
    let open = tokio::time::timeout(SOON, stream.message()).await;
    assert!(open.is_err(), "{open:?}");
    // A client that has nothing but what is old now gets no further connection.
    let late = world.client(&world.authority.leaf(Caller::Gateway));
    assert_eq!(world.error(&late).await.kind, ErrorKind::Unavailable);
    drop(stream);
    world.stop().await;
}

/// A connection is left only for one that works: with certificates that the server refuses, calls go on over the old one.
#[tokio::test]
async fn a_connection_is_kept_until_a_better_one_is_accepted() {
    let world = World::start().await;
    let foreign = Authority::new("theirs");
    let client = Mount::new(&world.authority.leaf(Caller::Gateway), &[&world.authority]);
    let credentials = ClientCredentials::load(&client.client()).unwrap();
    credentials.watch_every(&world.context, SOON);
    let channel = channel_with(&world.target, Some(&credentials)).unwrap();
    echo(&channel).await.unwrap();
    client.put(&foreign.leaf(Caller::Gateway), &[&world.authority]);
    let refused = || {
        let text = world.context.metrics.encode().unwrap();
        text.contains(
            "groundplane_tls_handshake_failures_total{side=\"server\",reason=\"CLIENT_AUTHORITY_UNKNOWN\"}",
        )
    };
    while !refused() {
        echo(&channel).await.unwrap();
    }
    echo(&channel).await.unwrap();
    world.stop().await;
}

#[tokio::test]
async fn beyond_loopback_everybody_must_prove_who_they_are() {
    install();
    let authority = Authority::new("ours");
    let mount = Mount::new(&authority.leaf(Caller::Ipam), &[&authority]);
    let anybody = crate::tls::ServerTls {
        client_ca: None,
        ..mount.server()
    };
    let context = Context::new();
    let bind = |tls, insecure| {
        Server::new("test", &context)
            .listen("0.0.0.0:0".parse().unwrap())
            .tls(tls)
            .insecure(insecure)
            .bind()
    };
    let error = bind(Some(anybody.clone()), false).await.unwrap_err();
    assert!(matches!(error, BindError::Anybody(_)), "{error}");
    assert!(error.to_string().contains("--tls-client-ca"), "{error}");
    assert!(matches!(bind(None, false).await, Err(BindError::Plaintext(_))));
    bind(Some(anybody), true).await.map(drop).unwrap();
    bind(Some(mount.server()), false).await.map(drop).unwrap();
    let target = "https://ipam:1".parse().unwrap();
    assert!(matches!(
        channel(&target, None),
        Err(ChannelError::NoAuthority(_))
    ));
}
