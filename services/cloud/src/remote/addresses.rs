//! Elastic IPs. The tags are ours, and the provider's to keep.

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use groundplane_core::{ClusterId, Family, Owner};
use groundplane_proto::provider::v1::address_service_client::AddressServiceClient;
use groundplane_proto::provider::v1::{
    CreateReservationRequest, DeleteReservationRequest, ListReservationsRequest, ListReservationsResponse,
    ReplaceTagsRequest,
};
use groundplane_runtime::grpc::Channel;
use sha2::{Digest as _, Sha256};

use super::Remote;
use super::call::{LONGEST_ANSWER, Operation};
use super::convert::reservation;
use super::pages::{Page, whole};
use crate::config::Capability;
use crate::{CloudError, CloudErrorKind, ElasticIps, NewReservation, Reservation, ReservationState};

const USAGE: &str = "usage=groundplane";
/// What people see where the provider shows it.
const DESCRIPTION: &str = "groundplane: address of a Kubernetes Service";
/// Bytes of a tag that every provider keeps.
const LONGEST_TAG: usize = 255;

pub(super) fn client(channel: Channel) -> AddressServiceClient<Channel> {
    AddressServiceClient::new(channel).max_decoding_message_size(LONGEST_ANSWER)
}

fn cluster_tag(cluster: &ClusterId) -> String {
    short("cluster", &cluster.to_string())
}

/// `key=value`, by its hash where it is too long to be kept.
fn short(key: &str, value: &str) -> String {
    let plain = format!("{key}={value}");
    if plain.len() <= LONGEST_TAG {
        return plain;
    }
    let hash = Sha256::digest(value.as_bytes());
    format!("{key}-sha256={}", STANDARD.encode(hash))
}

#[async_trait]
impl ElasticIps for Remote {
    fn tags_of(&self, owner: &Owner) -> Vec<String> {
        vec![
            USAGE.to_owned(),
            cluster_tag(&owner.cluster),
            short("owner", &owner.to_string()),
        ]
    }

    fn cluster_tags(&self, cluster: &ClusterId) -> Vec<String> {
        vec![USAGE.to_owned(), cluster_tag(cluster)]
    }

    /// Before the first answer: the provider will say.
    fn supports(&self, family: Family) -> bool {
        self.inner
            .capabilities
            .last()
            .is_none_or(|said| said.families.contains(&family))
    }

    async fn list(&self) -> Result<Vec<Reservation>, CloudError> {
        let operation = Operation::read("list reservations", "ListReservations");
        self.offers(Capability::Addresses, &operation).await?;
        let rows = self
            .list(
                &operation,
                |cursor| ListReservationsRequest {
                    page_size: cursor.size,
                    page_token: cursor.token,
                },
                |channel, request| async move { client(channel).list_reservations(request).await },
                |answer: ListReservationsResponse| Page {
                    items: answer.reservations,
                    next: answer.next_page_token,
                    total: answer.total_size,
                },
                |row| &row.id,
            )
            .await?;
        whole(rows, &operation, reservation)
    }

    /// Repeated by its key where an answer was lost, so that it is made once.
    async fn create(&self, wanted: &NewReservation) -> Result<Reservation, CloudError> {
        let operation = Operation {
            reserves: true,
            ..Operation::read("create reservation", "CreateReservation")
        };
        self.offers(Capability::Addresses, &operation).await?;
        let request = CreateReservationRequest {
            idempotency_key: uuid::Uuid::new_v4().simple().to_string(),
            family: wanted.family.to_string(),
            tags: wanted.tags.clone(),
            metro: wanted.placement.metro.clone(),
            facility: wanted.placement.facility.clone(),
            description: DESCRIPTION.to_owned(),
        };
        let answer = self
            .call(&operation, request, |channel, request| async move {
                client(channel).create_reservation(request).await
            })
            .await?;
        let made = answer
            .reservation
            .ok_or_else(|| operation.nonsense("an answer without a reservation"))?;
        let made = reservation(made).map_err(|wrong| operation.nonsense(wrong))?;
        // A reservation that lost its tags, or has another's, would be found by nobody, or by the wrong one.
        match check(&made, wanted) {
            None => Ok(made),
            Some(wrong) => Err(operation.nonsense(wrong)),
        }
    }

    async fn delete(&self, id: &str) -> Result<(), CloudError> {
        let operation = Operation::read(format!("delete reservation {id}"), "DeleteReservation").finds();
        self.offers(Capability::Addresses, &operation).await?;
        let request = DeleteReservationRequest { id: id.to_owned() };
        let deleted = self
            .call(&operation, request, |channel, request| async move {
                client(channel).delete_reservation(request).await
            })
            .await;
        match deleted {
            Ok(_) => Ok(()),
            // Against the contract, and yet what was wanted.
            Err(failed) if failed.error.is(CloudErrorKind::NotFound) => Ok(()),
            Err(failed) => Err(failed.error),
        }
    }

    /// Before the first answer: no, so that nothing is begun that could not be ended.
    fn retags(&self) -> bool {
        let said = self.inner.capabilities.last();
        said.is_some_and(|said| said.replaces_tags)
    }

    async fn retag(&self, id: &str, tags: &[String]) -> Result<Reservation, CloudError> {
        let operation = Operation::read(format!("replace tags of reservation {id}"), "ReplaceTags").finds();
        let said = self.offers(Capability::Addresses, &operation).await?;
        if !said.replaces_tags {
            let message = format!("the provider `{}` has no ReplaceTags", said.name);
            return Err(operation.error(CloudErrorKind::Refused, message));
        }
        let request = ReplaceTagsRequest {
            id: id.to_owned(),
            tags: tags.to_vec(),
        };
        let answer = self
            .call(&operation, request, |channel, request| async move {
                client(channel).replace_tags(request).await
            })
            .await?;
        let changed = answer
            .reservation
            .ok_or_else(|| operation.nonsense("an answer without a reservation"))?;
        let changed = reservation(changed).map_err(|wrong| operation.nonsense(wrong))?;
        if changed.id != id || changed.tags != tags {
            let wrong = format!(
                "it changed `{}`, which has the tags {:?}",
                changed.id, changed.tags
            );
            return Err(operation.nonsense(wrong));
        }
        Ok(changed)
    }
}

/// What is wrong with a new reservation.
fn check(made: &Reservation, wanted: &NewReservation) -> Option<String> {
    if made.tags != wanted.tags {
        return Some(format!(
            "reservation `{}` does not carry the tags that it was given",
            made.id
        ));
    }
    match made.prefix {
        Some(prefix) if prefix.family() != wanted.family || !prefix.is_host() => Some(format!(
            "reservation `{}` has the prefix {prefix}, and one {} address was asked for",
            made.id, wanted.family
        )),
        None if made.state == ReservationState::Ready => {
            Some(format!("reservation `{}` is ready and has no prefix", made.id))
        }
        _ => None,
    }
}
