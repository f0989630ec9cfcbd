//! The document's table and ours are one.

use pretty_assertions::assert_eq;

use super::*;

fn row(row: &Row) -> String {
    let names = |names: &[&str]| {
        let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        quoted.join(", ")
    };
    let mut keys = row.equinix.to_vec();
    keys.extend(row.cherry.iter().filter(|key| !row.equinix.contains(key)));
    let path = match row.path.strip_prefix("{cloud}") {
        Some(rest) => format!("`equinix{rest}`, `cherry{rest}`"),
        None if row.path.is_empty() => String::new(),
        None => format!("`{}`", row.path),
    };
    format!(
        "| {} | {} | {} | {} | {} |",
        row.meaning,
        names(row.environment),
        names(&keys),
        path,
        row.default
    )
    .replace("|  |", "| |")
    .replace("|  |", "| |")
}

#[test]
fn the_document_has_our_table() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration-inputs.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows: Vec<_> = text
        .lines()
        .skip_while(|line| *line != "| setting | environment | JSON key | sets | unless said |")
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    let ours: Vec<_> = TABLE.iter().map(row).collect();
    assert_eq!(rows.join("\n"), ours.join("\n"));
}

/// Each name means one thing.
#[test]
fn no_name_stands_twice() {
    let mut seen = std::collections::BTreeSet::new();
    for name in TABLE.iter().flat_map(|row| row.environment) {
        assert!(seen.insert(name.to_lowercase()), "{name}");
    }
    for keys in [|row: &Row| row.equinix, |row: &Row| row.cherry] {
        let mut seen = std::collections::BTreeSet::new();
        for key in TABLE.iter().flat_map(keys) {
            assert!(seen.insert(key.to_lowercase()), "{key}");
        }
    }
    assert_eq!(TABLE[TOKEN].path, "{cloud}.apiTokenFile");
    assert_eq!(TABLE[PROJECT].path, "{cloud}.projectId");
}
