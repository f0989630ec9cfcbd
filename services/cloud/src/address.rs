//! Elastic IPs.

use async_trait::async_trait;
use groundplane_core::{Family, Owner, Prefix};

use crate::CloudError;

/// Where an address is wanted. Empty: as the driver is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Placement {
    /// The cloud's name of a metropolitan area or region.
    pub metro: String,
    /// The cloud's name of a data centre.
    pub facility: String,
}

/// How far a reservation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReservationState {
    /// It can be used.
    Ready,
    /// A person at the cloud has to approve it.
    Pending,
    /// It was refused, or is on its way out.
    Denied,
}

/// An address that we have from the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The cloud's id.
    pub id: String,
    /// The address; `None` while it is pending.
    pub prefix: Option<Prefix>,
    /// How far it is.
    pub state: ReservationState,
    /// Every tag, in the cloud's order.
    pub tags: Vec<String>,
    /// Machines that hold it.
    pub assignments: Vec<Assignment>,
    /// Can it serve a Service: public, of a type that we manage (not a VRF's, not a machine's own)?
    pub usable: bool,
}

/// An address on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The cloud's id of the assignment.
    pub id: String,
    /// The cloud's id of the machine.
    pub machine: String,
}

/// A reservation that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewReservation {
    /// Which family.
    pub family: Family,
    /// By which it is found again: the recorded intent.
    pub tags: Vec<String>,
    /// Where.
    pub placement: Placement,
}

/// What the tags of an older controller of the same cloud say of the cluster that a reservation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Former {
    /// They name this cluster.
    OfCluster,
    /// They name none: it may be this one's, or another's.
    Unsaid,
}

/// A cloud that gives out elastic IPs.
#[async_trait]
pub trait ElasticIps: Send + Sync + 'static {
    /// The tags by which the reservation of `owner` is known. Found by containing all of them.
    fn tags_of(&self, owner: &Owner) -> Vec<String>;

    /// The tags that every reservation which we made for any Service of this cluster carries.
    fn cluster_tags(&self, cluster: &groundplane_core::ClusterId) -> Vec<String>;

    /// Can it give out addresses of this family?
    fn supports(&self, family: Family) -> bool;

    /// Every reservation, all pages. Complete, or an error.
    async fn list(&self) -> Result<Vec<Reservation>, CloudError>;

    /// Makes a reservation. Never sent twice by the driver itself: after a failure without an answer (`Timeout`, `Unavailable`),
    /// list and look for the tags before trying again.
    ///
    /// # Errors
    /// `QuotaExceeded`.
    async fn create(&self, wanted: &NewReservation) -> Result<Reservation, CloudError>;

    /// Gives a reservation back. Gone already is success.
    async fn delete(&self, id: &str) -> Result<(), CloudError>;

    /// Are these the tags of an older controller of this cloud, which we know and do not write? `None`: no, or they name another
    /// cluster. Whose they are is told by the same tag of the owner that we write.
    fn former(&self, _cluster: &groundplane_core::ClusterId, _tags: &[String]) -> Option<Former> {
        None
    }

    /// Did an older controller of this cloud make it for an owner, whichever that is?
    fn is_of_older_controller(&self, _tags: &[String]) -> bool {
        false
    }

    /// Does [`ElasticIps::retag`] work? Without it nothing is taken over from older controllers, and no address is shared.
    fn retags(&self) -> bool {
        false
    }

    /// Gives a reservation these tags instead of those that it has. The same twice is as once.
    ///
    /// # Errors
    /// `NotFound`: it does not exist. `Refused`: the cloud cannot.
    async fn retag(&self, id: &str, _tags: &[String]) -> Result<Reservation, CloudError> {
        Err(CloudError::new(
            crate::CloudErrorKind::Refused,
            format!("retag reservation {id}"),
            "tags cannot be changed in this cloud",
        ))
    }
}
