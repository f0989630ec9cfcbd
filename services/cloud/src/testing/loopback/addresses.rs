//! Reservations, and what holds them.

use std::net::IpAddr;
use std::sync::Arc;

use groundplane_core::ErrorKind;
use groundplane_proto::provider::v1 as wire;
use groundplane_proto::provider::v1::address_service_server::AddressService;
use groundplane_proto::provider::v1::get_endpoint_request::Selector;
use tokio::sync::oneshot;
use tonic::{Request, Response, Status};

use super::{Loopback, failed, family, lacks, page, provider_id, refused};
use crate::{
    AddressBackend, CloudErrorKind, ElasticIps, Endpoint, EndpointAssignment, EndpointIps, EndpointSelector,
    NewReservation, Placement, Reservation, ReservationState,
};

/// What a key made.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    wanted: NewReservation,
    id: String,
}

impl Loopback {
    fn ips(&self) -> Result<&Arc<dyn ElasticIps>, Status> {
        match &self.cloud.addresses {
            AddressBackend::Cloud(ips) => Ok(ips),
            AddressBackend::Ipam => Err(lacks("addresses")),
        }
    }

    fn mover(&self) -> Result<&Arc<dyn EndpointIps>, Status> {
        self.endpoint.as_ref().ok_or_else(|| lacks("endpoint"))
    }

    fn reservation(&self, row: Reservation) -> wire::Reservation {
        let state = match row.state {
            ReservationState::Ready => wire::ReservationState::Ready,
            ReservationState::Pending => wire::ReservationState::Pending,
            ReservationState::Denied => wire::ReservationState::Denied,
        };
        let assignments = row.assignments.into_iter().map(|held| wire::Assignment {
            id: held.id,
            provider_id: self.provider_id(&held.machine),
            address: String::new(),
        });
        wire::Reservation {
            assignments: assignments.collect(),
            id: row.id,
            prefix: row.prefix.map(|prefix| prefix.to_string()).unwrap_or_default(),
            pending: row.state == ReservationState::Pending,
            tags: row.tags,
            state: state.into(),
            not_for_services: !row.usable,
            ..wire::Reservation::default()
        }
    }

    /// Makes it, or finds what the key made before. Runs to its end whatever becomes of the call.
    async fn make(self, key: String, wanted: NewReservation) -> Result<wire::Reservation, Status> {
        let ips = Arc::clone(self.ips()?);
        let entry = Arc::clone(self.keys.lock().entry(key).or_default());
        let mut kept = entry.lock().await;
        if let Some(before) = &*kept {
            if before.wanted != wanted {
                let message = "the idempotency key was used for another reservation";
                return Err(refused(ErrorKind::Precondition, "KEY_REUSED", message));
            }
            let all = ips.list().await.map_err(|error| failed(&error))?;
            if let Some(row) = all.into_iter().find(|row| row.id == before.id) {
                return Ok(self.reservation(row));
            }
        }
        let made = ips.create(&wanted).await.map_err(|error| failed(&error))?;
        *kept = Some(Kept {
            wanted,
            id: made.id.clone(),
        });
        Ok(self.reservation(made))
    }

    /// Who alone holds the address; `None`: nobody, or several.
    async fn holder(&self, address: IpAddr) -> Result<Option<EndpointAssignment>, Status> {
        let found = self.mover()?.endpoint(&EndpointSelector::Address(address)).await;
        let mut held = found.map_err(|error| failed(&error))?.assignments;
        Ok(if held.len() == 1 { held.pop() } else { None })
    }
}

fn address(text: &str) -> Result<IpAddr, Status> {
    text.parse().map_err(|_| {
        let message = format!("`{text}` is not an IP address");
        refused(ErrorKind::Invalid, "ADDRESS", message)
    })
}

fn assignment(row: EndpointAssignment) -> wire::Assignment {
    wire::Assignment {
        id: row.id,
        provider_id: row.machine.to_string(),
        address: String::new(),
    }
}

fn endpoint(found: Endpoint) -> wire::GetEndpointResponse {
    wire::GetEndpointResponse {
        address: found.address.to_string(),
        assignments: found.assignments.into_iter().map(assignment).collect(),
    }
}

#[async_trait::async_trait]
impl AddressService for Loopback {
    async fn list_reservations(
        &self,
        request: Request<wire::ListReservationsRequest>,
    ) -> Result<Response<wire::ListReservationsResponse>, Status> {
        let wire::ListReservationsRequest {
            page_size,
            page_token,
        } = request.into_inner();
        let all = self.ips()?.list().await.map_err(|error| failed(&error))?;
        let rows: Vec<_> = all.into_iter().map(|row| self.reservation(row)).collect();
        let (reservations, next_page_token, total_size) = page(rows, page_size, &page_token, |row| &row.id)?;
        Ok(Response::new(wire::ListReservationsResponse {
            reservations,
            next_page_token,
            total_size,
        }))
    }

