//! The inputs of the older controllers (packet-ccm, Equinix Metal's, Cherry Servers'): a JSON file and environment variables, as one
//! more way into the one configuration.
//!
//! ```text
//! defaults  ◄──  what that controller did by default  ◄──  JSON file  ◄──  environment  ◄──  groundplane.yaml
//! ```
//!
//! Each layer wins over those to its left. What is read becomes values in the tree of the configuration file, each with the variable
//! or the key that it comes from, so that whatever is wrong with it later is told by that name. Secrets stay where they are: the tree
//! is told the place.

mod generation;
mod given;
mod parse;
mod table;
mod url;

use groundplane_core::names::PACKET_ANNOTATION_PREFIX;
use groundplane_runtime::config::{Document, Place, PlacedProblem, Plain, Problem, SecretFile, nearest};

pub(crate) use self::generation::Older;
use self::generation::{ANNOUNCER, FORMATS, Generation};
use self::given::Inputs;
pub(crate) use self::given::Sources;
use self::parse::Given;
use self::table::{CHERRY, DEBUG, Kind, METAL, PACKET, PROJECT, Row, TABLE, TOKEN};

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Legacy {
    /// The controller whose inputs were taken; `None`: there are none.
    pub(crate) of: Option<&'static str>,
    /// What is wrong with them.
    pub(crate) problems: Vec<PlacedProblem>,
    /// Keys of ours that are missing, or were refused, which `problems` tells in their words.
    pub(crate) missing: Vec<String>,
    /// What whoever wrote them should know, once.
    pub(crate) remarks: Vec<String>,
}

/// Lays what `sources` say under the document. `calls_cloud`: is the token needed?
pub(crate) fn lay_under(document: &mut Document, sources: &Sources, calls_cloud: bool) -> Legacy {
    let mut legacy = Legacy::default();
    let mut names = sources.names();
    names.retain(|name| *name != DEBUG);
    if names.is_empty() && sources.file().is_none() {
        legacy.remarks.extend(sources.of().map(|of| {
            format!("{OF} {of}: there is neither a variable of it nor its JSON file (--cloud-config), so nothing comes of it")
        }));
        return legacy;
    }
    if let Some(driver @ ("static" | "remote")) = document.text("driver") {
        let file = sources.file().map(|path| path.display().to_string());
        let ignored: Vec<_> = names.into_iter().map(str::to_owned).chain(file).collect();
        legacy.remarks.push(format!(
            "{}: not read, since `driver` is `{driver}`; leave `driver` out to have it told by them",
            ignored.join(", ")
        ));
        return legacy;
    }
    let inputs = match sources.read() {
        Ok(inputs) => inputs,
        Err(problem) => {
            legacy.problems.push(problem);
            return legacy;
        }
    };
    match choose(document, &inputs) {
        Ok(Some(generation)) => Layer::new(generation, &inputs, document, &mut legacy).lay(calls_cloud),
        Ok(None) => {}
        Err(problem) => legacy.problems.push(problem),
    }
    legacy
}

/// The flag that says whose inputs they are.
const OF: &str = "--cloud-config-of";

/// Whose inputs they are. Whoever starts us may say so; else the file decides by its `driver`, else the variables, else the JSON file.
fn choose(document: &Document, inputs: &Inputs<'_>) -> Result<Option<Generation>, PlacedProblem> {
    if let Some(of) = inputs.of() {
        let generation = Generation::of_older(of, inputs);
        return match document.text("driver") {
            Some(driver @ ("equinix" | "cherry")) if driver != generation.cloud() => Err(PlacedProblem {
                place: Some(Place::Implied(format!("{OF} {of}").into())),
                problem: Problem::new(
                    "",
                    format!(
                        "means the driver `{}`, and `driver` is `{driver}`",
                        generation.cloud()
                    ),
                    "leave one of them out",
                ),
            }),
            // The driver is misspelt, which is told when it is decoded.
            Some(driver) if !["equinix", "cherry"].contains(&driver) => Ok(None),
            _ => Ok(Some(generation)),
        };
    }
    let cherry = inputs.first(CHERRY);
    let equinix = inputs.first(METAL).or_else(|| inputs.first(PACKET));
    match (document.text("driver"), cherry, equinix) {
        (None, None, None) if inputs.file().is_none() => Ok(None),
        (None, None, None) if Generation::is_cherrys(inputs) => Ok(Some(Generation::Cherry)),
        (None, Some(cherry), Some(equinix)) => Err(PlacedProblem {
            place: Some(Place::Environment(cherry.into())),
            problem: Problem::new(
                "",
                format!("is set, and so is {equinix}: these are two clouds"),
                "unset those of one of them, or write `driver: cherry` or `driver: equinix`",
            ),
        }),
        (Some("cherry"), ..) | (None, Some(_), None) => Ok(Some(Generation::Cherry)),
        (Some("equinix"), ..) | (None, None, _) => Ok(Some(Generation::of_equinix(inputs))),
        // The driver is misspelt, which is told when it is decoded.
        (Some(_), ..) => Ok(None),
    }
}

