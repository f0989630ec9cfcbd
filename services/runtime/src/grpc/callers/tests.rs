use std::collections::BTreeSet;

use groundplane_proto::FILE_DESCRIPTOR_SET;
use jiff::{SignedDuration, Timestamp};
use pretty_assertions::assert_eq;
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tonic::Code;

use super::*;
use crate::grpc::RpcError;
use crate::grpc::methods::Methods;
use crate::tls::Identity;
use crate::tls::identity::Validity;

/// Every method of every contract, as `service/method`.
fn contracts() -> Vec<String> {
    let mut all = Vec::new();
    for file in FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap().file {
        for service in &file.service {
            for method in &service.method {
                all.push(format!("{}.{}/{}", file.package(), service.name(), method.name()));
            }
        }
    }
    all.sort();
    all
}

#[test]
fn every_method_of_every_contract_is_in_the_table_once() {
    let mut rows: Vec<_> = TABLE
        .iter()
        .filter(|(service, _)| !service.starts_with("test."))
        .flat_map(|(service, methods)| {
            methods
                .iter()
                .map(move |(method, _)| format!("{service}/{method}"))
        })
        .collect();
    rows.sort();
    assert_eq!(rows, contracts());
}

#[test]
fn nobody_may_do_everything_and_servers_call_nobody() {
    let may = |caller| {
        let rows = TABLE
            .iter()
            .flat_map(|(service, methods)| methods.iter().map(move |row| (service, row)));
        let may: BTreeSet<_> = rows
            .filter(|(service, (_, callers))| {
                !service.contains("provider") && !service.starts_with("rpc.") && callers.contains(&caller)
            })
            .filter(|(service, _)| !service.starts_with("test."))
            .map(|(service, (method, _))| format!("{}/{method}", service.rsplit('.').next().unwrap()))
            .collect();
        may
    };
    for caller in [Caller::Ipam, Bgp, Instances, Caller::Health, All] {
        assert_eq!(may(caller), BTreeSet::new(), "{caller}");
    }
    let eip =
        ["Allocate", "ListAllocations", "Lookup", "Release"].map(|method| format!("IpamService/{method}"));
    assert_eq!(may(Eip), BTreeSet::from(eip));
    assert!(may(Ctl).iter().all(|row| row.starts_with("GatewayService/")));
    assert!(
        !may(Gateway).contains("EipService/MoveEndpoint"),
        "the agents move it"
    );
}

struct Bench {
    gatekeeper: Gatekeeper,
    methods: Methods,
    context: Context,
}

fn bench() -> Bench {
    let context = Context::new();
    let mut methods = Methods::default();
    methods.describe(FILE_DESCRIPTOR_SET).unwrap();
    methods.describe(tonic_health::pb::FILE_DESCRIPTOR_SET).unwrap();
    Bench {
        gatekeeper: Gatekeeper::new("ipam", &context),
        methods,
        context,
    }
}

fn certified(caller: Option<Caller>, name: &str, hours: i64) -> Peer {
    let now = Context::new().clock.now();
    let identity = Identity {
        caller,
        name: name.to_owned(),
        validity: Validity {
            begins: Timestamp::UNIX_EPOCH,
            expires: now + SignedDuration::from_hours(hours),
        },
    };
    Peer {
        address: None,
        standing: Standing::Certified(Arc::new(identity)),
    }
}

impl Bench {
    fn check(&self, peer: Option<&Peer>, path: &str) -> Result<(), Status> {
        let unknown = Method::unknown();
        self.gatekeeper
            .check(peer, self.methods.get(path).unwrap_or(&unknown))
    }
}

const ALLOCATE: &str = "/groundplane.ipam.v1.IpamService/Allocate";
const ADOPT: &str = "/groundplane.ipam.v1.IpamService/Adopt";
const CHECK: &str = "/grpc.health.v1.Health/Check";

#[tokio::test]
async fn a_caller_gets_what_the_table_gives_it_and_no_more() {
    let bench = bench();
    let eip = certified(Some(Eip), "eip", 1);
    bench.check(Some(&eip), ALLOCATE).unwrap();
    let error = RpcError::from(bench.check(Some(&eip), ADOPT).unwrap_err());
    assert_eq!(
        (error.code, error.reason.as_str()),
        (Code::PermissionDenied, "CALLER_NOT_ALLOWED")
    );
    assert_eq!(
        error.message,
        "`eip` may not call groundplane.ipam.v1.IpamService/Adopt"
    );
    assert_eq!(error.metadata["caller"], "eip");
    assert_eq!(error.metadata["method"], "groundplane.ipam.v1.IpamService/Adopt");
    let line = r#"groundplane_grpc_server_denied_total{caller="eip",service="groundplane.ipam.v1.IpamService",method="Adopt"} 1"#;
    let metrics = bench.context.metrics.encode().unwrap();
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test]
async fn who_is_not_in_the_table_gets_nothing_but_health() {
    let bench = bench();
    let stranger = certified(None, "CN=laptop", 1);
    for path in [ALLOCATE, ADOPT, "/made.up.Service/Method"] {
        assert_eq!(
            bench.check(Some(&stranger), path).unwrap_err().code(),
            Code::PermissionDenied,
            "{path}"
        );
        assert_eq!(
            bench.check(None, path).unwrap_err().code(),
            Code::PermissionDenied,
            "{path}"
        );
    }
    let gateway = certified(Some(Gateway), "gateway", 1);
    let unknown = bench.check(Some(&gateway), "/made.up.Service/Method");
    assert_eq!(
        unknown.unwrap_err().code(),
        Code::PermissionDenied,
        "what is not in the table"
    );
    bench.check(Some(&stranger), CHECK).unwrap();
    // A made-up path is no label.
    assert!(!bench.context.metrics.encode().unwrap().contains("made.up"));
}

#[tokio::test]
async fn where_the_operating_system_decides_the_table_does_not() {
    let bench = bench();
    for standing in [Standing::Local, Standing::Anybody] {
        let peer = Peer {
            address: None,
            standing,
        };
        bench.check(Some(&peer), ADOPT).unwrap();
    }
}

/// A connection may outlive the certificate that it was opened with.
#[tokio::test]
async fn a_certificate_that_has_expired_since_is_refused() {
    let bench = bench();
    let error = bench.check(Some(&certified(Some(Gateway), "gateway", -1)), ADOPT);
    let error = RpcError::from(error.unwrap_err());
    assert_eq!(
        (error.code, error.reason.as_str()),
        (Code::Unauthenticated, "CLIENT_CERTIFICATE_EXPIRED")
    );
}
