//! Floating IPs. The tags of one are the record of who it is for, in the form that the cloud's own controller writes: a map, which is
//! `key=value` to everybody else here.

use async_trait::async_trait;
use groundplane_core::older::CHERRY;
use groundplane_core::{ClusterId, Family, Owner, Prefix};
use http::Method;
use serde_json::json;

use super::pages::ADDRESSES;
use super::{Cherry, endpoint, wire};
use crate::error::not_absence;
use crate::http::Call;
use crate::{
    Assignment, CloudError, CloudErrorKind, ElasticIps, NewReservation, Placement, Reservation,
    ReservationState, tags,
};

const USAGE: &str = CHERRY.usage;

#[async_trait]
impl ElasticIps for Cherry {
    fn tags_of(&self, owner: &Owner) -> Vec<String> {
        as_kept(&tags::of_owner(USAGE, owner))
    }

    fn cluster_tags(&self, cluster: &ClusterId) -> Vec<String> {
        as_kept(&tags::of_cluster(USAGE, cluster))
    }

    fn supports(&self, family: Family) -> bool {
        match family {
            Family::V4 => true,
            // An order does not say of which family, and what comes is IPv4.
            Family::V6 => false,
        }
    }

    async fn list(&self) -> Result<Vec<Reservation>, CloudError> {
        Ok(self.addresses().await?.iter().map(reservation).collect())
    }

    async fn create(&self, wanted: &NewReservation) -> Result<Reservation, CloudError> {
        let call = Call::new(
            "create floating IP",
            Method::POST,
            ADDRESSES.route,
            self.in_project(ADDRESSES.path),
        );
        if !self.supports(wanted.family) {
            let message = format!("this cloud has no {} floating IPs", wanted.family);
            return Err(call.error(CloudErrorKind::Refused, message));
        }
        let tags = need_tags(&wanted.tags, &call)?;
        let region = self.region(&wanted.placement, &call)?;
        let call = call.body(json!({ "region": region, "tags": tags.0 }));
        let made: wire::Ip = self.http.read(&call).await.map_err(not_absence)?;
        Ok(reservation(&made))
    }

    async fn delete(&self, id: &str) -> Result<(), CloudError> {
        let call = Call::on_ip(format!("delete floating IP {id}"), Method::DELETE, id)?;
        self.http.delete(&call).await
    }

    fn retags(&self) -> bool {
        true
    }

    async fn retag(&self, id: &str, tags: &[String]) -> Result<Reservation, CloudError> {
        let call = Call::on_ip(format!("retag floating IP {id}"), Method::PUT, id)?;
        let tags = need_tags(tags, &call)?;
        let row: wire::Ip = self.http.read(&call.body(json!({ "tags": tags.0 }))).await?;
        Ok(reservation(&row))
    }
}

fn need_tags(texts: &[String], call: &Call) -> Result<wire::Tags, CloudError> {
    wire::Tags::of_texts(texts).map_err(|key| {
        let message = format!("a tag has one value, and `{key}` would have two");
        call.error(CloudErrorKind::Refused, message)
    })
}

impl Cherry {
    /// Where a floating IP goes: what is asked for before what is configured.
    fn region<'a>(&'a self, wanted: &'a Placement, call: &Call) -> Result<&'a str, CloudError> {
        [&wanted.metro, &wanted.facility, &self.config.region]
            .into_iter()
            .map(String::as_str)
            .find(|region| !region.is_empty())
            .ok_or_else(|| {
                let message = "no region; set cherry.region, or the Service's annotation";
                call.error(CloudErrorKind::Refused, message)
            })
    }
}

/// In the order in which the map gives them back. No key is there twice.
fn as_kept(tags: &[String]) -> Vec<String> {
    wire::Tags::of_texts(tags).unwrap_or_default().texts()
}

/// What of it belongs to us: all of a floating IP or a subnet; of a server's own network its address alone.
pub(super) fn prefix(row: &wire::Ip) -> Option<Prefix> {
    let own = row.is_public() || row.is_private();
    let block: Option<Prefix> = row.cidr.parse().ok().filter(|_| !own);
    block.or_else(|| row.address.map(Prefix::host))
}

fn reservation(row: &wire::Ip) -> Reservation {
    let prefix = prefix(row);
    let assignment = |server: u64| Assignment {
        id: endpoint::assignment_id(&row.id, server),
        machine: server.to_string(),
    };
    Reservation {
        id: row.id.clone(),
        prefix,
        state: if prefix.is_some() {
            ReservationState::Ready
        } else {
            ReservationState::Pending
        },
        tags: row.tags.texts(),
        assignments: row.holder().map(assignment).into_iter().collect(),
        usable: row.is_floating(),
    }
}
