//! `groundplane.ipam.v1` over the use cases.

mod convert;
mod status;

use std::pin::Pin;

use futures::Stream;
use groundplane_core::{Kinded as _, Name, PoolSource, Revision};
use groundplane_proto::ipam::v1 as pb;
use groundplane_proto::ipam::v1::ipam_service_server::IpamService;
use groundplane_runtime::grpc::Page;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::app::{App, Entry, Event, IpamError, Placed, Told, Watch};
use crate::domain::{Adoption, Key, MoveAsk, Plan, PoolConfig, ReleaseAsk};
use convert::{allocation, ask, network, owner};
use status::{SERVICE, status};

/// The service.
#[derive(Clone, Debug)]
pub(crate) struct IpamRpc {
    pub(crate) app: App,
    pub(crate) stopping: CancellationToken,
}

type Answer<T> = Result<Response<T>, Status>;

fn answer<T>(result: Result<T, IpamError>) -> Answer<T> {
    result.map(Response::new).map_err(|error| status(&error))
}

#[tonic::async_trait]
impl IpamService for IpamRpc {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<pb::WatchResponse, Status>> + Send>>;

    async fn allocate(&self, request: Request<pb::AllocateRequest>) -> Answer<pb::AllocateResponse> {
        answer(self.do_allocate(request.into_inner()).await)
    }

    async fn release(&self, request: Request<pb::ReleaseRequest>) -> Answer<pb::ReleaseResponse> {
        answer(self.do_release(request.into_inner()).await)
    }

    async fn r#move(&self, request: Request<pb::MoveRequest>) -> Answer<pb::MoveResponse> {
        answer(self.do_move(request.into_inner()).await)
    }

    async fn lookup(&self, request: Request<pb::LookupRequest>) -> Answer<pb::LookupResponse> {
        answer(self.do_lookup(request.into_inner()).await)
    }

    async fn list_allocations(
        &self,
        request: Request<pb::ListAllocationsRequest>,
    ) -> Answer<pb::ListAllocationsResponse> {
        let request = request.into_inner();
        let page = Page::asked(SERVICE, request.page_size, &request.page_token)?;
        answer(self.do_list(page, request).await)
    }

    async fn put_pools(&self, request: Request<pb::PutPoolsRequest>) -> Answer<pb::PutPoolsResponse> {
        answer(self.do_put_pools(request.into_inner()))
    }

    async fn list_pools(&self, _: Request<pb::ListPoolsRequest>) -> Answer<pb::ListPoolsResponse> {
        let result = self.app.pools().await;
        answer(result.map(|(pools, revision)| pb::ListPoolsResponse {
            pools: pools.iter().map(convert::pool_status).collect(),
            revision: revision.0,
        }))
    }

    async fn sync_nodes(&self, _: Request<Streaming<pb::SyncNodesRequest>>) -> Answer<pb::SyncNodesResponse> {
        answer(Err(IpamError::Unsupported("SyncNodes")))
    }

    async fn filter(&self, _: Request<pb::FilterRequest>) -> Answer<pb::FilterResponse> {
        answer(Err(IpamError::Unsupported("Filter")))
    }

    async fn bind(&self, _: Request<pb::BindRequest>) -> Answer<pb::BindResponse> {
        answer(Err(IpamError::Unsupported("Bind")))
    }

    async fn adopt(&self, request: Request<pb::AdoptRequest>) -> Answer<pb::AdoptResponse> {
        answer(self.do_adopt(request.into_inner()).await)
    }

    async fn watch(&self, request: Request<pb::WatchRequest>) -> Answer<Self::WatchStream> {
        let request = request.into_inner();
        let watch = self.app.watch(
            Revision(request.revision),
            request.pools_only,
            self.stopping.clone(),
        );
        answer(
            watch
                .await
                .map(|watch| Box::pin(stream(watch)) as Self::WatchStream),
        )
    }

    async fn explain(&self, request: Request<pb::ExplainRequest>) -> Answer<pb::ExplainResponse> {
        answer(self.do_explain(request.into_inner()).await)
    }

    async fn get_store(&self, _: Request<pb::GetStoreRequest>) -> Answer<pb::GetStoreResponse> {
        let (store, revision) = self.app.store();
        let (store_id, kind) = (store.id.clone(), store.kind.to_owned());
        Ok(Response::new(pb::GetStoreResponse {
            store_id,
            revision: revision.0,
            kind,
        }))
    }
}

