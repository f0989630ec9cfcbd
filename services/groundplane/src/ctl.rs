//! `groundplane ctl`: asks a running gateway. Tables for people, JSON for programs.

mod config;
mod duration;
mod endpoint;
mod rows;
mod store;
mod table;
mod takeover;
mod yaml;

use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::{Subcommand, ValueEnum};
use groundplane_core::ErrorKind;
use groundplane_proto::gateway::v1 as pb;
use groundplane_proto::gateway::v1::gateway_service_client::GatewayServiceClient;
use groundplane_runtime::args::ClientTlsArgs;
use groundplane_runtime::grpc::{Channel, Policy, RpcError, Target, call};
use tonic::{Response, Status};

use crate::ctl::rows::{AddressRow, Explanation, MachineRow, Overview, PeerRow, PoolRow};
use crate::ctl::table::print;
use crate::roles::{AGENT_TARGET, GATEWAY_TARGET};
use crate::wiring::connect;

/// Where a gateway listens in a pod of the chart, and in the containers of the compose file.
const SOCKET: &str = "/run/groundplane/groundplane.sock";

/// Where an agent listens in a pod of the chart.
const AGENT_SOCKET: &str = "/run/groundplane/agent.sock";

/// Rows of a page: few enough for a message, many enough to be quick.
const PAGE: u32 = 1_000;

#[derive(Debug, clap::Args)]
pub(crate) struct CtlArgs {
    /// Where the gateway is: `http://host:port`, `https://host:port` or `unix:/path`; unless given, the socket
    /// `/run/groundplane/groundplane.sock` if it is there, else `http://127.0.0.1:9470`
    #[arg(long, env = "GROUNDPLANE_GATEWAY", value_name = "ADDRESS", global = true)]
    gateway: Option<Target>,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t, global = true)]
    output: Output,
    #[command(flatten)]
    tls: ClientTlsArgs,
    #[command(subcommand)]
    command: Command,
}

/// Form of the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// A table for people.
    #[default]
    Table,
    /// JSON for programs: an array of objects, or one object.
    Json,
    /// The same as YAML.
    Yaml,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Leader, services and counts at a glance
    Overview,
    /// Pools, and how much of each is used
    Pools,
    /// Who has which address, since when
    Addresses,
    /// Machines, and the nodes that they are
    Machines,
    /// BGP peers of each machine
    Peers,
    /// Who holds the API endpoint, who could, and which moves were made: as an agent sees it (its socket, else `http://127.0.0.1:9476`)
    Endpoint,
    /// Why an object has, or does not have, its address
    Explain {
        /// `service` or `node`
        kind: Kind,
        /// `NAMESPACE/NAME` of a Service, `NAME` of a node
        object: String,
    },
    /// The configuration; asks nobody, and reads what a process would read that is started here
    #[command(subcommand)]
    Config(config::Command),
    /// The store of ipam
    #[command(subcommand)]
    Store(store::Command),
    /// Take a cluster over from the controller that served it before
    #[command(subcommand)]
    Takeover(takeover::Command),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Service,
    Node,
}

pub(crate) async fn run(args: CtlArgs) -> anyhow::Result<()> {
    let CtlArgs {
        gateway,
        output,
        tls,
        command,
    } = args;
    let gateway = match gateway {
        Some(gateway) => gateway,
        None if matches!(command, Command::Endpoint) => nearest(Path::new(AGENT_SOCKET), AGENT_TARGET)?,
        None => nearest(Path::new(SOCKET), GATEWAY_TARGET)?,
    };
    let channel = || connect(&gateway, tls.tls().as_ref());
    let away = || {
        format!(
            "the gateway at {gateway} does not answer (is it running? --gateway or GROUNDPLANE_GATEWAY says where it is)"
        )
    };
    let answered = match command {
        Command::Overview => overview(channel()?, output).await,
        Command::Pools => pools(channel()?, output).await,
        Command::Addresses => addresses(channel()?, output).await,
        Command::Machines => machines(channel()?, output).await,
        Command::Peers => peers(channel()?, output).await,
        Command::Endpoint => endpoint::run(channel()?, output).await,
        Command::Explain { kind, object } => explain(channel()?, kind, &object, output).await,
        Command::Config(command) => return config::run(&command, output),
        Command::Store(command) => return store::run(command, channel).await,
        Command::Takeover(command) => takeover::run(channel()?, command, output).await,
    };
    answered.map_err(|error| match error.downcast_ref::<RpcError>() {
        Some(rpc) if matches!(rpc.kind, ErrorKind::Unavailable | ErrorKind::Timeout) => error.context(away()),
        _ => error,
    })
}

/// The gateway of this machine, or of this pod: at its socket, where there is one.
fn nearest(socket: &Path, otherwise: &str) -> anyhow::Result<Target> {
    let there = std::fs::metadata(socket).is_ok_and(|file| file.file_type().is_socket());
    if there {
        return Ok(Target::Unix(socket.to_owned()));
    }
    Ok(otherwise.parse()?)
}

async fn overview(channel: Channel, output: Output) -> anyhow::Result<()> {
    let client = GatewayServiceClient::new(channel);
    let answer = call(Policy::default(), || async {
        client.clone().overview(pb::OverviewRequest {}).await
    })
    .await?;
    print(output, &Overview::from(answer))
}

