//! The section `gateway.empty`: where a Service's addresses are written for whoever announces them without being told by us.

use std::collections::BTreeSet;

use groundplane_core::names;
use groundplane_runtime::config::Problem;
use serde::{Deserialize, Serialize};

use super::check::is_key;

/// How the API server calls the field that older controllers wrote.
pub(crate) const LOAD_BALANCER_IP: &str = "spec.loadBalancerIP";

/// Where addresses are written beside the status. Read where the announcer is `empty`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Empty {
    /// Fields of the Service: `spec.loadBalancerIP`, which holds one address, and names of annotations, which hold all of them, comma
    /// separated. Empty: the status alone says them.
    pub tell: Vec<String>,
}

impl Empty {
    /// The annotations among them.
    pub(crate) fn annotations(&self) -> impl Iterator<Item = &str> {
        let fields = self.tell.iter().map(String::as_str);
        fields.filter(|field| *field != LOAD_BALANCER_IP)
    }

    /// What is wrong with it, all at once.
    pub(super) fn validate(&self) -> Vec<Problem> {
        let mut seen = BTreeSet::new();
        let fields = self.tell.iter().enumerate();
        fields
            .filter_map(|(index, field)| {
                let path = format!("tell[{index}]");
                if !seen.insert(field) {
                    return Some(Problem::new(path, "stands twice", "remove one of them"));
                }
                let own = field
                    .split_once('/')
                    .is_some_and(|(prefix, _)| prefix == names::GROUP);
                let wrong = if field == LOAD_BALANCER_IP {
                    return None;
                } else if own {
                    format!("`{field}` has a meaning of its own")
                } else if !field.contains('/') || !is_key(field) {
                    format!("`{field}` is neither a field of a Service nor the name of an annotation")
                } else {
                    return None;
                };
                let help =
                    format!("write `{LOAD_BALANCER_IP}` or an annotation such as `example.com/addresses`");
                Some(Problem::new(path, wrong, help))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use groundplane_runtime::config;
    use pretty_assertions::assert_eq;

    use crate::Config;

    #[test]
    fn a_place_that_is_none_is_refused() {
        let told = |text: &str| -> Vec<String> {
            let config: Config = config::parse("test.yaml", text).unwrap();
            config
                .validate()
                .into_iter()
                .map(|problem| problem.path)
                .collect()
        };
        assert_eq!(
            told("empty: {tell: [spec.loadBalancerIP, example.com/ips]}"),
            [""; 0]
        );
        let text = "empty: {tell: [status.ip, example.com/ips, plain, groundplane.dev/addresses, example.com/ips, 'a b/c']}";
        assert_eq!(
            told(text),
            [
                "empty.tell[0]",
                "empty.tell[2]",
                "empty.tell[3]",
                "empty.tell[4]",
                "empty.tell[5]"
            ]
        );
    }
}