impl IpamRpc {
    async fn do_allocate(&self, request: pb::AllocateRequest) -> Result<pb::AllocateResponse, IpamError> {
        let owner = owner("owner", request.owner)?;
        let ask = ask(
            owner,
            request.owner_uid,
            &request.network,
            &request.requests,
            request.selector,
        )?;
        if ask.wanted.is_empty() {
            return Err(IpamError::field("requests", "must ask for at least one address"));
        }
        let (placed, plan) = self.app.allocate(&ask).await?;
        Ok(pb::AllocateResponse {
            allocations: messages(&placed),
            missing: missing(&plan),
        })
    }

    async fn do_release(&self, request: pb::ReleaseRequest) -> Result<pb::ReleaseResponse, IpamError> {
        let ask = ReleaseAsk {
            owner: owner("owner", request.owner)?,
            uid: request.owner_uid.into(),
            network: network(&request.network)?,
            prefixes: convert::prefixes("prefixes", &request.prefixes)?,
        };
        Ok(pb::ReleaseResponse {
            released: messages(&self.app.release(&ask).await?),
        })
    }

    async fn do_move(&self, request: pb::MoveRequest) -> Result<pb::MoveResponse, IpamError> {
        let ask = MoveAsk {
            from: owner("from", request.from)?,
            to: owner("to", request.to)?,
            to_uid: request.to_uid.into(),
            network: network(&request.network)?,
        };
        Ok(pb::MoveResponse {
            allocations: messages(&self.app.hand_over(&ask).await?),
        })
    }

    async fn do_lookup(&self, request: pb::LookupRequest) -> Result<pb::LookupResponse, IpamError> {
        let network = network(&request.network)?;
        let held = match request.by {
            Some(pb::lookup_request::By::Owner(by)) => {
                self.app.held_by(&network, &owner("owner", Some(by))?).await?
            }
            Some(pb::lookup_request::By::Address(address)) => self
                .app
                .holder(&network, convert::address(&address)?)
                .await?
                .into_iter()
                .collect(),
            None => return Err(IpamError::field("by", "name an owner or an address")),
        };
        Ok(pb::LookupResponse {
            allocations: messages(&held),
        })
    }

    async fn do_list(
        &self,
        page: Page<Key>,
        request: pb::ListAllocationsRequest,
    ) -> Result<pb::ListAllocationsResponse, IpamError> {
        // One more than the page holds tells whether there is another page.
        let (found, revision) = self
            .app
            .list(page.after(), page.size() + 1, |held| {
                (request.cluster.is_empty() || held.owner.cluster.as_str() == request.cluster)
                    && (request.network.is_empty() || held.key.network.as_str() == request.network)
            })
            .await?;
        let (found, next_page_token) = page.cut(found, |(held, _)| &held.key);
        Ok(pb::ListAllocationsResponse {
            allocations: messages(&found),
            next_page_token,
            revision: revision.0,
        })
    }

