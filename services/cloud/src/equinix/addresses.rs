//! Elastic IPs. The tags of a reservation are the record of who it is for, in the form that the cloud's own controller writes.

use async_trait::async_trait;
use groundplane_core::older::{DOCUMENTED_USAGE, EQUINIX_METAL, PACKET_CCM};
use groundplane_core::{ClusterId, Family, Owner, Prefix};
use http::Method;
use serde_json::json;

use super::pages::List;
use super::{Equinix, wire};
use crate::error::not_absence;
use crate::http::Call;
use crate::{
    Assignment, CloudError, CloudErrorKind, ElasticIps, Former, NewReservation, Placement, Reservation,
    ReservationState, tags,
};

const USAGE: &str = EQUINIX_METAL.usage;
/// What the oldest controllers wrote instead, without a cluster: packet-ccm, and the first ones of Equinix Metal.
const FORMER_USAGES: [&str; 2] = [PACKET_CCM.usage, DOCUMENTED_USAGE];
/// What people see in the console; the cloud's own controller writes the same.
const DETAILS: &str = "Equinix Metal Kubernetes CCM auto-generated for Load Balancer";

pub(super) const LIST: List = List {
    operation: "list reservations",
    route: "/projects/{pid}/ips",
    path: "ips",
    include: Some("assignments"),
    may_lack_meta: false,
};

#[async_trait]
impl ElasticIps for Equinix {
    fn tags_of(&self, owner: &Owner) -> Vec<String> {
        tags::of_owner(USAGE, owner)
    }

    fn cluster_tags(&self, cluster: &ClusterId) -> Vec<String> {
        tags::of_cluster(USAGE, cluster)
    }

    fn supports(&self, family: Family) -> bool {
        match family {
            Family::V4 | Family::V6 => true,
        }
    }

    async fn list(&self) -> Result<Vec<Reservation>, CloudError> {
        Ok(self
            .list_all::<wire::Reservation>(LIST)
            .await?
            .into_iter()
            .map(reservation)
            .collect())
    }

    async fn create(&self, wanted: &NewReservation) -> Result<Reservation, CloudError> {
        let call = Call::new(
            "create reservation",
            Method::POST,
            LIST.route,
            self.in_project(LIST.path),
        );
        let (place, code) = self.place(&wanted.placement, &call)?;
        let kind = match wanted.family {
            Family::V4 => "public_ipv4",
            Family::V6 => "public_ipv6",
        };
        let call = call.body(json!({
            "type": kind,
            "quantity": 1,
            "details": DETAILS,
            "tags": wanted.tags,
            // Over quota is refused at once; without it a person would be asked, and the address would come, or not, days later.
            "fail_on_approval_required": true,
            place: code,
        }));
        self.http.read(&call).await.map(reservation).map_err(not_absence)
    }

    async fn delete(&self, id: &str) -> Result<(), CloudError> {
        let call = Call::on_ip(format!("delete reservation {id}"), Method::DELETE, id)?;
        self.http.delete(&call).await
    }

    fn is_of_older_controller(&self, tags: &[String]) -> bool {
        let mut usages = FORMER_USAGES.iter().chain([&USAGE]);
        usages.any(|usage| tags.iter().any(|tag| tag == usage))
            && tags.iter().any(|tag| tag.starts_with("service="))
    }

    fn former(&self, cluster: &ClusterId, tags: &[String]) -> Option<Former> {
        if !self.is_of_older_controller(tags) {
            return None;
        }
        let has = |wanted: &str| tags.iter().any(|tag| tag == wanted);
        let old = FORMER_USAGES.iter().any(|usage| has(usage));
        let mut clusters = tags.iter().filter_map(|tag| tag.strip_prefix("cluster="));
        match clusters.next() {
            None => Some(Former::Unsaid),
            // With today's usage, these are today's tags.
            Some(name) if old && name == cluster.as_str() && clusters.next().is_none() => {
                Some(Former::OfCluster)
            }
            Some(_) => None,
        }
    }

    fn retags(&self) -> bool {
        true
    }

    async fn retag(&self, id: &str, tags: &[String]) -> Result<Reservation, CloudError> {
        let call = Call::on_ip(format!("retag reservation {id}"), Method::PATCH, id)?
            .query("include", "assignments")
            .body(json!({ "tags": tags }));
        self.http.read(&call).await.map(reservation)
    }
}

impl Equinix {
    /// Where a reservation goes: what is asked for before what is configured, a metro before a facility.
    pub(super) fn place<'a>(
        &'a self,
        wanted: &'a Placement,
        call: &Call,
    ) -> Result<(&'static str, &'a str), CloudError> {
        [
            ("metro", wanted.metro.as_str()),
            ("facility", &wanted.facility),
            ("metro", &self.config.metro),
            ("facility", &self.config.facility),
        ]
        .into_iter()
        .find(|(_, code)| !code.is_empty())
        .ok_or_else(|| {
            call.error(
                CloudErrorKind::Refused,
                "no metro and no facility; set equinix.metro, or the Service's annotation",
            )
        })
    }
}

fn reservation(row: wire::Reservation) -> Reservation {
    let prefix = row
        .address
        .parse()
        .ok()
        .and_then(|address| Prefix::new(address, row.cidr).ok());
    let state = match row.state.as_str() {
        "created" if prefix.is_some() => ReservationState::Ready,
        "pending" | "created" => ReservationState::Pending,
        _ => ReservationState::Denied,
    };
    let is_kind = matches!(row.kind.as_str(), "public_ipv4" | "public_ipv6" | "global_ipv4");
    Reservation {
        id: row.id,
        prefix: prefix.filter(|_| row.kind != "vrf"),
        state,
        tags: row.tags,
        assignments: row.assignments.into_iter().map(assignment).collect(),
        usable: is_kind && !row.management,
    }
}

fn assignment(row: wire::Assignment) -> Assignment {
    let id = if row.id.is_empty() {
        wire::Link { href: row.href }.id().to_owned()
    } else {
        row.id
    };
    Assignment {
        id,
        machine: row.assigned_to.id().to_owned(),
    }
}
