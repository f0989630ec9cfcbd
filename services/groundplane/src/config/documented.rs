//! What describes the configuration is held to its types: the table of the README, and the schema of the chart's values.
//!
//! The types say what there is by being written: every key of the defaults, and of one entry of each list.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::*;

/// One entry of each list, and of each section that is absent by default, with what they cannot do without.
const ENTRIES: &str = "
pools: [{name: x, addresses: [192.0.2.0/24]}]
static:
  machines: [{name: x, addresses: [{type: InternalIP, address: 192.0.2.1}]}]
  bgp: {localAsn: 65000, peers: [{address: 192.0.2.1, asn: 65001}]}
";

/// Values by their paths: `pools[].name`.
type Leaves<T> = BTreeMap<String, T>;

fn below(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// Every key that has a value of its own.
fn leaves(path: &str, value: &Value, found: &mut Leaves<Value>) {
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            for (key, value) in entries {
                leaves(&below(path, key), value, found);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for item in items {
                leaves(&format!("{path}[]"), item, found);
            }
        }
        _ => drop(found.insert(path.to_owned(), value.clone())),
    }
}

/// Every key, with its default; those that must be given have none.
fn keys() -> Leaves<Option<Value>> {
    let document = Document::parse("entries", ENTRIES).unwrap();
    let (whole, entries): (Config, BTreeMap<String, Value>) =
        (document.decode().unwrap(), document.decode().unwrap());
    let (mut all, mut given) = (Leaves::new(), Leaves::new());
    leaves("", &serde_json::to_value(whole).unwrap(), &mut all);
    leaves("", &serde_json::to_value(entries).unwrap(), &mut given);
    assert!(all.len() > given.len() && given.keys().all(|path| all.contains_key(path)));
    all.into_iter()
        .map(|(path, value)| {
            let default = (!given.contains_key(&path)).then_some(value);
            (path, default)
        })
        .collect()
}

fn repository(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What stands between backticks: `a.{b,c}` is two.
fn spans(cell: &str) -> Vec<String> {
    let mut found = Vec::new();
    for span in cell.split('`').skip(1).step_by(2) {
        let parts = span
            .split_once('{')
            .and_then(|(head, rest)| Some((head, rest.strip_suffix('}')?)));
        match parts {
            Some((head, names)) => found.extend(names.split(',').map(|name| format!("{head}{name}"))),
            None => found.push(span.to_owned()),
        }
    }
    found
}

/// The README's table: each key with what it says of its default.
fn table(readme: &str) -> Vec<(String, String)> {
    let rows = readme
        .lines()
        .skip_while(|line| *line != "| key | default | meaning |")
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let (mut section, mut found) = (String::new(), Vec::new());
    for row in rows {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        if cells[1].starts_with("**") {
            section = spans(cells[1]).concat();
            continue;
        }
        let keys = spans(cells[1]);
        let defaults: Vec<_> = cells[2].split(", ").collect();
        assert!(
            defaults.len() == 1 || defaults.len() == keys.len(),
            "one default for all of them, or one each: {row}"
        );
        for (index, key) in keys.into_iter().enumerate() {
            let path = if key.starts_with('.') {
                format!("{section}{key}")
            } else {
                key
            };
            let default = defaults.get(index).or_else(|| defaults.first()).copied();
            found.push((path, default.unwrap_or_default().to_owned()));
        }
    }
    found
}

/// As the table would write it; `None` for what is empty, which it says in words of its own.
fn written(default: &Value) -> Option<String> {
    match default {
        Value::Null => None,
        Value::String(text) => (!text.is_empty()).then(|| format!("`{text}`")),
        Value::Array(items) => (!items.is_empty()).then(|| default.to_string()),
        Value::Object(entries) => (!entries.is_empty()).then(|| default.to_string()),
        Value::Bool(_) | Value::Number(_) => Some(default.to_string()),
    }
}

/// What is wrong with a table.
fn mistakes(table: &[(String, String)]) -> Vec<String> {
    let known = keys();
    let (mut wrong, mut told) = (Vec::new(), BTreeSet::new());
    for (path, said) in table {
        if !told.insert(path) {
            wrong.push(format!("`{path}` is told twice"));
        }
        let expected = match known.get(path) {
            None => {
                wrong.push(format!("there is no `{path}`"));
                continue;
            }
            Some(None) => Some("required".to_owned()),
            Some(Some(default)) => written(default),
        };
        match expected {
            Some(expected) if *said != expected => {
                wrong.push(format!("`{path}` is {expected} by default, and not {said}"));
            }
            // Nothing is set: no switch can be the default.
            None if ["", "true", "false"].contains(&said.as_str()) => {
                wrong.push(format!("`{path}` has no default, and not `{said}`"));
            }
            _ => {}
        }
    }
    let missing = known.keys().filter(|path| !told.contains(path));
    wrong.extend(missing.map(|path| format!("`{path}` is missing")));
    wrong
}

#[test]
fn the_readme_tells_every_key_and_its_default() {
    let table = table(&repository("README.md"));
    assert_eq!(mistakes(&table), Vec::<String>::new());
}

#[test]
fn a_table_that_is_wrong_is_found_out() {
    let right = table(&repository("README.md"));
    let before = mistakes(&right);
    let spoilt = |spoil: fn(&mut Vec<(String, String)>)| {
        let mut table = right.clone();
        spoil(&mut table);
        let mut found = mistakes(&table);
        found.retain(|mistake| !before.contains(mistake));
        found
    };
    let cases = [
        spoilt(|table| table.retain(|(path, _)| path != "ipam.cooldown")),
        spoilt(|table| table.push(("ipam.coldown".to_owned(), "none".to_owned()))),
        spoilt(|table| {
            for (path, default) in table {
                if path == "gateway.lease.retry" {
                    "`3s`".clone_into(default);
                }
            }
        }),
    ];
    assert_eq!(
        cases.concat(),
        [
            "`ipam.cooldown` is missing",
            "there is no `ipam.coldown`",
            "`gateway.lease.retry` is `2s` by default, and not `3s`",
        ]
    );
}

/// The part of the schema which describes the configuration.
fn schema() -> Value {
    let schema: Value = serde_json::from_str(&repository("charts/groundplane/values.schema.json")).unwrap();
    schema["properties"]["config"].clone()
}

/// Every key that has a value of its own, with what the schema says of it.
fn described<'a>(path: &str, schema: &'a Value, found: &mut Leaves<&'a Value>) {
    if let Some(properties) = schema["properties"].as_object() {
        let others = &schema["additionalProperties"];
        assert_eq!(others, false, "`{path}` takes keys that nobody knows");
        for (key, schema) in properties {
            described(&below(path, key), schema, found);
        }
    } else if schema["items"]["properties"].is_object() {
        described(&format!("{path}[]"), &schema["items"], found);
    } else {
        found.insert(path.to_owned(), schema);
    }
}

