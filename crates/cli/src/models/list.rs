//! `kinora models list`: what the cache holds, and the short names.

use std::fmt::Write as _;

use kinora_bench::results::date_of;
use kinora_models::hub::{CachedModel, CachedRevision, Hub, SHORT_NAMES};
use serde_json::{Value, json};

use super::{arguments::ListArgs, short_name};
use crate::{failure::Failure, print, quantities::Bytes};

/// The digits of a commit that are shown to people; git shows as many.
const SHOWN_DIGITS: usize = 7;

/// Prints what the cache holds.
pub fn run(arguments: &ListArgs) -> Result<(), Failure> {
    let hub = Hub::from_env()?;
    let models = hub.models()?;
    if arguments.json {
        let models: Vec<Value> = models.iter().map(as_json).collect();
        let short =
            SHORT_NAMES.map(|short| json!({ "name": short.name, "model": short.repo, "about": short.about }));
        return print(&format!(
            "{}\n",
            json!({ "cache": hub.cache, "models": models, "short_names": short })
        ));
    }
    let mut text = String::new();
    if models.is_empty() {
        let _ = writeln!(text, "No model is downloaded.");
    }
    for model in &models {
        text.push_str(&as_text(model));
    }
    let _ = writeln!(text, "\nShort names:");
    let width = SHORT_NAMES.iter().map(|short| short.name.len()).max().unwrap_or(0);
    for short in SHORT_NAMES {
        let _ = writeln!(text, "  {:<width$} {}\n  {:<width$} {}", short.name, short.repo, "", short.about);
    }
    let _ = writeln!(text, "\nThe cache is {}", hub.cache.display());
    print(&text)
}

fn as_text(model: &CachedModel) -> String {
    let mut text = match short_name(&model.id) {
        Some(short) => format!("{} ({short})\n", model.id),
        None => format!("{}\n", model.id),
    };
    for revision in &model.revisions {
        let state = match revision.complete {
            Some(true) => "complete",
            Some(false) => "incomplete: `kinora models pull` gets the rest",
            None => "not a model for Kinora",
        };
        let date = revision.modified.map(date_of).unwrap_or_default();
        let day = date.split('T').next().unwrap_or_default();
        let size = Bytes(revision.bytes).to_string();
        let _ = writeln!(text, "  {:<16} {size:>9}  {day:<10}  {state}", name_of(revision));
    }
    if model.unfinished_bytes > 0 {
        let _ = writeln!(text, "  {:<16} {:>9}", "unfinished", Bytes(model.unfinished_bytes).to_string());
    }
    text
}

/// A branch or tag and the commit, in short. References are files that anyone may have written.
fn name_of(revision: &CachedRevision) -> String {
    let commit = revision.commit.get(..SHOWN_DIGITS).unwrap_or(&revision.commit);
    match revision.names.first() {
        Some(name) => format!("{} ({commit})", name.escape_debug()),
        None => commit.to_owned(),
    }
}

fn as_json(model: &CachedModel) -> Value {
    let revision = |revision: &CachedRevision| {
        json!({
            "commit": revision.commit,
            "names": revision.names,
            "bytes": revision.bytes,
            "modified": revision.modified.map(date_of),
            "for_kinora": revision.complete.is_some(),
            "complete": revision.complete == Some(true),
        })
    };
    json!({
        "model": model.id.repo(),
        "short_name": short_name(&model.id),
        "folder": model.folder,
        "bytes": model.bytes,
        "unfinished_bytes": model.unfinished_bytes,
        "revisions": model.revisions.iter().map(revision).collect::<Vec<_>>(),
    })
}
