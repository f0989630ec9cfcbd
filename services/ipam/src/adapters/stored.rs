//! The stored form of records. Read by every later version, so it changes only by addition or with a new format number.
//!
//! Key: the network's name, a zero byte, 4 or 6, the address in 16 bytes (big-endian), the length: the order of keys is the
//! order of (network, prefix). Value: the format (one byte), the revision (8 bytes, big-endian), then JSON.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use groundplane_core::{NetworkName, Owner, PoolId, Prefix, Revision};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::domain::{Allocation, Cooling, Key, Record};

const FORMAT: u8 = 1;
const HEAD: usize = 9;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Body<'a> {
    Held {
        owner: std::borrow::Cow<'a, Owner>,
        #[serde(default, skip_serializing_if = "str::is_empty")]
        uid: std::borrow::Cow<'a, str>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pool: Option<std::borrow::Cow<'a, PoolId>>,
        since: Timestamp,
    },
    Cooling {
        released: Timestamp,
    },
}

/// The bytes of a key.
pub(super) fn key_bytes(key: &Key) -> Vec<u8> {
    let network = key.network.as_str().as_bytes();
    let mut bytes = Vec::with_capacity(network.len() + 19);
    bytes.extend_from_slice(network);
    let (family, address) = match key.prefix.address() {
        IpAddr::V4(address) => (4, u128::from(u32::from(address))),
        IpAddr::V6(address) => (6, u128::from(address)),
    };
    bytes.extend_from_slice(&[0, family]);
    bytes.extend_from_slice(&address.to_be_bytes());
    bytes.push(key.prefix.length());
    bytes
}

/// The key of these bytes.
pub(super) fn read_key(bytes: &[u8]) -> Result<Key, String> {
    let bad = || format!("key {bytes:?} is malformed");
    let split = bytes.len().checked_sub(19).ok_or_else(bad)?;
    let (network, rest) = bytes.split_at(split);
    let [0, family, address @ .., length] = rest else {
        return Err(bad());
    };
    let number = u128::from_be_bytes(address.try_into().map_err(|_| bad())?);
    let address = match family {
        4 => IpAddr::V4(Ipv4Addr::from(u32::try_from(number).map_err(|_| bad())?)),
        6 => IpAddr::V6(Ipv6Addr::from(number)),
        _ => return Err(bad()),
    };
    let network = std::str::from_utf8(network).map_err(|_| bad())?;
    Ok(Key {
        network: network
            .parse::<NetworkName>()
            .map_err(|error| error.to_string())?,
        prefix: Prefix::new(address, *length).map_err(|error| error.to_string())?,
    })
}

/// The bytes of a record.
pub(super) fn record_bytes(record: &Record) -> Result<Vec<u8>, String> {
    use std::borrow::Cow::Borrowed;
    let body = match record {
        Record::Held(held) => Body::Held {
            owner: Borrowed(&held.owner),
            uid: Borrowed(&held.uid),
            pool: held.pool.as_deref().map(Borrowed),
            since: held.since,
        },
        Record::Cooling(cooling) => Body::Cooling {
            released: cooling.released,
        },
    };
    let mut bytes = Vec::with_capacity(256);
    bytes.push(FORMAT);
    bytes.extend_from_slice(&record.revision().0.to_be_bytes());
    serde_json::to_writer(&mut bytes, &body).map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// The revision in the bytes of a record.
pub(super) fn read_revision(bytes: &[u8]) -> Result<Revision, String> {
    let revision = bytes.get(1..HEAD).and_then(|bytes| bytes.try_into().ok());
    revision
        .map(|bytes| Revision(u64::from_be_bytes(bytes)))
        .ok_or_else(|| "a record is too short".to_owned())
}

/// The record of these bytes.
pub(super) fn read_record(key: &Key, bytes: &[u8]) -> Result<Record, String> {
    let revision = read_revision(bytes)?;
    let (format, body) = (bytes.first().copied(), bytes.get(HEAD..).unwrap_or_default());
    if format != Some(FORMAT) {
        return Err(format!(
            "the record of {} has format {format:?}; this version reads {FORMAT}",
            key.prefix
        ));
    }
    let body: Body<'_> =
        serde_json::from_slice(body).map_err(|error| format!("the record of {}: {error}", key.prefix))?;
    Ok(match body {
        Body::Held {
            owner,
            uid,
            pool,
            since,
        } => Record::Held(Arc::new(Allocation {
            key: key.clone(),
            owner: Arc::new(owner.into_owned()),
            uid: uid.into(),
            pool: pool.map(|pool| Arc::new(pool.into_owned())),
            since,
            revision,
        })),
        Body::Cooling { released } => Record::Cooling(Cooling { released, revision }),
    })
}