/// The work on one document.
struct Layer<'a> {
    generation: Generation,
    inputs: &'a Inputs<'a>,
    document: &'a mut Document,
    legacy: &'a mut Legacy,
}

impl<'a> Layer<'a> {
    fn new(
        generation: Generation,
        inputs: &'a Inputs<'a>,
        document: &'a mut Document,
        legacy: &'a mut Legacy,
    ) -> Self {
        Self {
            generation,
            inputs,
            document,
            legacy,
        }
    }

    fn lay(mut self, calls_cloud: bool) {
        let cloud = self.generation.cloud();
        let mut taken = [false; TABLE.len()];
        for (row, taken) in TABLE.iter().zip(&mut taken) {
            *taken = self.row(row, cloud);
        }
        // Who tells the project or its token has that controller's place taken, with what it did by default.
        if taken[TOKEN] || taken[PROJECT] {
            self.legacy.of = Some(self.generation.name());
            self.defaults();
            self.doubt();
            self.facility();
        }
        if calls_cloud {
            self.require(&TABLE[TOKEN], cloud);
            self.require(&TABLE[PROJECT], cloud);
        }
        let place = self.decided();
        self.document
            .lay_under("driver", Plain::Text(cloud.to_owned()), &place);
        self.strangers();
    }

    /// Takes a setting from where it is said first. Has any of its values come to count?
    fn row(&mut self, row: &Row, cloud: &str) -> bool {
        let inputs = self.inputs;
        let prefixes = self.generation.prefixes();
        let variables = prefixes.iter().flat_map(|prefix| {
            let names = row.environment.iter().copied();
            names.filter(move |name| {
                name.starts_with(prefix) || (row.kind == Kind::Debug && *prefix == prefixes[0])
            })
        });
        for name in variables {
            if let Some(value) = inputs.variable(name)
                && let Some(taken) = self.take(
                    row,
                    name,
                    Given::Text(value),
                    &Place::Environment(name.into()),
                    cloud,
                )
            {
                return taken;
            }
        }
        for key in self.generation.keys(row) {
            if let Some((name, value)) = inputs.key(key)
                && let Some(taken) = self.take(row, key, Given::Json(value), &inputs.place(name), cloud)
            {
                return taken;
            }
        }
        false
    }

    /// `None`: it says nothing, after all, and who comes next may.
    fn take(&mut self, row: &Row, name: &str, given: Given<'_>, place: &Place, cloud: &str) -> Option<bool> {
        let outcome = match parse::read(row, name, given, cloud) {
            Ok(outcome) => outcome,
            Err(refusal) => {
                self.legacy.missing.push(row.path.replace("{cloud}", cloud));
                self.legacy.problems.push(PlacedProblem {
                    place: Some(place.clone()),
                    problem: Problem::new("", refusal.message, refusal.help),
                });
                return Some(false);
            }
        };
        for remark in outcome.remarks {
            self.legacy.remarks.push(format!("{}: {remark}", place.named("")));
        }
        let mut values = outcome.values;
        if row.kind == Kind::Secret {
            values.push((row.path.replace("{cloud}", cloud), secret(place)));
        } else if values.is_empty() {
            return (row.kind != Kind::LoadBalancer).then_some(false);
        }
        Some(self.set(values, place))
    }

    /// Lays values under the document; has any been taken? What the file chose otherwise is left alone as a whole.
    fn set(&mut self, values: Vec<(String, Plain)>, place: &Place) -> bool {
        let has_tag = self.document.says("endpoint.tag") || self.document.says("endpoint.address");
        let chosen = |path: &str| match path {
            "endpoint.tag" => self.document.says("endpoint.address"),
            // They said nothing without a tag.
            "endpoint.port" | "endpoint.healthCheckUseHostIp" => !has_tag,
            "gateway.controllers.service" => self.document.says("gateway.announcer"),
            _ => false,
        };
        let values: Vec<_> = values.into_iter().filter(|(path, _)| !chosen(path)).collect();
        let mut taken = false;
        for (path, value) in values {
            taken |= self.document.lay_under(&path, value, place);
        }
        taken
    }

    fn defaults(&mut self) {
        let document = &*self.document;
        let mut values = self.generation.defaults(|path| document.says(path));
        // The Service that leads to an endpoint is theirs as the endpoint is.
        let tag = document.origin("endpoint.tag");
        if tag.is_some_and(|place| !matches!(place, Place::File { .. })) {
            values.extend(self.generation.endpoint());
        }
        let place = Place::Implied(format!("default of {}", self.generation.name()).into());
        let off = values
            .iter()
            .any(|(path, _)| path == "gateway.controllers.service");
        self.set(values, &place);
        if off {
            let names = &TABLE.iter().find(|row| row.kind == Kind::LoadBalancer);
            let name = names.and_then(|row| {
                let prefix = self.generation.prefixes().first()?;
                row.environment.iter().find(|name| name.starts_with(prefix))
            });
            self.legacy.remarks.push(format!(
                "no load balancer is told ({} or `loadbalancer`), so Services get no addresses, as with {}",
                name.copied().unwrap_or_default(),
                self.generation.name()
            ));
        }
    }

