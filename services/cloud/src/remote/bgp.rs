//! BGP.

use async_trait::async_trait;
use groundplane_core::{Family, Prefix, ProviderId};
use groundplane_proto::provider::v1::bgp_fabric_service_client::BgpFabricServiceClient;
use groundplane_proto::provider::v1::{
    CreateSessionRequest, EnableProjectRequest, GetProjectRequest, ListNeighborsRequest, ListSessionsRequest,
    ListSessionsResponse,
};
use groundplane_runtime::grpc::Channel;

use super::Remote;
use super::call::{LONGEST_ANSWER, Operation};
use super::convert::{peers, project, session};
use super::pages::{Page, whole};
use crate::config::Capability;
use crate::{BgpFabric, BgpProject, CloudError, NeighborQuery, Neighbors, Peer, Session};

fn client(channel: Channel) -> BgpFabricServiceClient<Channel> {
    BgpFabricServiceClient::new(channel).max_decoding_message_size(LONGEST_ANSWER)
}

#[async_trait]
impl BgpFabric for Remote {
    /// Before the first answer: yes, so that it is asked for them, which asks what it needs first.
    fn needs_sessions(&self) -> bool {
        self.inner
            .capabilities
            .last()
            .is_none_or(|said| said.needs_sessions)
    }

    async fn project(&self) -> Result<Option<BgpProject>, CloudError> {
        let operation = Operation::read("read BGP configuration", "GetProject");
        self.offers(Capability::Bgp, &operation).await?;
        let answer = self
            .call(&operation, GetProjectRequest {}, |channel, request| async move {
                client(channel).get_project(request).await
            })
            .await?;
        project(answer).map_err(|wrong| operation.nonsense(wrong))
    }

    async fn enable(&self) -> Result<BgpProject, CloudError> {
        let operation = Operation::read("enable BGP", "EnableProject");
        self.offers(Capability::Bgp, &operation).await?;
        let answer = self
            .call(
                &operation,
                EnableProjectRequest::default(),
                |channel, request| async move { client(channel).enable_project(request).await },
            )
            .await?;
        let row = answer
            .project
            .ok_or_else(|| operation.nonsense("an answer without a project"))?;
        project(row)
            .map_err(|wrong| operation.nonsense(wrong))?
            .ok_or_else(|| operation.nonsense("accepted, but BGP is not on"))
    }

    async fn sessions(&self) -> Result<Vec<Session>, CloudError> {
        let operation = Operation::read("list BGP sessions", "ListSessions");
        let said = self.offers(Capability::Bgp, &operation).await?;
        if !said.needs_sessions {
            return Ok(Vec::new());
        }
        let rows = self
            .list(
                &operation,
                |cursor| ListSessionsRequest {
                    page_size: cursor.size,
                    page_token: cursor.token,
                },
                |channel, request| async move { client(channel).list_sessions(request).await },
                |answer: ListSessionsResponse| Page {
                    items: answer.sessions,
                    next: answer.next_page_token,
                    total: answer.total_size,
                },
                |row| &row.id,
            )
            .await?;
        whole(rows, &operation, session)
    }

    async fn create_session(&self, machine: &ProviderId, family: Family) -> Result<(), CloudError> {
        let operation = Operation::read(format!("create BGP session for {machine}"), "CreateSession").finds();
        let said = self.offers(Capability::Bgp, &operation).await?;
        if !said.needs_sessions {
            return Ok(());
        }
        let request = CreateSessionRequest {
            provider_id: machine.to_string(),
            family: family.to_string(),
        };
        let answer = self
            .call(&operation, request, |channel, request| async move {
                client(channel).create_session(request).await
            })
            .await?;
        let made = answer
            .session
            .ok_or_else(|| operation.nonsense("an answer without a session"))?;
        let made = session(made).map_err(|wrong| operation.nonsense(wrong))?;
        if made.machine.id() != machine.id() || made.family != family {
            return Err(operation.nonsense(format!("it made an {} session of {}", made.family, made.machine)));
        }
        Ok(())
    }

    async fn neighbors(&self, query: &NeighborQuery) -> Result<Neighbors, CloudError> {
        let operation = Operation::read(
            format!("read BGP neighbors of {}", query.machine),
            "ListNeighbors",
        )
        .finds();
        self.offers(Capability::Bgp, &operation).await?;
        let request = ListNeighborsRequest {
            provider_id: query.machine.to_string(),
            node: query.node.clone(),
            node_labels: query.labels.clone().into_iter().collect(),
            node_addresses: query.addresses.iter().map(ToString::to_string).collect(),
        };
        let answer = self
            .call(&operation, request, |channel, request| async move {
                client(channel).list_neighbors(request).await
            })
            .await?;
        let found: Vec<Vec<Peer>> = whole(answer.neighbors, &operation, peers)?;
        let mut peers: Vec<Peer> = found.into_iter().flatten().collect();
        peers.sort_by_key(|peer| peer.address);
        if let Some(twice) = peers.windows(2).find(|pair| pair[0].address == pair[1].address) {
            return Err(operation.nonsense(format!("the neighbor {} is there twice", twice[0].address)));
        }
        let private_network = match answer.private_network.as_str() {
            "" => None,
            text => Some(
                text.parse::<Prefix>()
                    .map_err(|error| operation.nonsense(format!("the private network: {error}")))?
                    .to_string(),
            ),
        };
        Ok(Neighbors {
            peers,
            private_network,
            gateway: None,
        })
    }
}
