//! How fields look in a log for people: the message plain, the rest as `name=value`, without what only a viewer of
//! traces wants.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;

/// Formats the fields of events and spans.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForPeople;

impl<'writer> FormatFields<'writer> for ForPeople {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut line = Line {
            writer,
            begun: false,
            result: Ok(()),
        };
        fields.record(&mut line);
        line.result
    }
}

struct Line<'writer> {
    writer: Writer<'writer>,
    begun: bool,
    result: fmt::Result,
}

impl Line<'_> {
    fn write(&mut self, name: &str, value: fmt::Arguments<'_>) {
        if self.result.is_err() || name.starts_with("otel.") || name == "rpc.system" {
            return;
        }
        let blank = if self.begun { " " } else { "" };
        self.begun = true;
        self.result = match name {
            "message" => write!(self.writer, "{blank}{value}"),
            name => write!(self.writer, "{blank}{name}={value}"),
        };
    }
}

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.write(field.name(), format_args!("{value:?}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        // What happened, and all that caused it.
        let mut causes = String::new();
        let mut cause = value.source();
        while let Some(error) = cause {
            causes.push_str(": ");
            causes.push_str(&error.to_string());
            cause = error.source();
        }
        self.write(field.name(), format_args!("{:?}", format!("{value}{causes}")));
    }
}
