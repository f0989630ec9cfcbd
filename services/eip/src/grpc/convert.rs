//! Messages to values, and back.

use groundplane_cloud::{Former, Placement, Reservation};
use groundplane_core::{ClusterId, Family, NetworkName, Owner, Prefix};
use groundplane_proto::core::v1 as core;
use groundplane_proto::eip::v1 as proto;
use groundplane_runtime::grpc::{InvalidField, timestamp};

use crate::app::{Answer, Audited, Given, Missing, Released};
use crate::domain::{Ask, Finding, Heir, Population, Standing, Wanted};
use crate::error::EipError;

/// A request for addresses of the cloud.
pub(crate) fn ask(request: proto::EnsureAddressRequest) -> Result<Ask, EipError> {
    network(&request.network)?;
    if let Some(pool) = request.selector.and_then(|selector| selector.pool) {
        return Err(EipError::PoolNotFound(pool.name));
    }
    let placement = request.placement.unwrap_or_default();
    let mut asked: Vec<Wanted> = Vec::with_capacity(request.requests.len());
    for (index, request) in request.requests.iter().enumerate() {
        let wanted = wanted(index, request)?;
        if asked.iter().any(|other| other.family == wanted.family) {
            let family = wanted.family;
            return Err(InvalidField::new(
                format!("requests[{index}].family"),
                format!("{family} is asked for twice"),
            )
            .into());
        }
        asked.push(wanted);
    }
    for (index, text) in request.in_use.iter().enumerate() {
        let live = in_use(index, text)?;
        let of_family = asked.iter_mut().find(|wanted| wanted.family == live.family());
        if let Some(wanted) = of_family.filter(|wanted| wanted.in_use.is_none()) {
            wanted.in_use = Some(live);
        }
    }
    if asked.is_empty() {
        return Err(InvalidField::new("requests", "must not be empty").into());
    }
    Ok(Ask {
        owner: owner(request.owner)?,
        wanted: asked,
        placement: Placement {
            metro: placement.metro,
            facility: placement.facility,
        },
        fresh: request.fresh,
        sharers: request
            .sharers
            .into_iter()
            .map(|sharer| owner(Some(sharer)))
            .collect::<Result<_, _>>()?,
        adopt: request.adopt,
    })
}

/// Who goes on using what.
pub(crate) fn heirs(heirs: Vec<proto::Heir>) -> Result<Vec<Heir>, EipError> {
    let heir = |(index, heir): (usize, proto::Heir)| {
        Ok(Heir {
            owner: owner(heir.owner)?,
            addresses: addresses(&format!("heirs[{index}].addresses"), &heir.addresses)?,
        })
    };
    heirs.into_iter().enumerate().map(heir).collect()
}

fn addresses<All: FromIterator<Prefix>>(field: &str, texts: &[String]) -> Result<All, EipError> {
    texts
        .iter()
        .map(|text| {
            text.parse()
                .map_err(|error| InvalidField::new(field, error).into())
        })
        .collect()
}

/// What a cluster has; required.
pub(crate) fn population(population: Option<proto::Population>) -> Result<Population, EipError> {
    let population = population.ok_or_else(|| InvalidField::new("population", "must be set"))?;
    let cluster = cluster(&population.cluster)?;
    let owners = population.owners.into_iter().map(|one| {
        let one = owner(Some(one))?;
        if one.cluster == cluster {
            Ok(one)
        } else {
            let message = "must be of the cluster";
            Err(EipError::from(InvalidField::new("population.owners", message)))
        }
    });
    Ok(Population {
        owners: owners.collect::<Result<_, _>>()?,
        in_use: addresses("population.in_use", &population.in_use)?,
        cluster,
    })
}

/// What the owner's status has. It decides what is kept, so one that cannot be read is not passed over.
fn in_use(index: usize, text: &str) -> Result<Prefix, EipError> {
    text.parse()
        .map_err(|error| InvalidField::new(format!("in_use[{index}]"), error).into())
}

