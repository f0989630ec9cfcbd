//! The table of scenarios and the tests that it names bear each other out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use groundplane_tests::scratch::workspace_root;
use pretty_assertions::assert_eq;

/// A row of the table.
struct Row {
    id: String,
    /// `path::test`, each in backticks in the table.
    proofs: Vec<String>,
    last: String,
}

/// Which scenarios the comment before each test names: `path::test` to ids.
type Named = BTreeMap<String, BTreeSet<String>>;

/// Is it an id: a letter of the four families and a number, which a `b` may follow?
fn is_id(word: &str) -> bool {
    let Some(number) = word.strip_prefix(['E', 'N', 'C', 'S']) else {
        return false;
    };
    let digits = number.strip_suffix('b').unwrap_or(number);
    (1..=2).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The ids that a text names; a range (`first to last`) in full.
fn ids(text: &str) -> BTreeSet<String> {
    let words: Vec<_> = text
        .split(|character: char| !character.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let mut found: BTreeSet<_> = words
        .iter()
        .filter(|word| is_id(word))
        .map(|word| (*word).to_owned())
        .collect();
    for range in words.windows(3) {
        if let [first, "to", last] = *range
            && is_id(first)
            && is_id(last)
            && first[..1] == last[..1]
        {
            let (from, to) = (first[1..].parse().unwrap_or(1_u8), last[1..].parse().unwrap_or(0));
            found.extend((from..=to).map(|number| format!("{}{number}", &first[..1])));
        }
    }
    found
}

/// The tests of a file whose comments name scenarios. Those that run in both modes or on both clouds are tests, too: a macro calls
/// them.
fn named(path: &str, text: &str) -> Named {
    let (mut found, mut comment, mut marked) = (Named::new(), String::new(), false);
    for line in text.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("///") {
            comment.push_str(words);
        } else if line.starts_with("#[") {
            marked |= line.contains("test");
        } else {
            let line = line.strip_prefix("async ").unwrap_or(line);
            let ids = ids(&std::mem::take(&mut comment));
            let is_test = std::mem::take(&mut marked)
                || line.contains("(mode: Mode)")
                || line.contains("(cloud: CloudApi");
            if let Some((name, _)) = line.strip_prefix("fn ").and_then(|rest| rest.split_once('('))
                && !ids.is_empty()
                && is_test
            {
                found.insert(format!("{path}::{name}"), ids);
            }
        }
    }
    found
}

fn rows(table: &str) -> Vec<Row> {
    let cells = table
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    cells
        .filter(|cells| cells.len() == 5 && is_id(cells[1]))
        .map(|cells| Row {
            id: cells[1].to_owned(),
            proofs: cells[3]
                .split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect(),
            last: cells[3].to_owned(),
        })
        .collect()
}

/// What the table and the tests do not agree on.
fn differences(rows: &[Row], named: &Named) -> Vec<String> {
    let (mut wrong, mut seen) = (Vec::new(), BTreeSet::new());
    for row in rows {
        if !seen.insert(&row.id) {
            wrong.push(format!("{} is there twice", row.id));
        }
        if row.proofs.is_empty() && row.last != "not yet" {
            wrong.push(format!("{}: neither a test nor `not yet`", row.id));
        }
        for proof in &row.proofs {
            if !named.get(proof).is_some_and(|ids| ids.contains(&row.id)) {
                wrong.push(format!("{}: no {proof} whose comment names it", row.id));
            }
        }
    }
    for (test, ids) in named {
        let unknown = ids.iter().filter(|id| !seen.contains(id));
        wrong.extend(unknown.map(|id| format!("{id} of {test} is not in the table")));
    }
    wrong
}

/// Adds what the Rust files below `folder` name.
fn read(folder: &Path, found: &mut Named) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            read(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(workspace_root())?.display().to_string();
            found.extend(named(&name, &std::fs::read_to_string(&path)?));
        }
    }
    Ok(())
}

#[test]
fn every_scenario_that_a_test_names_is_in_the_table_and_every_claim_is_borne_out() -> Result<()> {
    let mut named = Named::new();
    for folder in ["services", "tests", "proto"] {
        read(&workspace_root().join(folder), &mut named)?;
    }
    let rows = rows(&std::fs::read_to_string(
        workspace_root().join("tests/SCENARIOS.md"),
    )?);
    ensure!(rows.len() > 100 && named.len() > 50, "the table was not read");
    assert_eq!(differences(&rows, &named), Vec::<String>::new());
    Ok(())
}

#[test]
fn a_table_that_is_wrong_is_found_out() {
    let source = "/// X1 to X3, Q2: the comment goes on,\n/// here.\n#[tokio::test]\nasync fn works() {\n/// X9\nlet a = 1;\n\
         #[test]\nfn silent() {\n/// X8: no test\nfn aid() {\n"
        .replace('X', "C")
        .replace('Q', "E");
    let named = named("a.rs", &source);
    assert_eq!(named["a.rs::works"].len(), 4);
    assert_eq!(named.len(), 1, "{named:?}");
    let table = "| C1 | good | `a.rs::works` |\n| C2 | nobody has it | `a.rs::silent` |\n| C3 | vague | perhaps |\n\
                 | C4 | later | not yet |\n| C4 | later | not yet |\n| C5 | not its own | in part: `a.rs::works` |\n";
    assert_eq!(
        differences(&rows(table), &named),
        [
            "C2: no a.rs::silent whose comment names it",
            "C3: neither a test nor `not yet`",
            "C4 is there twice",
            "C5: no a.rs::works whose comment names it",
            "E2 of a.rs::works is not in the table",
        ]
    );
}
