use std::path::{Path, PathBuf};

use groundplane_core::ErrorKind;
use pretty_assertions::assert_eq;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::super::{BoundAddress, Channel, ChannelError, RpcError, Target, channel};
use super::fixture::*;
use crate::Context;
use crate::tls::{ClientTls, ServerTls, TlsError, install};

struct Files {
    _dir: tempfile::TempDir,
    ca: PathBuf,
    server: (PathBuf, PathBuf),
    client: (PathBuf, PathBuf),
}

fn files() -> Files {
    let dir = tempfile::tempdir().unwrap();
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let write = |name: &str, text: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let leaf = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new(vec!["localhost".to_owned()])
            .unwrap()
            .signed_by(&key, &ca)
            .unwrap();
        (
            write(&format!("{name}.pem"), cert.pem()),
            write(&format!("{name}.key"), key.serialize_pem()),
        )
    };
    Files {
        server: leaf("server"),
        client: leaf("client"),
        ca: write("ca.pem", ca.pem()),
        _dir: dir,
    }
}

async fn start(files: &Files, context: &Context) -> Target {
    install();
    let (cert, key) = files.server.clone();
    let tls = ServerTls {
        cert,
        key,
        client_ca: Some(files.ca.clone()),
    };
    let (server, _did) = server(context);
    let addresses = server
        .listen("127.0.0.1:0".parse().unwrap())
        .tls(Some(tls))
        .start()
        .await
        .unwrap();
    let [BoundAddress::Tcp(address)] = addresses[..] else {
        panic!("{addresses:?}")
    };
    format!("https://localhost:{}", address.port()).parse().unwrap()
}

fn client(target: &Target, files: &Files, identity: bool) -> Channel {
    let tls = ClientTls {
        ca: files.ca.clone(),
        identity: identity.then(|| files.client.clone()),
        server_name: Some("localhost".to_owned()),
    };
    channel(target, Some(&tls)).unwrap()
}

#[tokio::test]
async fn a_client_with_a_certificate_is_let_in() {
    let (files, context) = (files(), Context::new());
    let target = start(&files, &context).await;
    assert_eq!(
        echo(&client(&target, &files, true)).await.unwrap().into_inner(),
        "hello"
    );
    context.tasks.drain(crate::shutdown::DRAIN).await.unwrap();
}

/// Trap: a refused handshake comes out of tonic as UNKNOWN.
#[tokio::test]
async fn a_client_without_one_is_not_and_calls_it_unavailable() {
    let (files, context) = (files(), Context::new());
    let target = start(&files, &context).await;
    let error = RpcError::from(echo(&client(&target, &files, false)).await.unwrap_err());
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    context.tasks.drain(crate::shutdown::DRAIN).await.unwrap();
}

#[test]
fn what_is_wrong_with_a_file_names_field_and_file() {
    let files = files();
    let tls = |cert: &Path, key: &Path| ServerTls {
        cert: cert.into(),
        key: key.into(),
        client_ca: None,
    };
    let missing = Path::new("/nonexistent/server.pem");
    let error = tls(missing, &files.server.1).load().unwrap_err();
    assert_eq!(
        error.to_string(),
        "tls_cert: cannot read `/nonexistent/server.pem`"
    );
    let error = tls(&files.server.0, &files.server.0).load().unwrap_err();
    assert!(
        matches!(error, TlsError::Content { field: "tls_key", .. }),
        "{error}"
    );
    let target = "https://ipam:1".parse().unwrap();
    assert!(matches!(
        channel(&target, None),
        Err(ChannelError::NoAuthority(_))
    ));
}
