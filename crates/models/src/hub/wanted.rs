//! Which files of a repository a model needs.

use std::{fs, path::Path};

use super::{HubError, HubId};
use crate::{
    folder::{INDEX, read_index},
    weights::{self, Entry, Variant, WeightsError},
};

/// The files that are known to be needed, of those that a repository has (`names`). More may become known once the
/// indices among them are in `folder`: first the model's, then those of sharded weights.
pub(super) fn files(
    id: &HubId,
    folder: &Path,
    names: &[String],
    variant: &Variant,
) -> Result<Vec<String>, HubError> {
    let mut wanted = vec![INDEX.to_owned()];
    let index = folder.join(INDEX);
    if let Some(text) = read_if_there(&index)? {
        let (_, parts) = read_index(&index, &text)?;
        for part in parts {
            let inside = |file: &str| format!("{}/{file}", part.name());
            wanted.push(inside(part.kind().config_file()));
            if let Some(stem) = part.kind().weights_stem() {
                let weights = weights_of(id, folder, names, part.name(), stem, variant)?;
                wanted.extend(weights.iter().map(|file| inside(file)));
            }
        }
    }
    match wanted.iter().find(|&file| !names.contains(file)) {
        Some(file) => Err(HubError::MissingFile { id: id.clone(), file: file.clone() }),
        None => Ok(wanted),
    }
}

/// The weights files of one part, without its folder.
fn weights_of(
    id: &HubId,
    folder: &Path,
    names: &[String],
    part: &str,
    stem: &str,
    variant: &Variant,
) -> Result<Vec<String>, HubError> {
    let prefix = format!("{part}/");
    let names: Vec<String> =
        names.iter().filter_map(|name| name.strip_prefix(&prefix)).map(str::to_owned).collect();
    let preferences = variant.preferences();
    match preferences.iter().find_map(|&variant| weights::entry(&names, stem, variant)) {
        None => {
            let place = format!("{id}/{part}");
            Err(weights::not_found(Path::new(&place), stem, &preferences, &names).into())
        }
        Some(Entry::Single(file)) => Ok(vec![file]),
        Some(Entry::Index(file)) => {
            let path = folder.join(part).join(&file);
            let mut wanted = vec![file];
            if let Some(text) = read_if_there(&path)? {
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

fn read_if_there(path: &Path) -> Result<Option<String>, HubError> {
    if !path.exists() {
        return Ok(None);
    }
    fs::read_to_string(path).map(Some).map_err(|source| HubError::Cache { path: path.to_owned(), source })
}
