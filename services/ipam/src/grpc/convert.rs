//! Messages to values, and back. What is not valid ends here, with the field that is wrong.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::sync::Arc;

use groundplane_core::{
    AddressRange, ClusterId, Family, Name, NetworkName, Owner, OwnerKind, PoolId, PoolSource, Prefix,
};
use groundplane_proto::core::v1 as core_pb;
use groundplane_proto::ipam::v1 as pb;
use groundplane_runtime::grpc::timestamp;

use crate::app::{IpamError, Placed};
use crate::domain::{
    AdoptionRequest, Ask, Holding, Key, PoolChoice, PoolConfig, PoolSpec, PoolStatus, Selector, Verdict,
    Want, Wanted,
};

/// A text that must be what it says.
pub(super) fn parse<T: FromStr<Err: Display>>(field: impl Display, text: &str) -> Result<T, IpamError> {
    text.parse()
        .map_err(|error: T::Err| IpamError::field(field.to_string(), error))
}

fn optional<T: FromStr<Err: Display>>(field: impl Display, text: &str) -> Result<Option<T>, IpamError> {
    if text.is_empty() {
        Ok(None)
    } else {
        parse(field, text).map(Some)
    }
}

pub(super) fn network(text: &str) -> Result<NetworkName, IpamError> {
    Ok(optional("network", text)?.unwrap_or_default())
}

/// The owner in `field`. Which field that is becomes a text only where something is wrong.
pub(super) fn owner(field: impl Display, owner: Option<core_pb::Owner>) -> Result<Owner, IpamError> {
    let owner = owner.ok_or_else(|| IpamError::field(field.to_string(), "must be set"))?;
    Owner::try_from(owner)
        .map_err(|error| IpamError::field(format!("{field}.{}", error.field), error.message))
}

/// A request; `Explain` may ask for nothing.
pub(super) fn ask(
    owner: Owner,
    uid: String,
    network_name: &str,
    requests: &[core_pb::AddressRequest],
    selected: Option<core_pb::PoolSelector>,
) -> Result<Ask, IpamError> {
    let mut all = Vec::with_capacity(requests.len());
    for (index, request) in requests.iter().enumerate() {
        let wanted = wanted(index, request)?;
        if all
            .iter()
            .any(|earlier: &Wanted| earlier.want.family() == wanted.want.family())
        {
            let message = format!(
                "asks for {} a second time; use a slot of the owner",
                wanted.want.family()
            );
            return Err(IpamError::field(format!("requests[{index}]"), message));
        }
        all.push(wanted);
    }
    let network = network(network_name)?;
    Ok(Ask {
        owner: Arc::new(owner),
        uid: uid.into(),
        network,
        wanted: all,
        selector: selector(selected)?,
    })
}

fn wanted(index: usize, request: &core_pb::AddressRequest) -> Result<Wanted, IpamError> {
    let at = |part: &str| format!("requests[{index}].{part}");
    let family = match core_pb::Family::try_from(request.family) {
        Ok(core_pb::Family::Unspecified) => None,
        Ok(core_pb::Family::Ipv4) => Some(Family::V4),
        Ok(core_pb::Family::Ipv6) => Some(Family::V6),
        Err(_) => return Err(IpamError::field(at("family"), "is not a family")),
    };
    let address = format_args!("requests[{index}].address");
    let want = if let Some(prefix) = optional::<Prefix>(address, &request.address)? {
        if let Some(family) = family.filter(|family| *family != prefix.family()) {
            return Err(IpamError::field(
                at("address"),
                format!("{prefix} is not {family}"),
            ));
        }
        if request.prefix_length != 0 && request.prefix_length != u32::from(prefix.length()) {
            let message = format!("is not that of {prefix}; leave it 0");
            return Err(IpamError::field(at("prefix_length"), message));
        }
        Want::Exact(prefix)
    } else {
        let family = family.ok_or_else(|| IpamError::field(at("family"), "must be set"))?;
        let length = match u8::try_from(request.prefix_length) {
            Ok(0) => family.bits(),
            Ok(length) if length <= family.bits() => length,
            _ => {
                let message = format!("must be at most {} for {family}", family.bits());
                return Err(IpamError::field(at("prefix_length"), message));
            }
        };
        Want::Any { family, length }
    };
    Ok(Wanted {
        want,
        optional: request.optional,
    })
}

fn selector(selector: Option<core_pb::PoolSelector>) -> Result<Selector, IpamError> {
    let selector = selector.unwrap_or_default();
    let pool = match selector.pool {
        None => None,
        Some(pool) => Some(PoolChoice {
            source: optional::<Name>("selector.pool.source", &pool.source)?.map(PoolSource),
            namespace: optional("selector.pool.namespace", &pool.namespace)?,
            name: parse("selector.pool.name", &pool.name)?,
        }),
    };
    Ok(Selector {
        pool,
        labels: selector.labels.into_iter().collect(),
    })
}

pub(super) fn prefixes(field: &str, texts: &[String]) -> Result<Vec<Prefix>, IpamError> {
    texts
        .iter()
        .enumerate()
        .map(|(index, text)| parse(format_args!("{field}[{index}]"), text))
        .collect()
}