fn wanted(index: usize, request: &core::AddressRequest) -> Result<Wanted, EipError> {
    let field = |name: &str| format!("requests[{index}].{name}");
    let address = match request.address.as_str() {
        "" => None,
        text => {
            let prefix: Prefix = text
                .parse()
                .map_err(|error| InvalidField::new(field("address"), error))?;
            if !prefix.is_host() {
                return Err(
                    InvalidField::new(field("address"), format!("`{text}` is not one address")).into(),
                );
            }
            Some(prefix)
        }
    };
    let family = match (request.family(), address.map(Prefix::family)) {
        (core::Family::Unspecified, None) => {
            return Err(InvalidField::new(field("family"), "must be set where no address is").into());
        }
        (core::Family::Unspecified, Some(family)) => family,
        (core::Family::Ipv4, None | Some(Family::V4)) => Family::V4,
        (core::Family::Ipv6, None | Some(Family::V6)) => Family::V6,
        (_, Some(family)) => {
            return Err(InvalidField::new(
                field("address"),
                format!("is {family}, and the family is another"),
            )
            .into());
        }
    };
    if address.is_none() && ![0, u32::from(family.bits())].contains(&request.prefix_length) {
        return Err(InvalidField::new(field("prefix_length"), "the cloud gives single addresses").into());
    }
    Ok(Wanted {
        family,
        address,
        in_use: None,
        optional: request.optional,
    })
}

/// The cloud has one address space, whose name is `default`.
pub(crate) fn network(text: &str) -> Result<(), EipError> {
    if text.is_empty() || text == NetworkName::default().as_str() {
        return Ok(());
    }
    Err(EipError::NetworkUnsupported(text.to_owned()))
}

/// A cluster; required.
pub(crate) fn cluster(text: &str) -> Result<ClusterId, EipError> {
    text.parse()
        .map_err(|error| InvalidField::new("cluster", error).into())
}

/// An owner; required.
pub(crate) fn owner(owner: Option<core::Owner>) -> Result<Owner, EipError> {
    let owner = owner.ok_or_else(|| InvalidField::new("owner", "must be set"))?;
    Owner::try_from(owner)
        .map_err(|error| InvalidField::new(format!("owner.{}", error.field), error.message).into())
}

impl From<Given> for proto::Address {
    fn from(given: Given) -> Self {
        let state = if given.pending {
            proto::State::Pending
        } else {
            proto::State::Ready
        };
        Self {
            prefix: given.prefix.map(|prefix| prefix.to_string()).unwrap_or_default(),
            origin: given.origin,
            state: state.into(),
            user_provided: given.user_provided,
        }
    }
}

impl From<Missing> for proto::MissingAddress {
    fn from(missing: Missing) -> Self {
        Self {
            family: core::Family::from(missing.family).into(),
            reason: missing.reason.to_owned(),
            message: missing.message,
        }
    }
}

impl From<Answer> for proto::EnsureAddressResponse {
    fn from(answer: Answer) -> Self {
        Self {
            addresses: answer.given.into_iter().map(Into::into).collect(),
            missing: answer.missing.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Released> for proto::ReleaseAddressResponse {
    fn from(released: Released) -> Self {
        Self {
            released: released.deleted.into_iter().map(Into::into).collect(),
            inherited: released.inherited.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Finding> for proto::AuditedAddress {
    fn from(finding: Finding) -> Self {
        let (standing, names_cluster) = match finding.standing {
            Standing::Held => (proto::Standing::Held, true),
            Standing::Orphan => (proto::Standing::Orphan, true),
            Standing::Spared => (proto::Standing::Spared, true),
            Standing::Former(Former::OfCluster) => (proto::Standing::Former, true),
            Standing::Former(Former::Unsaid) => (proto::Standing::Former, false),
            Standing::Foreign => (proto::Standing::Foreign, false),
        };
        Self {
            tags: finding.reservation.tags.clone(),
            address: Some(Given::from(finding.reservation).into()),
            standing: standing.into(),
            owner: finding.owner.map(|owner| core::Owner {
                cluster: owner.cluster.to_string(),
                kind: owner.kind.to_string(),
                namespace: owner.namespace.map(|name| name.to_string()).unwrap_or_default(),
                name: owner.name.to_string(),
                slot: owner.slot.into(),
            }),
            names_cluster,
        }
    }
}

impl From<Audited> for proto::AuditAddressesResponse {
    fn from(audited: Audited) -> Self {
        Self {
            addresses: audited.findings.into_iter().map(Into::into).collect(),
            read_at: Some(timestamp(audited.read_at)),
        }
    }
}

/// A reservation, as `ctl` shows it.
pub(crate) fn held(reservation: Reservation) -> proto::HeldAddress {
    proto::HeldAddress {
        address: Some(Given::from(reservation).into()),
        // The cloud's tags hold a digest of the owner, and no time.
        owner: None,
        since: None,
    }
}
