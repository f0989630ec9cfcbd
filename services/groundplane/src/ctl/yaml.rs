//! A value as YAML, with a remark behind each line that says something.

use groundplane_runtime::config::join;
use serde_json::Value;

/// The text. `remark` says what stands behind the value at a path (`pools[0].name`).
pub(crate) fn text(value: &Value, remark: &dyn Fn(&str) -> Option<String>) -> String {
    let mut writer = Writer {
        lines: Vec::new(),
        remark,
    };
    match value {
        Value::Object(entries) if !entries.is_empty() => writer.entries(value, "", 0),
        Value::Array(items) if !items.is_empty() => writer.items(items, "", 0),
        _ => writer.line("", value, ""),
    }
    writer.lines.push(String::new());
    writer.lines.join("\n")
}

struct Writer<'a> {
    lines: Vec<String>,
    remark: &'a dyn Fn(&str) -> Option<String>,
}

impl Writer<'_> {
    /// JSON's texts, numbers and lists are YAML's, too.
    fn line(&mut self, head: &str, value: &Value, path: &str) {
        let remark = (self.remark)(path).map_or_else(String::new, |remark| format!("  # {remark}"));
        self.lines.push(format!("{head}{value}{remark}"));
    }

    fn entries(&mut self, value: &Value, path: &str, depth: usize) {
        let Value::Object(entries) = value else {
            return;
        };
        for (key, value) in entries {
            let (path, blanks) = (join(path, key), "  ".repeat(depth));
            let key = plain(key);
            match value {
                Value::Object(inner) if !inner.is_empty() => {
                    self.lines.push(format!("{blanks}{key}:"));
                    self.entries(value, &path, depth + 1);
                }
                Value::Array(items) if items.iter().any(Value::is_object) => {
                    self.lines.push(format!("{blanks}{key}:"));
                    self.items(items, &path, depth + 1);
                }
                _ => self.line(&format!("{blanks}{key}: "), value, &path),
            }
        }
    }

    fn items(&mut self, items: &[Value], path: &str, depth: usize) {
        let blanks = "  ".repeat(depth);
        for (index, item) in items.iter().enumerate() {
            let path = format!("{path}[{index}]");
            if item.as_object().is_some_and(|entries| !entries.is_empty()) {
                self.lines.push(format!("{blanks}-"));
                self.entries(item, &path, depth + 1);
            } else {
                self.line(&format!("{blanks}- "), item, &path);
            }
        }
    }
}

/// A key, in quotes where it is not a word.
fn plain(key: &str) -> String {
    let is_word = key.starts_with(|first: char| first.is_ascii_alphabetic())
        && key.chars().all(|letter| letter.is_ascii_alphanumeric());
    // Words that YAML, or an older one, takes for something else.
    let is_other = matches!(
        key.to_ascii_lowercase().as_str(),
        "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
    );
    if is_word && !is_other {
        key.to_owned()
    } else {
        Value::from(key).to_string()
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_written_with_a_remark_behind_each_line() {
        let value = json!({
            "driver": "static",
            "pools": [{"name": "a", "addresses": ["192.0.2.0/24"]}, {"name": "b: #"}],
            "gateway": {"labels": {"a.b/c": "1", "on": null}, "none": {}, "no": []},
        });
        let text = text(&value, &|path| Some(path.to_owned()));
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "driver: \"static\"  # driver",
                "gateway:",
                "  labels:",
                "    \"a.b/c\": \"1\"  # gateway.labels[\"a.b/c\"]",
                "    \"on\": null  # gateway.labels.on",
                "  \"no\": []  # gateway.no",
                "  none: {}  # gateway.none",
                "pools:",
                "  -",
                "    addresses: [\"192.0.2.0/24\"]  # pools[0].addresses",
                "    name: \"a\"  # pools[0].name",
                "  -",
                "    name: \"b: #\"  # pools[1].name",
            ]
        );
    }

    #[test]
    fn rows_are_a_list() {
        assert_eq!(text(&json!([{"a": 1}]), &|_| None), "-\n  a: 1\n");
        assert_eq!(text(&json!([]), &|_| None), "[]\n");
    }
}
