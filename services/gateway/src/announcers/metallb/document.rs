//! Changes entries of lists in a YAML document, and leaves every other character of it alone: pure.
//!
//! The user's entries stay as they were written, with keys that we have never heard of, their order, quotes and comments. Entries are
//! found by their lines, in the block style that people and programs write; what was changed is then read again, and must say exactly
//! what was meant. A document in another style is refused rather than written anew.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde_json::Value;

/// Why a document cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DocumentError {
    /// It is no YAML.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// It is no map of lists.
    #[error("{0} is not what MetalLB reads there")]
    Shape(String),
    /// It is not written in lines that can be told apart.
    #[error("{0} is not written one entry below the other, each with a dash")]
    Style(String),
}

/// What to change in a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edit {
    pub(crate) remove: BTreeSet<usize>,
    pub(crate) replace: BTreeMap<usize, Value>,
    pub(crate) append: Vec<Value>,
}

impl Edit {
    fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.replace.is_empty() && self.append.is_empty()
    }
}

/// A document.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    text: String,
    tree: Value,
}

impl Document {
    /// Reads it. An empty one is an empty map.
    pub(crate) fn parse(text: &str) -> Result<Self, DocumentError> {
        Ok(Self {
            text: text.to_owned(),
            tree: read(text)?,
        })
    }

    /// Does it say nothing at all?
    pub(crate) fn is_blank(&self) -> bool {
        self.tree.as_object().is_some_and(serde_json::Map::is_empty)
    }

    /// Its text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The entries of a list; none where it is missing or empty.
    pub(crate) fn list(&self, key: &str) -> Result<&[Value], DocumentError> {
        match &self.tree[key] {
            Value::Null => Ok(&[]),
            Value::Array(entries) => Ok(entries),
            _ => Err(DocumentError::Shape(key.to_owned())),
        }
    }

    /// The document with these changes of the list `key`.
    pub(crate) fn edit(&self, key: &str, edit: &Edit) -> Result<Self, DocumentError> {
        if edit.is_empty() {
            return Ok(self.clone());
        }
        let entries = self.list(key)?;
        let mut wanted: Vec<Value> = entries
            .iter()
            .enumerate()
            .filter(|(at, _)| !edit.remove.contains(at))
            .map(|(at, entry)| edit.replace.get(&at).unwrap_or(entry).clone())
            .collect();
        wanted.extend(edit.append.iter().cloned());
        let style = || DocumentError::Style(key.to_owned());
        let text = rewrite(&self.text, key, entries.len(), edit, wanted.is_empty()).ok_or_else(style)?;
        let mut tree = self.tree.clone();
        tree[key] = Value::Array(wanted);
        // Whatever the lines looked like: it must say what was meant, and nothing else.
        if read(&text)? != tree {
            return Err(style());
        }
        Ok(Self { text, tree })
    }
}

fn read(text: &str) -> Result<Value, DocumentError> {
    if text.trim().is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    let tree = serde_saphyr::from_str::<Value>(text);
    match tree.map_err(|error| DocumentError::Unreadable(error.to_string()))? {
        Value::Null => Ok(Value::Object(serde_json::Map::new())),
        tree @ Value::Object(_) => Ok(tree),
        _ => Err(DocumentError::Shape("the whole".to_owned())),
    }
}

/// Where a list stands in the text, by lines.
struct Section {
    /// The line with its key.
    head: usize,
    /// What stands behind the colon, without a comment.
    inline: String,
    /// The first lines of entries, and the lines after their last.
    entries: Vec<Range<usize>>,
    /// How far the dashes are indented.
    indent: usize,
}

fn rewrite(text: &str, key: &str, count: usize, edit: &Edit, empties: bool) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = String::new();
    let Some(section) = section(&lines, key) else {
        if count > 0 {
            return None;
        }
        out.push_str(text);
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        push_line(&mut out, &format!("{key}:"));
        push_entries(&mut out, &edit.append, 0);
        return Some(out);
    };
    if section.entries.len() != count || !(section.inline.is_empty() || is_nothing(&section.inline)) {
        return None;
    }
    let last = section.entries.last().map_or(section.head + 1, |entry| entry.end);
    let starts: BTreeMap<usize, usize> = section
        .entries
        .iter()
        .enumerate()
        .map(|(at, entry)| (entry.start, at))
        .collect();
    let mut line = 0;
    loop {
        if line == last {
            push_entries(&mut out, &edit.append, section.indent);
        }
        let Some(text) = lines.get(line) else {
            break;
        };
        if line == section.head {
            let head = match (empties, section.inline.is_empty()) {
                (true, true) => format!("{key}: []"),
                (false, false) => format!("{key}:"),
                _ => (*text).to_owned(),
            };
            push_line(&mut out, &head);
            line += 1;
            continue;
        }
        let Some(at) = starts.get(&line).copied() else {
            push_line(&mut out, text);
            line += 1;
            continue;
        };
        let entry = &section.entries[at];
        if let Some(value) = edit.replace.get(&at) {
            push_entries(&mut out, std::slice::from_ref(value), section.indent);
        } else if !edit.remove.contains(&at) {
            for text in &lines[entry.clone()] {
                push_line(&mut out, text);
            }
        }
        line = entry.end;
    }
    Some(out)
}

