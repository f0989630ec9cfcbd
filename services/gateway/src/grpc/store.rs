//! Trusts another store of ipam.

use std::time::Duration;

use groundplane_proto::gateway::v1::AcceptStoreResponse;
use groundplane_proto::ipam::v1::GetStoreRequest;
use tracing::warn;

use super::GatewayError;
use crate::gateway::Gateway;

/// Adoption is waited for this long: less than a client's own patience.
const PATIENCE: Duration = Duration::from_secs(8);

/// Trusts the store that ipam has, if it is the one that the person named, and tells ipam what the cluster holds.
pub(super) async fn accept(gateway: &Gateway, store: &str) -> Result<AcceptStoreResponse, GatewayError> {
    if store.is_empty() {
        return Err(GatewayError::NoStore);
    }
    if !gateway.cluster.leader.is_leader() {
        return Err(GatewayError::NotLeader);
    }
    let present = gateway
        .services
        .ipam
        .get_store(GetStoreRequest {})
        .await?
        .store_id;
    if present != store {
        return Err(GatewayError::OtherStore {
            present,
            asked: store.to_owned(),
        });
    }
    warn!(
        store,
        "this store of ipam is trusted from now on, as a person asked"
    );
    gateway.adoption.accept(store);
    if gateway.adoption.adopts(store, PATIENCE).await {
        Ok(AcceptStoreResponse {})
    } else {
        Err(GatewayError::Adopting)
    }
}
