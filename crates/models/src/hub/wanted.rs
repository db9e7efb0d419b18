//! Which files of a repository a model needs.

use std::path::Path;

use kinora_outside::read_text;

use super::{HubError, HubId, cache::at};
use crate::{
    folder::{INDEX, Kind, MAX_TEXT, Part, index_name, read_index},
    tokenizer::ClipTokenizer,
    weights::{self, Entry, Variant, WeightsError},
};

/// The files of a commit, on the hub or in the cache.
pub(super) struct Files<'a> {
    /// The model.
    pub id: &'a HubId,
    /// Where the cache has the commit's files.
    pub folder: &'a Path,
    /// The names of all of them.
    pub names: &'a [String],
    /// Whether the cache has a file, so that it can be read.
    pub ready: &'a dyn Fn(&str) -> bool,
}

/// The files that are known to be needed. More may become known once the indices among them are ready: first the
/// model's, then those of sharded weights.
pub(super) fn files(of: &Files<'_>, variant: &Variant) -> Result<Vec<String>, HubError> {
    let Files { id, folder, names, .. } = of;
    let has = |file: &str| names.iter().any(|name| name == file);
    let index = index_name(has).unwrap_or(INDEX);
    let mut wanted = vec![index.to_owned()];
    if let Some(text) = read_if_ready(of, index)? {
        let (_, parts) = read_index(&folder.join(index), &text)?;
        for part in parts {
            wanted.push(part.file(part.kind().config_file()));
            if let Some(stem) = part.kind().weights_stem() {
                let weights = weights_of(of, &part, stem, variant)?;
                wanted.extend(weights.iter().map(|file| part.file(file)));
            }
            if part.kind() == Kind::Tokenizer {
                let files = ClipTokenizer::files(|file| has(&part.file(file)));
                wanted.extend(files.into_iter().map(|file| part.file(file)));
            }
        }
    }
    match wanted.iter().find(|&file| !names.contains(file)) {
        Some(file) => Err(HubError::MissingFile { id: HubId::clone(id), file: file.clone() }),
        None => Ok(wanted),
    }
}

/// The weights files of one part, without its folder.
fn weights_of(of: &Files<'_>, part: &Part, stem: &str, variant: &Variant) -> Result<Vec<String>, HubError> {
    let prefix = part.file("");
    let names: Vec<String> =
        of.names.iter().filter_map(|name| name.strip_prefix(&prefix)).map(str::to_owned).collect();
    let preferences = variant.preferences();
    match preferences.iter().find_map(|&variant| weights::entry(&names, stem, variant)) {
        None => {
            let place = format!("{}/{}", of.id, part.name());
            Err(weights::not_found(Path::new(&place), stem, &preferences, &names).into())
        }
        Some(Entry::Single(file)) => Ok(vec![file]),
        Some(Entry::Index(file)) => {
            let text = read_if_ready(of, &format!("{prefix}{file}"))?;
            let path = of.folder.join(part.file(&file));
            let mut wanted = vec![file];
            if let Some(text) = text {
                let places =
                    weights::read_index(&text).map_err(|source| WeightsError::Index { path, source })?;
                let mut shards: Vec<String> = places.into_values().collect();
                shards.sort();
                shards.dedup();
                wanted.extend(shards);
            }
            Ok(wanted)
        }
    }
}

fn read_if_ready(of: &Files<'_>, file: &str) -> Result<Option<String>, HubError> {
    let path = of.folder.join(file);
    if !(of.ready)(file) || !path.exists() {
        return Ok(None);
    }
    read_text(&path, MAX_TEXT).map(Some).map_err(at(&path))
}