fn section(lines: &[&str], key: &str) -> Option<Section> {
    let is = |line: &str| top_key(line).is_some_and(|(name, _)| name == key);
    let head = lines.iter().position(|line| is(line))?;
    let (_, inline) = top_key(lines[head])?;
    let end = lines[head + 1..]
        .iter()
        .position(|line| top_key(line).is_some() || line.starts_with("---") || line.starts_with("..."));
    let end = end.map_or(lines.len(), |at| head + 1 + at);
    let body = head + 1..end;
    let dash = |line: &str| line.trim_start().starts_with("- ") || line.trim() == "-";
    let first = body.clone().find(|at| dash(lines[*at]));
    let indent = first.map_or(0, |at| indent_of(lines[at]));
    let starts: Vec<usize> = body
        .filter(|at| dash(lines[*at]) && indent_of(lines[*at]) == indent)
        .collect();
    let bounds = starts.iter().enumerate().map(|(n, start)| {
        let next = starts.get(n + 1).copied().unwrap_or(end);
        // Comments and blank lines behind an entry are nobody's, and stay.
        let content = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        let last = (*start..next)
            .rev()
            .find(|at| content(&lines[*at]))
            .unwrap_or(*start);
        *start..last + 1
    });
    Some(Section {
        head,
        inline,
        entries: bounds.collect(),
        indent,
    })
}

/// Key and rest of a line that begins an entry of the document's map.
fn top_key(line: &str) -> Option<(String, String)> {
    if line.starts_with([' ', '\t', '-', '#', '%']) {
        return None;
    }
    let (name, rest) = line.split_once(':')?;
    if !(rest.is_empty() || rest.starts_with([' ', '\t'])) {
        return None;
    }
    let name = name.trim().trim_matches(['"', '\'']).to_owned();
    let rest = rest.trim();
    let rest = if rest.starts_with('#') {
        ""
    } else {
        rest.split(" #").next().unwrap_or_default().trim()
    };
    Some((name, rest.to_owned()))
}

/// Is it the text of an empty list?
fn is_nothing(text: &str) -> bool {
    matches!(text, "null" | "~" | "Null" | "NULL" | "[]" | "[ ]")
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn push_line(out: &mut String, line: &str) {
    out.push_str(line);
    out.push('\n');
}

fn push_entries(out: &mut String, entries: &[Value], indent: usize) {
    for entry in entries {
        push_item(out, entry, indent);
    }
}

/// An entry of a list, as the older controllers' library writes it: keys in order, lists as far in as their keys.
fn push_item(out: &mut String, value: &Value, indent: usize) {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(map) if !map.is_empty() => {
            let mut inner = String::new();
            push_map(&mut inner, map, indent + 2);
            // The dash takes the place of the first two blanks.
            let rest = inner.get(indent + 2..).unwrap_or_default();
            out.push_str(&pad);
            out.push_str("- ");
            out.push_str(rest);
        }
        value => push_line(out, &format!("{pad}- {}", scalar(value))),
    }
}

fn push_map(out: &mut String, map: &serde_json::Map<String, Value>, indent: usize) {
    let pad = " ".repeat(indent);
    let sorted: BTreeMap<&String, &Value> = map.iter().collect();
    for (key, value) in sorted {
        match value {
            Value::Object(map) if !map.is_empty() => {
                push_line(out, &format!("{pad}{key}:"));
                push_map(out, map, indent + 2);
            }
            Value::Array(entries) if !entries.is_empty() => {
                push_line(out, &format!("{pad}{key}:"));
                push_entries(out, entries, indent);
            }
            value => push_line(out, &format!("{pad}{key}: {}", scalar(value))),
        }
    }
}

/// A value that has no parts. Text is quoted unless no reader could take it for anything else.
fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        value => value.to_string(),
    }
}

fn is_plain(text: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | '-' | '_' | ',');
    let word = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && !matches!(
            &*text.to_ascii_lowercase(),
            "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null"
        );
    let address = text
        .split('/')
        .next()
        .is_some_and(|part| part.parse::<std::net::Ipv4Addr>().is_ok());
    text.chars().all(known) && !text.ends_with(',') && (word || address)
}

#[cfg(test)]
mod tests;