    /// Says that a setting is missing, in the words of whoever should have said it.
    fn require(&mut self, row: &Row, cloud: &str) {
        let path = row.path.replace("{cloud}", cloud);
        if self.document.says(&path) || self.legacy.missing.contains(&path) {
            return;
        }
        let prefixes = self.generation.prefixes().iter();
        let prefix = prefixes.clone().find(|prefix| self.inputs.has(prefix));
        let name = |prefix: &str| row.environment.iter().find(|name| name.starts_with(prefix));
        let key = self.generation.keys(row).first().copied().unwrap_or_default();
        let newest = prefixes.copied().find_map(name).copied().unwrap_or_default();
        let (place, help) = match prefix.and_then(|prefix| name(prefix)) {
            Some(name) => (
                Place::Environment((*name).into()),
                format!("set it, or write `{key}` into the JSON file of --cloud-config"),
            ),
            None => (self.inputs.place(key), format!("write it there, or set {newest}")),
        };
        self.legacy.missing.push(path);
        self.legacy.problems.push(PlacedProblem {
            place: Some(place),
            problem: Problem::new("", format!("the {} is missing", row.meaning), help),
        });
    }

    /// Says that these inputs could be those of packet-ccm, unless the file says all that would differ.
    fn doubt(&mut self) {
        let says = |path: &str| {
            let place = self.document.origin(path);
            place.is_some_and(|place| matches!(place, Place::File { .. }))
        };
        if !self.generation.could_be_packets(self.inputs) || (says(ANNOUNCER) && says(FORMATS)) {
            return;
        }
        let place = self.inputs.place("").named("");
        self.legacy.remarks.push(format!(
            "{place} does not tell whose it is, and is taken for that of {}. packet-ccm's looks the same, which told MetalLB by the \
             ConfigMap `{}` and wrote annotations `{}/…` unless told otherwise. Say which it is: {OF} {} or {} \
             (GROUNDPLANE_CLOUD_CONFIG_OF; in the chart `cloudConfig.of`), or by the keys `{ANNOUNCER}` and `{FORMATS}`",
            self.generation.name(),
            url::PACKET_CONFIG_MAP,
            PACKET_ANNOTATION_PREFIX,
            Older::PacketCcm,
            Older::CloudProviderEquinixMetal,
        ));
    }

    /// Says that nobody tells where new addresses are to be, where the controller before asked its own machine.
    fn facility(&mut self) {
        let says = |path: &str| self.document.says(path);
        let is_off = self.document.origin("gateway.controllers.service").is_some();
        if is_off || !self.generation.asked_its_machine() || says("equinix.facility") || says("equinix.metro")
        {
            return;
        }
        self.legacy.remarks.push(format!(
            "no facility is told (PACKET_FACILITY_NAME, METAL_FACILITY_NAME or `facility`); {} asked its machine for it. New addresses need \
             it, or a metro: say `equinix.facility` or `equinix.metro`, or have each Service say it by its annotation",
            self.generation.name()
        ));
    }

    /// What told the cloud.
    fn decided(&self) -> Place {
        if let Some(of) = self.inputs.of() {
            return Place::Implied(format!("{OF} {of}").into());
        }
        let prefixes = self.generation.prefixes().iter();
        let mut variables = prefixes.filter_map(|prefix| self.inputs.first(prefix));
        match variables.next() {
            Some(name) => Place::Environment(name.into()),
            None => self.inputs.place(""),
        }
    }

    /// Names that nobody knows: ignored, as they always were, but not in silence.
    fn strangers(&mut self) {
        let rows = || TABLE.iter();
        if let Some((file, keys)) = self.inputs.file() {
            let known: Vec<&'static str> = rows()
                .flat_map(|row| self.generation.keys(row))
                .copied()
                .collect();
            let strange = keys.filter(|key| !known.iter().any(|name| name.eq_ignore_ascii_case(key)));
            self.legacy
                .remarks
                .extend(strange.map(|key| match nearest(key, &known) {
                    Some(near) => format!("{file}: unknown key `{key}` is ignored; did you mean `{near}`?"),
                    None => format!("{file}: unknown key `{key}` is ignored"),
                }));
        }
        for prefix in self.generation.prefixes() {
            let names = rows().flat_map(|row| row.environment);
            let known: Vec<&'static str> = names.filter_map(|name| name.strip_prefix(prefix)).collect();
            // Others have variables of that beginning, too; only one that is nearly ours is a slip.
            let strange = self.inputs.strangers(prefix);
            self.legacy.remarks.extend(strange.filter_map(|name| {
                let near = nearest(name.strip_prefix(prefix)?, &known)?;
                Some(format!(
                    "the environment variable {name} is not known and ignored; did you mean {prefix}{near}?"
                ))
            }));
        }
    }
}

/// Our key for a secret: where it is.
fn secret(place: &Place) -> Plain {
    let file = match place {
        Place::Json { file, key } => SecretFile::json(&**file, key),
        other => SecretFile::environment(&other.named("")),
    };
    Plain::Text(file.to_string())
}

#[cfg(test)]
mod tests;
