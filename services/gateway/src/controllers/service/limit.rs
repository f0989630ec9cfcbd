//! Whether there is room for one more address that BGP announces.
//!
//! Two may limit it, and the lower limit holds: the cloud, which says how many prefixes a machine may announce, and the configuration
//! (`gateway.maxPrefixes`). The cloud is asked only for Services that are about to get an address, and only where nodes speak BGP.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::time::Duration;

use groundplane_core::{ErrorKind, Family};
use groundplane_proto::bgp::v1::EnsureProjectRequest;

use super::{ServiceController, Stop};
use crate::announcers::Record;
use crate::cluster::objects::{Key, ServiceObject};
use crate::controllers::bgp;
use crate::domain::service::{Refusal, Want, Wish, addresses, condition};

/// The reason where one more address would end every BGP session.
pub(super) const PREFIX_LIMIT: &str = "PrefixLimit";
/// The reason where nobody knows yet how many addresses there may be.
const LIMIT_UNKNOWN: &str = "PrefixLimitUnknown";
/// Before a Service is refused, the cloud's word must be so young: the limit may have been raised.
const RECENT: Duration = Duration::from_secs(10);
/// However old.
const EVER: Duration = Duration::MAX;

/// What Services show.
struct Announced {
    addresses: BTreeSet<IpAddr>,
    by: HashSet<Key>,
}

impl ServiceController {
    /// Is there room for the addresses that the Service does not show yet? What is announced already, by it or by others, needs none.
    pub(super) async fn within_limit(&self, service: &ServiceObject, wish: &Wish) -> Result<(), Stop> {
        for want in &wish.wants {
            if self.is_announced(service, want) {
                continue;
            }
            let configured = self.gateway.config.max_prefixes;
            let limit = lower(
                configured,
                self.allowed(self.gateway.config.cloud_resync.0).await?,
            );
            if self.admits(service, want.family, limit) {
                continue;
            }
            let now = lower(configured, self.allowed(RECENT).await?);
            if now == limit || !self.admits(service, want.family, now) {
                return Err(Stop::Refused(self.too_many(want.family, now)));
            }
        }
        Ok(())
    }

    /// How many prefixes the cloud allows, by its word of that age at most; 0: any number, as where no node speaks BGP. An older word
    /// will do where it does not answer.
    async fn allowed(&self, age: Duration) -> Result<u32, Stop> {
        let prefixes = &self.gateway.prefixes;
        if let Some(allowed) = prefixes.allowed(age) {
            return Ok(allowed);
        }
        if !self.gateway.config.driver.tells_prefix_limit() || !bgp::is_spoken(&self.gateway) {
            return Ok(0);
        }
        let before = prefixes.allowed(EVER);
        let fresh = before.is_some();
        let request = EnsureProjectRequest { fresh };
        let allowed = match self.gateway.services.bgp.ensure_project(request).await {
            Ok(project) => project.max_prefixes,
            // There is no BGP, and will be none; or whoever gave us the token does not let us see it.
            Err(error)
                if matches!(
                    error.kind,
                    ErrorKind::Precondition | ErrorKind::Unsupported | ErrorKind::Denied
                ) =>
            {
                0
            }
            Err(error) => {
                return match before {
                    Some(before) => Ok(before),
                    // Whoever configured a limit knows what holds.
                    None if self.gateway.config.max_prefixes > 0 => Ok(0),
                    None => Err(Stop::Outage {
                        refusal: Refusal::new(
                            LIMIT_UNKNOWN,
                            format!(
                                "How many addresses BGP may announce is not known yet: {error}. It is asked again."
                            ),
                        ),
                        tell: false,
                        at_least: error.retry_after.unwrap_or_default(),
                    }),
                };
            }
        };
        prefixes.allow(allowed);
        Ok(allowed)
    }

    fn shown(&self, family: Family) -> Announced {
        let mut announced = Announced {
            addresses: BTreeSet::new(),
            by: HashSet::new(),
        };
        for service in self.gateway.cluster.services.index.all() {
            for address in self
                .shown_by(&service)
                .filter(|address| Family::of(*address) == family)
            {
                announced.addresses.insert(address);
                announced.by.insert(service.key.clone());
            }
        }
        announced
    }

    /// What the Service is announced by, or about to be. One that nobody has looked at yet may have been an older controller's, and be
    /// announced as it was; one that is known to be somebody else's is not.
    fn shown_by(&self, service: &ServiceObject) -> impl Iterator<Item = IpAddr> {
        let counts = condition::is_ours(service) || service.condition.is_none() && self.scope.has(service);
        let shown: BTreeSet<IpAddr> = addresses(service)
            .filter(|_| counts)
            .chain(Record::of(service).addresses())
            .collect();
        shown.into_iter()
    }

    fn is_announced(&self, service: &ServiceObject, want: &Want) -> bool {
        let shown = |address| Family::of(address) == want.family;
        self.shown_by(service).any(shown)
            || want
                .address
                .is_some_and(|address| self.shown(want.family).addresses.contains(&address))
    }

    fn admits(&self, service: &ServiceObject, family: Family, limit: u32) -> bool {
        if limit == 0 {
            return true;
        }
        let Announced { addresses, by } = self.shown(family);
        let prefixes = &self.gateway.prefixes;
        prefixes.admit(&service.key, family, limit, &addresses, &by)
    }

    fn too_many(&self, family: Family, limit: u32) -> Refusal {
        let count = self.shown(family).addresses.len();
        let raise = if self.gateway.config.max_prefixes == limit {
            "have the limit raised and say so in gateway.maxPrefixes"
        } else {
            "have the cloud raise the limit"
        };
        let message = format!(
            "Services of this cluster have {count} addresses of {family} already, and a BGP session carries {limit}: one more, and the \
             other side ends the sessions of every machine. Delete a Service, let Services share an address, or {raise}."
        );
        Refusal::new(PREFIX_LIMIT, message)
    }
}

/// The lower of two limits. 0 is none.
fn lower(one: u32, other: u32) -> u32 {
    match (one, other) {
        (0, limit) | (limit, 0) => limit,
        (one, other) => one.min(other),
    }
}