async fn pools(channel: Channel, output: Output) -> anyhow::Result<()> {
    let client = GatewayServiceClient::new(channel);
    let answer = call(Policy::default(), || async {
        client.clone().list_pools(pb::ListPoolsRequest {}).await
    })
    .await?;
    print(
        output,
        &answer.pools.into_iter().map(PoolRow::from).collect::<Vec<_>>(),
    )
}

async fn addresses(channel: Channel, output: Output) -> anyhow::Result<()> {
    let client = GatewayServiceClient::new(channel);
    let read = |page_token| {
        let (mut client, page_size) = (client.clone(), PAGE);
        async move {
            let request = pb::ListAddressesRequest {
                page_size,
                page_token,
            };
            client.list_addresses(request).await
        }
    };
    let rows = every(read, |page| {
        (
            page.addresses.into_iter().map(AddressRow::from),
            page.next_page_token,
        )
    })
    .await?;
    print(output, &rows)
}

async fn machines(channel: Channel, output: Output) -> anyhow::Result<()> {
    let client = GatewayServiceClient::new(channel);
    let read = |page_token| {
        let (mut client, page_size) = (client.clone(), PAGE);
        async move {
            let request = pb::ListMachinesRequest {
                page_size,
                page_token,
            };
            client.list_machines(request).await
        }
    };
    let rows = every(read, |page| {
        (
            page.machines.into_iter().map(MachineRow::from),
            page.next_page_token,
        )
    })
    .await?;
    print(output, &rows)
}

async fn peers(channel: Channel, output: Output) -> anyhow::Result<()> {
    let client = GatewayServiceClient::new(channel);
    let read = |page_token| {
        let (mut client, page_size) = (client.clone(), PAGE);
        async move {
            let request = pb::ListPeersRequest {
                page_size,
                page_token,
            };
            client.list_peers(request).await
        }
    };
    let rows = every(read, |page| {
        (
            page.machines.into_iter().flat_map(PeerRow::of),
            page.next_page_token,
        )
    })
    .await?;
    print(output, &rows)
}

/// The rows of every page. `read` asks for the page of a token, and is tried again where that may help; `open` says what rows are in
/// a page, and the token of the next one.
async fn every<P, Read, Rows>(
    read: impl Fn(String) -> Read,
    open: impl Fn(P) -> (Rows, String),
) -> Result<Vec<Rows::Item>, RpcError>
where
    Read: Future<Output = Result<Response<P>, Status>>,
    Rows: IntoIterator,
{
    let (mut all, mut token) = (Vec::new(), String::new());
    loop {
        let page = call(Policy::default(), || read(token.clone())).await?;
        let (rows, next) = open(page);
        all.extend(rows);
        if next.is_empty() {
            return Ok(all);
        }
        token = next;
    }
}

async fn explain(channel: Channel, kind: Kind, object: &str, output: Output) -> anyhow::Result<()> {
    let (kind, namespace, name) = match (kind, object.split_once('/')) {
        (Kind::Service, Some((namespace, name))) if !namespace.is_empty() && !name.is_empty() => {
            ("service", namespace, name)
        }
        (Kind::Service, _) => bail!("`{object}` is not NAMESPACE/NAME of a Service, such as `default/web`"),
        (Kind::Node, None) if !object.is_empty() => ("node", "", object),
        (Kind::Node, _) => bail!("`{object}` is not the NAME of a node"),
    };
    let request = pb::ExplainObjectRequest {
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let client = GatewayServiceClient::new(channel);
    let answer = call(Policy::default(), || async {
        client.clone().explain_object(request.clone()).await
    })
    .await
    .with_context(|| format!("{kind} {object}"))?;
    print(output, &Explanation::from(answer))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test]
    async fn every_page_is_read_once_and_a_page_that_failed_again() {
        let answers = RefCell::new(vec![
            Ok((vec![4], "")),
            Ok((vec![], "c")),
            Err(Status::unavailable("a moment")),
            Ok((vec![1, 2, 3], "b")),
        ]);
        let asked = RefCell::new(Vec::new());
        let read = |token: String| {
            asked.borrow_mut().push(token);
            let answer = answers.borrow_mut().pop();
            async { answer.unwrap().map(Response::new) }
        };
        let rows = every(read, |(rows, next)| (rows, next.to_owned())).await.unwrap();
        assert_eq!(rows, [1, 2, 3, 4]);
        assert_eq!(asked.into_inner(), ["", "b", "b", "c"]);
        assert_eq!(answers.into_inner().len(), 0);
    }

    #[tokio::test]
    async fn half_a_list_is_an_error() {
        let answers = RefCell::new(vec![Err(Status::not_found("gone")), Ok((vec![1], "b"))]);
        let read = |_| {
            let answer = answers.borrow_mut().pop();
            async { answer.unwrap().map(Response::new) }
        };
        assert!(every(read, |(rows, next)| (rows, next.to_owned())).await.is_err());
    }

    #[tokio::test]
    async fn the_socket_is_asked_where_there_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("groundplane.sock");
        let target = nearest(&socket, GATEWAY_TARGET).unwrap();
        assert!(matches!(target, Target::Tcp(_)), "{target}");
        let _listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let target = nearest(&socket, GATEWAY_TARGET).unwrap();
        assert_eq!(target.to_string(), format!("unix:{}", socket.display()));
    }
}