#[test]
fn the_schema_of_the_chart_has_the_same_keys() {
    let (schema, mut found) = (schema(), Leaves::new());
    described("", &schema, &mut found);
    let known = keys();
    let differ: Vec<_> = found
        .keys()
        .filter(|path| !known.contains_key(*path))
        .chain(known.keys().filter(|path| !found.contains_key(*path)))
        .collect();
    assert_eq!(
        differ,
        Vec::<&String>::new(),
        "one has them, and the other does not"
    );
    for (path, default) in &known {
        let schema = found[path];
        if let Some(choices) = schema["enum"].as_array() {
            let is_one = default.as_ref().is_none_or(|default| choices.contains(default));
            assert!(is_one, "`{path}` lacks its default among {choices:?}");
            continue;
        }
        let types = match default {
            None | Some(Value::Null) => continue,
            Some(Value::Bool(_)) => "boolean",
            Some(Value::Number(number)) if number.is_f64() => "number",
            Some(Value::Number(_)) => "integer",
            Some(Value::String(_)) => "string",
            Some(Value::Array(_)) => "array",
            Some(Value::Object(_)) => "object",
        };
        // Some may be written in more than one way.
        let said = schema["type"].as_array();
        let is_one = said.map_or(schema["type"] == types, |said| {
            said.iter().any(|one| one == types)
        });
        assert!(is_one, "`{path}` is {types}, and not {}", schema["type"]);
    }
}

/// Reads a configuration in which nothing is written but a text at `path`, and what an entry of a list cannot do without.
fn choose(path: &str, choice: &str) -> Result<(), String> {
    let mut text = String::new();
    for (index, step) in path.split('.').rev().enumerate() {
        text = match (index, step.strip_suffix("[]")) {
            (0, _) => format!("{step}: {choice}"),
            (_, Some(key)) => format!("{key}: [{{{text}}}]"),
            (_, None) => format!("{step}: {{{text}}}"),
        };
    }
    let text = text.replace("addresses: [{", "addresses: [{address: x, ");
    let document = Document::parse("groundplane.yaml", &text).unwrap();
    let read: Result<Config, _> = document.decode();
    read.map(drop).map_err(|error| error.to_string())
}

/// A choice that the chart offers and the program does not know, or the other way round.
#[test]
fn the_schema_of_the_chart_has_the_same_choices() {
    let (schema, mut found) = (schema(), Leaves::new());
    described("", &schema, &mut found);
    let mut seen = 0;
    for (path, schema) in found {
        let Some(choices) = schema["enum"].as_array() else {
            continue;
        };
        seen += 1;
        let refused = choose(&path, "xxqqxx").unwrap_err();
        let (_, known) = refused
            .rsplit_once(" are ")
            .or_else(|| refused.rsplit_once(": "))
            .unwrap();
        let known: BTreeSet<_> = known.split(", ").map(|name| name.trim_matches('`')).collect();
        let offered: BTreeSet<_> = choices.iter().filter_map(Value::as_str).collect();
        assert_eq!(offered, known, "`{path}`: {refused}");
        for choice in offered {
            assert_eq!(choose(&path, choice), Ok(()), "`{path}`");
        }
    }
    assert!(seen >= 4, "only {seen} choices");
}
