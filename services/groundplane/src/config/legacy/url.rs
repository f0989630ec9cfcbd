//! Who announces addresses, as the older controllers were told it: by a URL, or by the two names of a `ConfigMap`.

use std::fmt;

/// Namespace of MetalLB unless told otherwise.
const NAMESPACE: &str = "metallb-system";
/// Its `ConfigMap`.
const CONFIG_MAP: &str = "config";
/// Both, as packet-ccm wrote them, which had them by default.
pub(super) const PACKET_CONFIG_MAP: &str = "metallb-system:config";
/// What a URL may be, for messages.
const FORMS: &str = "write `kube-vip://`, `empty://`, `metallb:///NAMESPACE/CONFIGMAP`, or `metallb:///NAMESPACE?crdConfiguration=true` \
                     for custom resources; leave it empty for none";
/// Schemes that were lost without their `://`.
const BARE: [&str; 4] = ["kube-vip", "metallb", "empty", "emlb"];

/// Who announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Nobody, and Services get no addresses.
    Off,
    /// kube-vip.
    KubeVip,
    /// Nobody in particular; on Cherry addresses are wanted in this annotation, if it was named.
    Empty { ip_annotation: Option<String> },
    /// `MetalLB`, by its `ConfigMap`.
    ConfigMap { namespace: String, name: String },
    /// `MetalLB`, by custom resources.
    CustomResources {
        namespace: String,
        peer_mode: Option<&'static str>,
    },
}

/// What a text says, and what its writer should know of how it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) choice: Choice,
    pub(super) remarks: Vec<String>,
}

/// Why a text is refused, and the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) message: String,
    pub(super) help: String,
}

impl Refusal {
    pub(super) fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        let (message, help) = (message.into(), help.into());
        Self { message, help }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.help)
    }
}

/// Go's `strconv.ParseBool`.
pub(super) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Reads the value of a setting that is a URL. `cherry`: as Cherry Servers' controller does, which writes custom resources alone.
pub(super) fn read(text: &str, cherry: bool) -> Result<Reading, Refusal> {
    let text = text.trim();
    if text.is_empty() || text == "disabled" {
        return Ok(plain(Choice::Off));
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return without_scheme(text);
    };
    let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut query = Query::parse(query);
    let mut remarks = Vec::new();
    let choice = match scheme.to_ascii_lowercase().as_str() {
        // The first release misspelt it.
        "kube-vip" | "kuve-vip" => {
            nothing_behind(scheme, location, &mut remarks);
            Choice::KubeVip
        }
        "empty" => {
            nothing_behind(scheme, location, &mut remarks);
            let ip_annotation = query.take("ip-annotation").filter(|_| cherry);
            Choice::Empty { ip_annotation }
        }
        "metallb" => metallb(text, location, &mut query, cherry, &mut remarks)?,
        "emlb" => {
            return Err(Refusal::new(
                format!("`{text}` asks for a load balancer of Equinix Metal, and that service is no more"),
                format!("an elastic IP that your machines announce takes its place: {FORMS}"),
            ));
        }
        _ => {
            return Err(Refusal::new(
                format!("`{scheme}://` is no way to announce"),
                FORMS,
            ));
        }
    };
    remarks.extend(query.rest());
    Ok(Reading { choice, remarks })
}

/// Reads `NAMESPACE:NAME` of a `ConfigMap`, or `disabled`: the form of packet-ccm.
pub(super) fn read_config_map(text: &str) -> Result<Reading, Refusal> {
    if text == "disabled" {
        return Ok(plain(Choice::Off));
    }
    match pair(text) {
        Some(choice) => Ok(plain(choice)),
        None => Err(Refusal::new(
            format!("`{text}` is not the namespace and the name of a ConfigMap"),
            format!("write `NAMESPACE:NAME`, such as `{NAMESPACE}:{CONFIG_MAP}`, or `disabled`"),
        )),
    }
}

/// What packet-ccm does where nothing is said.
pub(super) fn of_packet() -> Choice {
    Choice::ConfigMap {
        namespace: NAMESPACE.to_owned(),
        name: CONFIG_MAP.to_owned(),
    }
}

fn plain(choice: Choice) -> Reading {
    let remarks = Vec::new();
    Reading { choice, remarks }
}

