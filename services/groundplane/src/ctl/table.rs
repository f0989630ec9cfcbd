//! Rows as a table, as JSON or as YAML.

use std::io::Write as _;

use serde::Serialize;

use crate::ctl::{Output, yaml};

/// Something that people read as text and programs as JSON.
pub(crate) trait Show: Serialize {
    /// The text, with its last line break.
    fn text(&self) -> String;
}

/// A row of a table.
pub(crate) trait Row: Serialize {
    /// Heads of the columns.
    const COLUMNS: &'static [&'static str];
    /// The cells, one a column.
    fn cells(&self) -> Vec<String>;
}

impl<R: Row> Show for Vec<R> {
    fn text(&self) -> String {
        let heads: Vec<String> = R::COLUMNS.iter().map(|head| (*head).to_owned()).collect();
        lay_out(
            std::iter::once(heads)
                .chain(self.iter().map(Row::cells))
                .collect(),
        )
    }
}

/// Columns as wide as their widest cell, two blanks apart, nothing behind the last.
pub(crate) fn lay_out(rows: Vec<Vec<String>>) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Prints in the form that was asked for.
pub(crate) fn print(output: Output, shown: &impl Show) -> anyhow::Result<()> {
    let text = match output {
        Output::Table => shown.text(),
        Output::Json => serde_json::to_string_pretty(shown)? + "\n",
        Output::Yaml => yaml::text(&serde_json::to_value(shown)?, &|_| None),
    };
    write(&text)
}

/// Prints a text.
pub(crate) fn write(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        // `| head` has read enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_without_blanks() {
        let rows = vec![
            vec!["A".to_owned(), "LONG".to_owned(), "Z".to_owned()],
            vec!["wide".to_owned(), "x".to_owned(), String::new()],
        ];
        assert_eq!(lay_out(rows), "A     LONG  Z\nwide  x\n");
    }
}