/// The snapshot, and for each holding what of it is no prefix at all: it cannot be covered by any pool.
pub(super) fn adoption(request: &pb::AdoptRequest) -> Result<(AdoptionRequest, Vec<pb::Holding>), IpamError> {
    let cluster: ClusterId = parse("cluster", &request.cluster)?;
    let kinds = request.kinds.iter().enumerate();
    let kinds = kinds.map(|(index, kind)| parse::<OwnerKind>(format_args!("kinds[{index}]"), kind));
    let kinds = kinds.collect::<Result<_, _>>()?;
    let mut holdings = Vec::with_capacity(request.holdings.len());
    let mut strange = Vec::new();
    for (index, holding) in request.holdings.iter().enumerate() {
        let field = format!("holdings[{index}].owner");
        let owner = owner(&field, holding.owner.clone())?;
        if owner.cluster != cluster {
            return Err(IpamError::field(
                field,
                format!("is of cluster `{}`, not `{cluster}`", owner.cluster),
            ));
        }
        let mut prefixes = Vec::with_capacity(holding.prefixes.len());
        for text in &holding.prefixes {
            match text.parse() {
                Ok(prefix) => prefixes.push(prefix),
                Err(_) => strange.push(pb::Holding {
                    prefixes: vec![text.clone()],
                    ..holding.clone()
                }),
            }
        }
        let uid = holding.owner_uid.as_str().into();
        holdings.push(Holding {
            owner,
            uid,
            network: network(&holding.network)?,
            prefixes,
        });
    }
    Ok((
        AdoptionRequest {
            cluster,
            holdings,
            kinds,
            newer: None,
        },
        strange,
    ))
}

pub(super) fn pool_config(pool: pb::Pool) -> PoolConfig {
    let id = pool.r#ref.unwrap_or_default();
    PoolConfig {
        namespace: id.namespace,
        name: id.name,
        network: pool.network,
        addresses: pool.addresses,
        exclude: pool.exclude,
        reserved: pool.reserved,
        priority: pool.priority,
        explicit_only: pool.explicit_only,
        namespaces: pool.namespaces,
        match_labels: pool.match_labels.into_iter().collect(),
        use_edge_addresses: pool.use_edge_addresses,
    }
}

/// A key in words, as page tokens hold it.
impl Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.network, self.prefix)
    }
}

impl FromStr for Key {
    /// The page says what is wrong: its token.
    type Err = ();

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (network, prefix) = text.split_once(' ').ok_or(())?;
        Ok(Self {
            network: network.parse().map_err(|_| ())?,
            prefix: prefix.parse().map_err(|_| ())?,
        })
    }
}

pub(super) fn pool_ref(id: &PoolId) -> core_pb::PoolRef {
    core_pb::PoolRef {
        source: id.source.0.as_str().to_owned(),
        namespace: namespace_text(id.namespace.as_ref()),
        name: id.name.as_str().to_owned(),
    }
}

fn namespace_text(namespace: Option<&Name>) -> String {
    namespace.map_or_else(String::new, |namespace| namespace.as_str().to_owned())
}

/// As messages write it.
pub(super) fn family(family: Family) -> i32 {
    core_pb::Family::from(family).into()
}

pub(super) fn allocation((allocation, pool): &Placed) -> pb::Allocation {
    pb::Allocation {
        network: allocation.key.network.as_str().to_owned(),
        prefix: allocation.key.prefix.to_string(),
        owner: Some((&*allocation.owner).into()),
        owner_uid: allocation.uid.to_string(),
        pool: pool.as_ref().map(pool_ref),
        allocated_at: Some(timestamp(allocation.since)),
        revision: allocation.revision.0,
    }
}

fn pool_message(spec: &PoolSpec) -> pb::Pool {
    let texts = |ranges: &[crate::domain::PoolRange]| ranges.iter().map(|item| item.text.clone()).collect();
    pb::Pool {
        r#ref: Some(pool_ref(&spec.id)),
        network: spec.network.to_string(),
        addresses: texts(&spec.addresses),
        exclude: texts(&spec.exclude),
        reserved: texts(&spec.reserved),
        priority: spec.priority,
        explicit_only: spec.explicit_only,
        namespaces: spec.namespaces.iter().cloned().collect(),
        match_labels: spec.match_labels.clone().into_iter().collect(),
        use_edge_addresses: spec.use_edge_addresses,
    }
}

fn saturated(count: u128) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

pub(super) fn pool_status(status: &PoolStatus) -> pb::PoolStatus {
    pb::PoolStatus {
        pool: Some(pool_message(&status.spec)),
        total: saturated(status.total),
        used: saturated(status.used),
        free: saturated(status.free),
        cooling: saturated(status.cooling),
        draining: status.draining,
    }
}

pub(super) fn verdict(verdict: &Verdict) -> pb::Verdict {
    let (reason, message) = match &verdict.objection {
        None => (String::new(), String::new()),
        Some((reason, message)) => ((*reason).to_owned(), message.clone()),
    };
    pb::Verdict {
        pool: Some(pool_ref(&verdict.pool)),
        family: family(verdict.family),
        serves: verdict.objection.is_none(),
        reason,
        message,
    }
}

/// An address, or a block of which the first address is looked up.
pub(super) fn address(text: &str) -> Result<std::net::IpAddr, IpamError> {
    let range: AddressRange = parse::<Prefix>("address", text)?.range();
    let address = range.family().address(range.first());
    address.ok_or_else(|| IpamError::field("address", "is not an address"))
}
