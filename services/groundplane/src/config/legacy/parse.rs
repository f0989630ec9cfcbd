//! From the text of a setting to values of ours.

use groundplane_core::names::CHERRY_SERVICE_ADDRESSES;
use groundplane_runtime::config::Plain;
use serde_json::Value;

use super::table::{Kind, Row};
use super::url::{self, Choice, Reading, Refusal, parse_bool};

/// A text or a JSON value, as it was given.
#[derive(Clone, Copy)]
pub(super) enum Given<'a> {
    /// Of an environment variable.
    Text(&'a str),
    /// Of the JSON file.
    Json(&'a Value),
}

/// What a setting comes to.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Outcome {
    /// Keys of ours, and what they are set to.
    pub(super) values: Vec<(String, Plain)>,
    /// What whoever wrote it should know.
    pub(super) remarks: Vec<String>,
}

impl Outcome {
    fn value(path: &str, value: Plain) -> Self {
        Self {
            values: vec![(path.to_owned(), value)],
            remarks: Vec::new(),
        }
    }

    fn remark(text: &str) -> Self {
        Self {
            values: Vec::new(),
            remarks: vec![text.to_owned()],
        }
    }
}

impl Given<'_> {
    /// As a text; numbers and switches are written out.
    fn text(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.trim().to_owned()),
            Self::Json(Value::String(text)) => Some(text.trim().to_owned()),
            Self::Json(Value::Number(number)) => Some(number.to_string()),
            Self::Json(Value::Bool(value)) => Some(value.to_string()),
            Self::Json(_) => None,
        }
    }

    /// Does it say anything? Go's zero values do not, nor does an empty variable.
    pub(super) fn says(self) -> bool {
        match self {
            Self::Text(text) => !text.trim().is_empty(),
            Self::Json(Value::Null | Value::Bool(false)) => false,
            Self::Json(Value::String(text)) => !text.trim().is_empty(),
            Self::Json(Value::Number(number)) => number.as_f64() != Some(0.0),
            Self::Json(_) => true,
        }
    }
}

/// Reads what was given to a setting by the name `name`; nothing for what says nothing. `cloud` is the driver's name.
///
/// # Errors
/// What is wrong with it, without the name.
pub(super) fn read(row: &Row, name: &str, given: Given<'_>, cloud: &str) -> Result<Outcome, Refusal> {
    let path = row.path.replace("{cloud}", cloud);
    let Some(text) = given.text() else {
        return Err(Refusal::new("is a list or an object", "write a text"));
    };
    match row.kind {
        // Its place is what is told, and the caller knows that.
        Kind::Secret => match given {
            Given::Text(_) | Given::Json(Value::String(_)) => Ok(Outcome::default()),
            Given::Json(_) => Err(Refusal::new("is no text", "put it in quotes")),
        },
        Kind::Text => match given {
            Given::Json(Value::Number(_) | Value::Bool(_)) => {
                Err(Refusal::new(format!("`{text}` is no text"), "put it in quotes"))
            }
            _ => Ok(Outcome::value(&path, Plain::Text(text))),
        },
        Kind::Id => Ok(Outcome::value(&path, Plain::Text(text))),
        Kind::Asn => Ok(Outcome::value(&path, Plain::Number(asn(&text)?))),
        Kind::PeerAsn => {
            asn(&text)?;
            Ok(Outcome::remark(
                "is not used: the cloud's API says which AS number its routers have",
            ))
        }
        Kind::Port => Ok(match port(&text)? {
            0 => Outcome::default(),
            port => Outcome::value(&path, Plain::Number(port)),
        }),
        Kind::Flag => Ok(if switch(&text)? {
            Outcome::value(&path, Plain::Bool(true))
        } else {
            Outcome::default()
        }),
        Kind::LoadBalancer => load_balancer(name, &text, cloud),
        Kind::LoadBalancerId => Err(Refusal::new(
            "names a load balancer of Equinix Metal, and that service is no more",
            "remove it; the API endpoint is an elastic IP with a tag (METAL_EIP_TAG, `eipTag`)",
        )),
        Kind::Debug => Ok(Outcome::remark(
            "is not used: `--log debug` shows every call of the API, without secrets",
        )),
    }
}

fn asn(text: &str) -> Result<u64, Refusal> {
    match text.parse::<u32>() {
        Ok(asn) if asn != 0 && asn != u32::MAX => Ok(asn.into()),
        _ => Err(Refusal::new(
            format!("\"{text}\" is not an AS number"),
            "write a number from 1 to 4294967294, such as 65000",
        )),
    }
}

fn port(text: &str) -> Result<u64, Refusal> {
    text.parse::<u16>().map(u64::from).map_err(|_| {
        Refusal::new(
            format!("\"{text}\" is not a port"),
            "write a number from 1 to 65535, or leave it out for that of the API servers",
        )
    })
}

fn switch(text: &str) -> Result<bool, Refusal> {
    parse_bool(text).ok_or_else(|| {
        Refusal::new(
            format!("\"{text}\" is neither true nor false"),
            "write `true` or `false`",
        )
    })
}

fn load_balancer(name: &str, text: &str, cloud: &str) -> Result<Outcome, Refusal> {
    let name = name.to_ascii_lowercase();
    let reading = if name.ends_with("configmap") {
        url::read_config_map(text)?
    } else if name.contains("disable") {
        if !switch(text)? {
            return Ok(Outcome::default());
        }
        Reading {
            choice: Choice::Off,
            remarks: Vec::new(),
        }
    } else {
        url::read(text, cloud == "cherry")?
    };
    Ok(Outcome {
        values: choose(&reading.choice, cloud),
        remarks: reading.remarks,
    })
}

/// The keys that a choice sets. Whoever announces, machines speak BGP; where nobody does, Services get nothing.
pub(super) fn choose(choice: &Choice, cloud: &str) -> Vec<(String, Plain)> {
    let text = |path: &str, value: &str| (path.to_owned(), Plain::Text(value.to_owned()));
    let announcer = |name: &str| text("gateway.announcer", name);
    let mut values = match choice {
        Choice::Off => {
            return vec![("gateway.controllers.service".to_owned(), Plain::Bool(false))];
        }
        Choice::KubeVip => vec![announcer("kube-vip")],
        Choice::Empty { ip_annotation } => {
            // Who announces by a program of one's own reads addresses where the controller before wrote them.
            let place = match (cloud, ip_annotation) {
                ("cherry", Some(annotation)) => annotation,
                ("cherry", None) => CHERRY_SERVICE_ADDRESSES,
                _ => "spec.loadBalancerIP",
            };
            let tell = Plain::Texts(vec![place.to_owned()]);
            vec![announcer("empty"), ("gateway.empty.tell".to_owned(), tell)]
        }
        Choice::ConfigMap { namespace, name } => vec![
            announcer("metallb-configmap"),
            text("gateway.metallb.namespace", namespace),
            text("gateway.metallb.configMap", name),
        ],
        Choice::CustomResources { namespace, peer_mode } => {
            let mut values = vec![announcer("metallb"), text("gateway.metallb.namespace", namespace)];
            values.extend(peer_mode.map(|mode| text("gateway.metallb.peerMode", mode)));
            values
        }
    };
    values.push((format!("{cloud}.bgp.enabled"), Plain::Bool(true)));
    values
}
