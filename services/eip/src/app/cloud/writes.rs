//! What is written to the cloud, one reservation at a time.

use groundplane_cloud::{CloudError, CloudErrorKind, NewReservation, Reservation, ReservationState};
use groundplane_core::{Family, Owner};
use tracing::{info, warn};

use super::{CloudEips, Given};
use crate::domain::{Ask, Choice, Refusal, Wanted, has_all, passed_on};
use crate::error::EipError;
use crate::metrics::Effect;

impl CloudEips {
    /// Does what the plan says for one family.
    pub(super) async fn carry_out(
        &self,
        ask: &Ask,
        wanted: &Wanted,
        choice: Choice,
    ) -> Result<Given, EipError> {
        match choice {
            Choice::Use(reservation) => {
                // What could not become an heir's is not shared in the first place.
                let cloud = &self.0.cloud;
                if !cloud.retags() && !has_all(&reservation.tags, &cloud.tags_of(&ask.owner)) {
                    return Err(EipError::SharingUnsupported);
                }
                Ok(Given::from(reservation))
            }
            Choice::Adopt(reservation) => self.adopt(&ask.owner, reservation).await.map(Given::from),
            Choice::Brought(prefix, id) => Ok(Given {
                prefix: Some(prefix),
                origin: id.unwrap_or_default(),
                pending: false,
                user_provided: true,
            }),
            Choice::Create => self.create(ask, wanted.family).await,
            Choice::Refuse(refusal) => Err(self.refused(refusal)),
        }
    }

    fn refused(&self, refusal: Refusal) -> EipError {
        match refusal {
            Refusal::Taken(address, reservation, tags) => {
                let telling: Vec<_> = tags
                    .into_iter()
                    .filter(|tag| !self.0.marks.contains(tag))
                    .collect();
                EipError::Taken {
                    address,
                    reservation,
                    holder: telling.join(", "),
                }
            }
            Refusal::Endpoint(address) => EipError::OfEndpoint { address },
            Refusal::AlreadyHolds(held) => EipError::AlreadyHolds { held },
            Refusal::Denied(id) => EipError::Denied(id),
            Refusal::Unsupported(family) => EipError::FamilyUnsupported(family),
        }
    }

    async fn create(&self, ask: &Ask, family: Family) -> Result<Given, EipError> {
        let wanted = NewReservation {
            family,
            tags: self.0.cloud.tags_of(&ask.owner),
            placement: ask.placement.clone(),
        };
        let created = self.0.cloud.create(&wanted).await;
        self.0.metrics.wrote(Effect::Create, created.is_ok());
        let reservation = created.map_err(unanswered)?;
        info!(reservation = reservation.id, prefix = ?reservation.prefix, "reservation made");
        self.0.inventory.put(reservation.clone());
        if reservation.state == ReservationState::Denied {
            return Err(EipError::Denied(reservation.id));
        }
        Ok(Given::from(reservation))
    }

    /// Puts our tags on what an older controller left for the owner.
    async fn adopt(&self, owner: &Owner, reservation: Reservation) -> Result<Reservation, EipError> {
        info!(
            reservation = reservation.id, prefix = ?reservation.prefix, tags = reservation.tags.join(" "),
            "taking over what an older controller made"
        );
        let tags = passed_on(&reservation.tags, &[], self.0.cloud.tags_of(owner));
        self.retag(reservation, tags, Effect::Adopt).await
    }

    /// Makes what the owner held another's. Where tags cannot be changed it stays as it is, and nobody deletes it while it is in use.
    pub(super) async fn pass_on(
        &self,
        reservation: Reservation,
        from: &Owner,
        to: &Owner,
    ) -> Result<Reservation, EipError> {
        let cloud = &self.0.cloud;
        if !cloud.retags() {
            warn!(reservation = reservation.id, heir = %to, "shared address keeps the tags of an owner that is gone");
            return Ok(reservation);
        }
        info!(reservation = reservation.id, prefix = ?reservation.prefix, heir = %to, "shared address passed on");
        let tags = passed_on(&reservation.tags, &cloud.tags_of(from), cloud.tags_of(to));
        self.retag(reservation, tags, Effect::PassOn).await
    }

    async fn retag(
        &self,
        reservation: Reservation,
        tags: Vec<String>,
        effect: Effect,
    ) -> Result<Reservation, EipError> {
        let id = reservation.id;
        let retagged = self.0.cloud.retag(&id, &tags).await;
        self.0.metrics.wrote(effect, retagged.is_ok());
        match retagged {
            // What the cloud took down, and not what was sent: it is what the next list will say.
            Ok(after) if has_all(&after.tags, &tags) => {
                self.0.inventory.put(after.clone());
                Ok(after)
            }
            Ok(_) => Err(EipError::Unanswered(CloudError::new(
                CloudErrorKind::Unavailable,
                format!("retag reservation {id}"),
                "the cloud did not keep the tags",
            ))),
            Err(error) if error.is(CloudErrorKind::NotFound) => {
                self.0.inventory.remove(&id);
                Err(EipError::Vanished(id))
            }
            Err(error) => Err(unanswered(error)),
        }
    }

    pub(super) async fn delete(&self, reservation: &Reservation, effect: Effect) -> Result<(), EipError> {
        // From here on it may go, whatever the answer will be, and though nobody waits for that any more: who asks meanwhile is given what
        // a list says that begins then, and never this from memory.
        self.0.inventory.remove(&reservation.id);
        let deleted = self.0.cloud.delete(&reservation.id).await;
        self.0.metrics.wrote(effect, deleted.is_ok());
        deleted?;
        info!(reservation = reservation.id, prefix = ?reservation.prefix, ?effect, "reservation deleted");
        // A list that began meanwhile may have seen it.
        self.0.inventory.remove(&reservation.id);
        Ok(())
    }
}

fn unanswered(error: CloudError) -> EipError {
    match error.kind {
        CloudErrorKind::Timeout | CloudErrorKind::Unavailable => EipError::Unanswered(error),
        _ => EipError::Cloud(error),
    }
}
