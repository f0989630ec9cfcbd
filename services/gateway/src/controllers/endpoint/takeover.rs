//! An external Service that an older controller has left behind, under the name that we are told to keep. Pure.
//!
//! Server-side apply knows who wrote which field. What the older controller wrote is made ours by one write that changes nothing else: its
//! entries of `metadata.managedFields` get our name. What we apply next then replaces all that it had written (its port, its address), at
//! once, and nothing of anybody else.
//!
//! Never fought about. Where it writes again after that, or is known to run, the Service stays as that one wants it, and people are told.
//! It becomes ours when nobody is known to run and the other has kept quiet, each time for twice as long as the time before.

use std::time::Duration;

use groundplane_core::{names, older};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use serde_json::Value;
use tokio::time::Instant;

/// How server-side apply is called there.
const APPLY: &str = "Apply";

/// An older controller that writes to what is ours has to keep quiet for so long, the first time. It looks once a minute.
const FIRST: Duration = Duration::from_secs(2 * 60);

/// And never longer than this.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// What an older controller wrote to an object.
#[derive(Clone, Debug, PartialEq)]
struct Left {
    /// By what name it writes.
    who: String,
    /// Its own entries.
    entries: Vec<ManagedFieldsEntry>,
    /// All entries as they should be.
    taken: Vec<ManagedFieldsEntry>,
    /// Do we apply it already?
    was_ours: bool,
}

/// What to do with the Service.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// No older controller has a part in it.
    Go,
    /// Make these its entries, and say [`Dispute::taken`].
    Take(Vec<ManagedFieldsEntry>),
    /// Leave it as it is.
    Leave(Disputed),
}

/// It is another's for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Disputed {
    /// By what name that one writes.
    pub(super) who: String,
    /// It has written since the last look.
    pub(super) is_news: bool,
    /// Nobody was told of it yet.
    pub(super) is_first: bool,
    /// When to look again, if nothing happens before.
    pub(super) until: Instant,
}

/// Remembers what was taken, and what the other did then.
#[derive(Debug, Default)]
pub(super) struct Dispute {
    /// Did we take it?
    taken: bool,
    /// The other's entries, and since when they are so.
    seen: Option<(Vec<ManagedFieldsEntry>, Instant)>,
    /// How often it has written to what was ours.
    times: u32,
    told: bool,
}

impl Dispute {
    /// Looks at the Service's entries. `rival`: an older controller is known to run.
    pub(super) fn step(&mut self, entries: &[ManagedFieldsEntry], rival: bool, now: Instant) -> Step {
        let Some(left) = left(entries) else {
            self.seen = None;
            return Step::Go;
        };
        if !rival && !left.was_ours && !self.taken {
            return Step::Take(left.taken);
        }
        let is_news = self
            .seen
            .as_ref()
            .is_none_or(|(before, _)| *before != left.entries);
        if is_news {
            self.times = self.times.saturating_add(1);
            self.seen = Some((left.entries, now));
        }
        let since = self.seen.as_ref().map_or(now, |(_, since)| *since);
        let until = since + quiet(self.times);
        if !rival && now >= until {
            return Step::Take(left.taken);
        }
        Step::Leave(Disputed {
            who: left.who,
            is_news,
            is_first: !std::mem::replace(&mut self.told, true),
            until: if rival { now + FIRST } else { until },
        })
    }

    /// It was made ours.
    pub(super) fn taken(&mut self) {
        self.taken = true;
        self.seen = None;
    }
}

/// How long it has to keep quiet when it has written so often.
fn quiet(times: u32) -> Duration {
    let factor = 2_u32.saturating_pow(times.saturating_sub(1));
    FIRST.saturating_mul(factor).min(LONGEST)
}

fn is_older(entry: &ManagedFieldsEntry) -> bool {
    let manager = entry.manager.as_deref().unwrap_or_default();
    older::by_field_manager(manager).is_some()
}

fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(names::FIELD_MANAGER) && entry.operation.as_deref() == Some(APPLY)
}

/// Did an older controller write to it?
pub(super) fn is_left(entries: &[ManagedFieldsEntry]) -> bool {
    entries.iter().any(is_older)
}

/// What an older controller wrote to an object; `None`: nothing.
fn left(all: &[ManagedFieldsEntry]) -> Option<Left> {
    let entries: Vec<ManagedFieldsEntry> = all.iter().filter(|entry| is_older(entry)).cloned().collect();
    let who = entries.first()?.manager.clone().unwrap_or_default();
    Some(Left {
        who,
        entries,
        taken: taken(all),
        was_ours: all
            .iter()
            .any(|entry| is_ours(entry) && entry.subresource.is_none()),
    })
}

/// All entries, those of older controllers under our name.
fn taken(all: &[ManagedFieldsEntry]) -> Vec<ManagedFieldsEntry> {
    let mut kept: Vec<ManagedFieldsEntry> = Vec::new();
    for entry in all {
        if !is_older(entry) && !is_ours(entry) {
            kept.push(entry.clone());
            continue;
        }
        let same = |one: &&mut ManagedFieldsEntry| {
            is_ours(one) && (&one.api_version, &one.subresource) == (&entry.api_version, &entry.subresource)
        };
        if let Some(one) = kept.iter_mut().find(same) {
            let fields = one
                .fields_v1
                .get_or_insert_with(|| FieldsV1(Value::Object(serde_json::Map::new())));
            unite(
                &mut fields.0,
                entry.fields_v1.as_ref().map_or(&Value::Null, |fields| &fields.0),
            );
        } else {
            kept.push(ManagedFieldsEntry {
                manager: Some(names::FIELD_MANAGER.to_owned()),
                operation: Some(APPLY.to_owned()),
                ..entry.clone()
            });
        }
    }
    kept
}

/// Adds the fields of another set to a set. A set is a tree whose leaves are empty.
fn unite(fields: &mut Value, others: &Value) {
    let (Value::Object(fields), Value::Object(others)) = (fields, others) else {
        return;
    };
    for (name, other) in others {
        match fields.get_mut(name) {
            Some(field) => unite(field, other),
            None => {
                fields.insert(name.clone(), other.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests;
