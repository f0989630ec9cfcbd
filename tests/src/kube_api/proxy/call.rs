//! What a request asks of the API, in the words of the audit log.

use std::fmt;

use http::{Method, Uri};

/// A request, as far as rules and the journal tell requests apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Call {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`.
    pub verb: &'static str,
    /// The resource, with its subresource: `services`, `services/status`; the path, where it is none.
    pub resource: String,
    /// Empty for what has none.
    pub namespace: String,
    /// Empty for lists, watches and creates.
    pub name: String,
    /// Does it go on with a list, by its `continue` token?
    pub continued: bool,
}

impl Call {
    /// What this request asks.
    pub fn of(method: &Method, uri: &Uri) -> Self {
        let parts: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
        let mut call = match parts.as_slice() {
            ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] if !rest.is_empty() => Self::about(rest),
            _ => Self {
                resource: uri.path().to_owned(),
                ..Self::default()
            },
        };
        let query = |wanted: &str| {
            let mut pairs = uri.query().unwrap_or_default().split('&');
            pairs.find_map(|pair| pair.strip_prefix(wanted)?.strip_prefix('='))
        };
        call.continued = query("continue").is_some_and(|token| !token.is_empty());
        call.verb = match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ if query("watch").is_some_and(|value| value != "false" && value != "0") => "watch",
            _ if call.name.is_empty() => "list",
            _ => "get",
        };
        call
    }

    fn about(parts: &[&str]) -> Self {
        let (namespace, parts) = match parts {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            parts => ("", parts),
        };
        let (resource, name) = match parts {
            [resource, name, subresource, ..] => (format!("{resource}/{subresource}"), *name),
            [resource, name] => ((*resource).to_owned(), *name),
            [resource] => ((*resource).to_owned(), ""),
            [] => (String::new(), ""),
        };
        Self {
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Whether it asks for a change.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb, "get" | "list" | "watch")
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn requests_are_told_apart_as_the_audit_log_does() {
        for (method, uri, verb, resource, namespace, name) in [
            (Method::GET, "/api/v1/nodes?limit=500", "list", "nodes", "", ""),
            (
                Method::GET,
                "/api/v1/nodes?watch=true&x=1",
                "watch",
                "nodes",
                "",
                "",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/kube-system",
                "get",
                "namespaces",
                "",
                "kube-system",
            ),
            (
                Method::PATCH,
                "/api/v1/namespaces/a/services/web/status?f=1",
                "patch",
                "services/status",
                "a",
                "web",
            ),
            (
                Method::POST,
                "/api/v1/namespaces/a/events",
                "create",
                "events",
                "a",
                "",
            ),
            (
                Method::PUT,
                "/apis/coordination.k8s.io/v1/namespaces/a/leases/l",
                "update",
                "leases",
                "a",
                "l",
            ),
            (Method::DELETE, "/api/v1/nodes/n", "delete", "nodes", "", "n"),
            (Method::GET, "/readyz", "list", "/readyz", "", ""),
        ] {
            let call = Call::of(&method, &uri.parse().unwrap());
            let expected = (verb, resource, namespace, name);
            let found = (call.verb, &*call.resource, &*call.namespace, &*call.name);
            assert_eq!(found, expected, "{uri}");
        }
        let page = Call::of(
            &Method::GET,
            &"/api/v1/nodes?limit=5&continue=abc".parse().unwrap(),
        );
        assert!(page.continued && !page.is_write());
    }
}
