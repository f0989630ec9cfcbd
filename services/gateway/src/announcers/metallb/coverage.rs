//! What the user's own entries cover: pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use groundplane_core::Family;
use serde_json::Value;

/// Is the address in this entry of a pool: `192.0.2.0/24`, `192.0.2.1-192.0.2.9`?
pub(crate) fn entry_covers(entry: &str, address: IpAddr) -> bool {
    let Some((first, last)) = bounds(entry) else {
        return false;
    };
    Family::of(first) == Family::of(address) && first <= address && address <= last
}

/// The one address of an entry that has just one.
pub(crate) fn single(entry: &str) -> Option<IpAddr> {
    bounds(entry)
        .filter(|(first, last)| first == last)
        .map(|(first, _)| first)
}

/// An entry of one address, as it is written.
pub(crate) fn entry(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => format!("{address}/32"),
        IpAddr::V6(address) => format!("{address}/128"),
    }
}

fn bounds(entry: &str) -> Option<(IpAddr, IpAddr)> {
    if let Some((first, last)) = entry.split_once('-') {
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        return (Family::of(first) == Family::of(last)).then_some((first, last));
    }
    let (address, length) = entry.trim().split_once('/')?;
    let length: u32 = length.parse().ok()?;
    match address.parse().ok()? {
        IpAddr::V4(address) => {
            let host = u32::MAX.checked_shr(length).unwrap_or(0);
            let first = u32::from(address) & !host;
            (length <= 32).then(|| (IpAddr::V4(first.into()), IpAddr::V4((first | host).into())))
        }
        IpAddr::V6(address) => {
            let host = u128::MAX.checked_shr(length).unwrap_or(0);
            let first = u128::from(address) & !host;
            (length <= 128).then(|| (IpAddr::V6(first.into()), IpAddr::V6((first | host).into())))
        }
    }
}

/// Does any of these label selectors (`matchLabels`, `matchExpressions`) match? None at all match everything. One that cannot be read
/// matches nothing.
pub(crate) fn any_selects(selectors: &Value, labels: &BTreeMap<String, String>) -> bool {
    match selectors.as_array() {
        Some(selectors) if !selectors.is_empty() => {
            selectors.iter().any(|selector| selects(selector, labels))
        }
        _ => true,
    }
}

/// Does this label selector match?
pub(crate) fn selects(selector: &Value, labels: &BTreeMap<String, String>) -> bool {
    let pairs = selector["matchLabels"].as_object();
    let equal = pairs.is_none_or(|pairs| {
        pairs
            .iter()
            .all(|(key, value)| labels.get(key).map(String::as_str) == value.as_str())
    });
    let expressions = selector["matchExpressions"].as_array();
    equal && expressions.is_none_or(|all| all.iter().all(|expression| holds(expression, labels)))
}

fn holds(expression: &Value, labels: &BTreeMap<String, String>) -> bool {
    let value = expression["key"].as_str().and_then(|key| labels.get(key));
    let listed = || {
        let values = expression["values"].as_array();
        value.is_some_and(|value| values.is_some_and(|all| all.iter().any(|other| other == value)))
    };
    match expression["operator"].as_str() {
        Some("In") => listed(),
        Some("NotIn") => !listed(),
        Some("Exists") => value.is_some(),
        Some("DoesNotExist") => value.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use serde_json::json;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn entries_cover_what_is_in_them_and_nothing_beside() {
        for (entry, inside, outside) in [
            ("192.0.2.0/30", "192.0.2.3", "192.0.2.4"),
            ("192.0.2.7/32", "192.0.2.7", "192.0.2.8"),
            ("192.0.2.3 - 192.0.2.9", "192.0.2.9", "192.0.2.10"),
            ("0.0.0.0/0", "203.0.113.1", "::1"),
            ("2001:db8::/127", "2001:db8::1", "2001:db8::2"),
            ("::/0", "2001:db8::1", "192.0.2.1"),
        ] {
            assert!(entry_covers(entry, ip(inside)), "{entry} {inside}");
            assert!(!entry_covers(entry, ip(outside)), "{entry} {outside}");
        }
        for nonsense in ["", "x", "192.0.2.1", "192.0.2.0/33", "192.0.2.1-::1", "::/129"] {
            assert!(!entry_covers(nonsense, ip("192.0.2.1")), "{nonsense}");
        }
    }

    #[test]
    fn one_address_is_told_from_many() {
        assert_eq!(single("192.0.2.7/32"), Some(ip("192.0.2.7")));
        assert_eq!(single("192.0.2.7-192.0.2.7"), Some(ip("192.0.2.7")));
        assert_eq!(single("2001:db8::1/128"), Some(ip("2001:db8::1")));
        assert_eq!(single("192.0.2.6/31"), None);
        for address in ["192.0.2.7", "2001:db8::7"] {
            assert_eq!(single(&entry(ip(address))), Some(ip(address)));
        }
    }

    #[test]
    fn selectors_are_read_as_kubernetes_reads_them() {
        let labels = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
        let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        assert!(any_selects(&Value::Null, &labels) && any_selects(&json!([]), &labels));
        assert!(selects(&json!({}), &labels));
        assert!(selects(&json!({"matchLabels": {"a": "1"}}), &labels));
        assert!(!selects(&json!({"matchLabels": {"a": "1", "b": "1"}}), &labels));
        assert!(selects(&expression("a", "In", &["0", "1"]), &labels));
        assert!(!selects(&expression("c", "In", &["1"]), &labels));
        assert!(selects(&expression("c", "NotIn", &["1"]), &labels));
        assert!(!selects(&expression("a", "NotIn", &["1"]), &labels));
        assert!(selects(&expression("a", "Exists", &[]), &labels));
        assert!(selects(&expression("c", "DoesNotExist", &[]), &labels));
        assert!(!selects(&expression("a", "Matches", &["1"]), &labels));
        let both = json!([{"matchLabels": {"a": "0"}}, {"matchLabels": {"b": "2"}}]);
        assert!(any_selects(&both, &labels));
    }
}