    fn do_put_pools(&self, request: pb::PutPoolsRequest) -> Result<pb::PutPoolsResponse, IpamError> {
        let source = PoolSource(convert::parse::<Name>("source", &request.source)?);
        for (index, pool) in request.pools.iter().enumerate() {
            let told = pool.r#ref.as_ref().map_or("", |id| id.source.as_str());
            if !told.is_empty() && told != request.source {
                let message = format!("is `{told}`, and these are pools of `{}`", request.source);
                return Err(IpamError::field(format!("pools[{index}].ref.source"), message));
            }
        }
        let pools: Vec<PoolConfig> = request.pools.into_iter().map(convert::pool_config).collect();
        let revision = self.app.put_pools(&source, request.source_revision, &pools)?;
        Ok(pb::PutPoolsResponse { revision: revision.0 })
    }

    async fn do_adopt(&self, request: pb::AdoptRequest) -> Result<pb::AdoptResponse, IpamError> {
        let (snapshot, mut uncovered) = convert::adoption(&request)?;
        let seen = Revision(request.store_revision);
        let (adoption, evicted, revision) = self.app.adopt(snapshot, &request.store_id, seen).await?;
        let told = |index: usize| request.holdings.get(index).cloned();
        let prefixes = adoption.uncovered.iter().filter_map(|(index, prefix)| {
            Some(pb::Holding {
                prefixes: vec![prefix.to_string()],
                ..told(*index)?
            })
        });
        uncovered.extend(prefixes);
        let Adoption {
            adopted, conflicts, ..
        } = adoption;
        let conflict = |conflict: &crate::domain::Conflict| pb::Conflict {
            holding: told(conflict.holding),
            prefix: conflict.prefix.to_string(),
            holder: Some((&*conflict.holder).into()),
        };
        Ok(pb::AdoptResponse {
            store_id: self.app.store().0.id.clone(),
            revision: revision.0,
            adopted,
            conflicts: conflicts.iter().map(conflict).collect(),
            uncovered,
            evicted: messages(&evicted),
        })
    }

    async fn do_explain(&self, request: pb::ExplainRequest) -> Result<pb::ExplainResponse, IpamError> {
        let owner = owner("owner", request.owner)?;
        let ask = ask(
            owner,
            String::new(),
            &request.network,
            &request.requests,
            request.selector,
        )?;
        let (explanation, held) = self.app.explain(&ask).await?;
        Ok(pb::ExplainResponse {
            allocations: messages(&held),
            verdicts: explanation.verdicts.iter().map(convert::verdict).collect(),
            summary: explanation.summary,
        })
    }
}

fn messages(placed: &[Placed]) -> Vec<pb::Allocation> {
    placed.iter().map(allocation).collect()
}

fn missing(plan: &Plan) -> Vec<pb::Missing> {
    let message = |missing: &crate::domain::Missing| pb::Missing {
        family: convert::family(missing.family),
        reason: missing.refusal.reason().to_owned(),
        message: missing.refusal.to_string(),
    };
    plan.missing.iter().map(message).collect()
}

fn stream(watch: Watch) -> impl Stream<Item = Result<pb::WatchResponse, Status>> + Send {
    futures::stream::unfold(Some(watch), |watch| async {
        let mut watch = watch?;
        match watch.next().await? {
            Ok(told) => Some((Ok(watch_message(told)), Some(watch))),
            Err(error) => Some((Err(status(&error)), None)),
        }
    })
}

fn watch_message(told: Told) -> pb::WatchResponse {
    use pb::watch_response::Event as Message;
    let (revision, event) = match told {
        Told::Synced(revision) => (revision, Message::Synced(true)),
        Told::Event(Entry { revision, event }) => {
            let message = match event {
                Event::Allocated(held, pool) => Message::Allocated(allocation(&(held, pool))),
                Event::Released(held, pool) => Message::Released(allocation(&(held, pool))),
                Event::Pool(status) => Message::Pool(convert::pool_status(&status)),
                Event::PoolGone(id) => Message::PoolGone(convert::pool_ref(&id)),
                Event::Freed(id) => Message::Freed(convert::pool_ref(&id)),
            };
            (revision, message)
        }
    };
    pb::WatchResponse {
        revision: revision.0,
        event: Some(event),
    }
}
