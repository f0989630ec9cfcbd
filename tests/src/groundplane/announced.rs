//! What a process says of itself in its log. The one place that knows the form:
//! `{"message":"listening","server":"admin","address":"127.0.0.1:1234"}`, a line.

use std::net::SocketAddr;

use serde_json::Value;

/// The lines of a log that are log lines: JSON objects. The last may be half written.
pub(super) fn lines(log: &str) -> impl Iterator<Item = Value> {
    log.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(Value::is_object)
}

/// Where the process last said that `listener` listens.
pub(super) fn address(log: &str, listener: &str) -> Option<SocketAddr> {
    lines(log)
        .filter(|line| line["message"] == "listening" && line["server"] == listener)
        .filter_map(|line| line["address"].as_str()?.parse().ok())
        .last()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = r#"thread 'main' says something
{"timestamp":"2026-11-21T00:00:00Z","level":"INFO","message":"starting","target":"groundplane"}
{"level":"INFO","message":"listening","server":"admin","address":"127.0.0.1:4001"}
{"level":"INFO","message":"listening","server":"grpc","address":"[::1]:4002"}
{"level":"INFO","message":"listening","server":"rest","address":"127.0.0.1:40"#;

    #[test]
    fn a_listener_is_found_by_its_name_and_a_half_written_line_is_none() {
        assert_eq!(address(LOG, "admin"), "127.0.0.1:4001".parse().ok());
        assert_eq!(address(LOG, "grpc"), "[::1]:4002".parse().ok());
        assert_eq!(address(LOG, "rest"), None);
        assert_eq!(lines(LOG).count(), 3);
    }
}