    async fn create_reservation(
        &self,
        request: Request<wire::CreateReservationRequest>,
    ) -> Result<Response<wire::CreateReservationResponse>, Status> {
        let asked = request.into_inner();
        let wanted = NewReservation {
            family: family(&asked.family)?,
            tags: asked.tags,
            placement: Placement {
                metro: asked.metro,
                facility: asked.facility,
            },
        };
        if !(1..=128).contains(&asked.idempotency_key.len()) {
            let message = "idempotency_key: 1 to 128 bytes";
            return Err(refused(ErrorKind::Invalid, "IDEMPOTENCY_KEY", message));
        }
        if !self.ips()?.supports(wanted.family) {
            let message = format!("no {} addresses here", wanted.family);
            return Err(refused(ErrorKind::Invalid, "FAMILY", message));
        }
        let (done, answer) = oneshot::channel();
        let this = self.clone();
        // Beyond the call: what was begun ends in a state that the key leads to.
        self.tasks.spawn("loopback-create", async move {
            let made = this.make(asked.idempotency_key, wanted).await;
            // Whoever does not wait any more asks again by its key.
            done.send(made).ok();
        });
        let made = answer
            .await
            .map_err(|_| Status::unavailable("the provider stops"))??;
        Ok(Response::new(wire::CreateReservationResponse {
            reservation: Some(made),
        }))
    }

    async fn delete_reservation(
        &self,
        request: Request<wire::DeleteReservationRequest>,
    ) -> Result<Response<wire::DeleteReservationResponse>, Status> {
        let deleted = self.ips()?.delete(&request.into_inner().id).await;
        deleted.map_err(|error| failed(&error))?;
        Ok(Response::new(wire::DeleteReservationResponse {}))
    }

    async fn replace_tags(
        &self,
        request: Request<wire::ReplaceTagsRequest>,
    ) -> Result<Response<wire::ReplaceTagsResponse>, Status> {
        let wire::ReplaceTagsRequest { id, tags } = request.into_inner();
        let ips = self.ips()?;
        if !ips.retags() {
            return Err(lacks("way to replace tags"));
        }
        let changed = ips.retag(&id, &tags).await.map_err(|error| failed(&error))?;
        Ok(Response::new(wire::ReplaceTagsResponse {
            reservation: Some(self.reservation(changed)),
        }))
    }

    async fn assign(
        &self,
        request: Request<wire::AssignRequest>,
    ) -> Result<Response<wire::AssignResponse>, Status> {
        let asked = request.into_inner();
        let (address, machine) = (address(&asked.address)?, provider_id(&asked.provider_id)?);
        let made = match self.mover()?.assign(address, &machine).await {
            Ok(made) => made,
            Err(error)
                if matches!(
                    error.kind,
                    CloudErrorKind::AlreadyExists | CloudErrorKind::Refused
                ) =>
            {
                self.holder(address)
                    .await?
                    .filter(|held| held.machine == machine)
                    .ok_or_else(|| failed(&error))?
            }
            Err(error) => return Err(failed(&error)),
        };
        Ok(Response::new(wire::AssignResponse {
            assignment: Some(assignment(made)),
        }))
    }

    async fn unassign(
        &self,
        request: Request<wire::UnassignRequest>,
    ) -> Result<Response<wire::UnassignResponse>, Status> {
        let id = request.into_inner().assignment_id;
        let taken = self.mover()?.unassign(&id).await;
        taken.map_err(|error| failed(&error))?;
        Ok(Response::new(wire::UnassignResponse {}))
    }

    async fn get_endpoint(
        &self,
        request: Request<wire::GetEndpointRequest>,
    ) -> Result<Response<wire::GetEndpointResponse>, Status> {
        let selector = match request.into_inner().selector {
            Some(Selector::Tag(tag)) => EndpointSelector::Tag(tag),
            Some(Selector::Address(text)) => EndpointSelector::Address(address(&text)?),
            None => {
                let message = "selector: neither a tag nor an address";
                return Err(refused(ErrorKind::Invalid, "SELECTOR", message));
            }
        };
        let found = self.mover()?.endpoint(&selector).await;
        Ok(Response::new(endpoint(found.map_err(|error| failed(&error))?)))
    }

    async fn reassign(
        &self,
        request: Request<wire::ReassignRequest>,
    ) -> Result<Response<wire::ReassignResponse>, Status> {
        let asked = request.into_inner();
        let (address, machine) = (address(&asked.address)?, provider_id(&asked.provider_id)?);
        let mover = self.mover()?;
        if !mover.moves_atomically() {
            return Err(lacks("move in one step"));
        }
        let held = self.holder(address).await?.filter(|held| held.machine == machine);
        let made = match held {
            Some(held) => held,
            None => mover
                .reassign(address, &machine)
                .await
                .map_err(|error| failed(&error))?,
        };
        Ok(Response::new(wire::ReassignResponse {
            assignment: Some(assignment(made)),
        }))
    }
}