fn without_scheme(text: &str) -> Result<Reading, Refusal> {
    if BARE.contains(&text) {
        let message = format!("`{text}` is no URL");
        return Err(Refusal::new(message, format!("write `{text}://`")));
    }
    let Some(choice) = pair(text) else {
        return Err(Refusal::new(format!("`{text}` is no URL"), FORMS));
    };
    let (namespace, name) = text.split_once(':').unwrap_or_default();
    let remarks = vec![format!(
        "`{text}` is read as the ConfigMap `{name}` in the namespace `{namespace}`; the controller before ignored it. Write \
         `metallb:///{namespace}/{name}`"
    )];
    Ok(Reading { choice, remarks })
}

fn pair(text: &str) -> Option<Choice> {
    let (namespace, name) = text.split_once(':')?;
    (is_label(namespace) && is_name(name)).then(|| Choice::ConfigMap {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// `location` is what stands between `://` and the query.
fn metallb(
    text: &str,
    location: &str,
    query: &mut Query,
    cherry: bool,
    remarks: &mut Vec<String>,
) -> Result<Choice, Refusal> {
    let (host, path) = location.split_once('/').unwrap_or((location, ""));
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match host.split_once(':') {
        // As its documents wrote it for a while.
        Some((namespace, name)) if parts.is_empty() => parts = vec![namespace, name],
        _ if !host.is_empty() => {
            parts.insert(0, host);
            let meant = parts.join("/");
            remarks.push(format!(
                "`{text}` has two slashes where three are meant, and is read as `metallb:///{meant}`; the controller before took `{host}` \
                 for the name of a host"
            ));
        }
        _ => {}
    }
    let (namespace, name) = match *parts.as_slice() {
        [] => (NAMESPACE, CONFIG_MAP),
        [namespace] => (namespace, CONFIG_MAP),
        [namespace, name] => (namespace, name),
        _ => return Err(Refusal::new(format!("`{text}` has too many parts"), FORMS)),
    };
    if !is_label(namespace) || !is_name(name) {
        let message = format!("`{text}` has a namespace or a name that Kubernetes would refuse");
        return Err(Refusal::new(message, FORMS));
    }
    let custom_resources = match query.take("crdConfiguration") {
        None => cherry,
        Some(value) => parse_bool(&value).ok_or_else(|| {
            let message = format!("`crdConfiguration` is `{value}`, and neither true nor false");
            Refusal::new(message, "write `?crdConfiguration=true`")
        })?,
    };
    let namespace = namespace.to_owned();
    if !custom_resources && !cherry {
        let name = name.to_owned();
        return Ok(Choice::ConfigMap { namespace, name });
    }
    let peer_mode = if cherry { query.peer_mode()? } else { None };
    Ok(Choice::CustomResources { namespace, peer_mode })
}

fn nothing_behind(scheme: &str, location: &str, remarks: &mut Vec<String>) {
    if !location.trim_matches('/').is_empty() {
        remarks.push(format!("`{location}` behind `{scheme}://` means nothing"));
    }
}

fn is_label(text: &str) -> bool {
    is_name(text) && text.len() <= 63 && !text.contains('.')
}

/// A DNS subdomain.
fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let part = |part: &str| {
        !part.is_empty() && part.bytes().all(inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(part)
}

/// Parameters behind the question mark.
struct Query(Vec<(String, String)>);

impl Query {
    fn parse(text: &str) -> Self {
        let parts = text.split('&').filter(|part| !part.is_empty());
        Self(
            parts
                .map(|part| {
                    let (key, value) = part.split_once('=').unwrap_or((part, ""));
                    (decode(key), decode(value))
                })
                .collect(),
        )
    }

    /// The first value of a key, which is then read. An empty one says nothing.
    fn take(&mut self, key: &str) -> Option<String> {
        let index = self.0.iter().position(|(name, _)| name == key)?;
        let (_, value) = self.0.remove(index);
        Some(value).filter(|value| !value.is_empty())
    }

    fn peer_mode(&mut self) -> Result<Option<&'static str>, Refusal> {
        const MODES: [&str; 3] = ["native", "frr", "none"];
        let Some(value) = self.take("bgp-peer-mode") else {
            return Ok(None);
        };
        let found = MODES.into_iter().find(|mode| *mode == value);
        found.map(Some).ok_or_else(|| {
            let message = format!("`bgp-peer-mode` is `{value}`");
            Refusal::new(message, "write `native`, `frr` or `none`")
        })
    }

    fn rest(self) -> impl Iterator<Item = String> {
        let rest = self.0.into_iter();
        rest.map(|(key, _)| format!("`{key}` behind the question mark means nothing here"))
    }
}

/// Takes `%2F` and the like apart. What is no such pair stays.
fn decode(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, tail)) = rest.split_first() {
        let pair = tail.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        match pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(byte) if first == b'%' => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(if first == b'+' { b' ' } else { first });
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
