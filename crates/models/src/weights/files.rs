//! Which files hold the weights of one part of a model.
//!
//! diffusers and transformers name them alike, after a stem (`diffusion_pytorch_model`, `model`), a variant (`fp16`) or
//! none, and the number of a shard:
//!
//! | | plain | variant |
//! | --- | --- | --- |
//! | one file | `stem.safetensors` | `stem.fp16.safetensors` |
//! | index of shards | `stem.safetensors.index.json` | `stem.safetensors.index.fp16.json` |
//! | the same, before 2024 | | `stem.safetensors.fp16.index.json` |
//!
//! An index says in which file each tensor lies, so the names of the shards do not matter. All of this is decided from
//! names alone: a folder on disk and the listing of a hub are read by the same rules.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path},
};

use kinora_graph::DType;
use serde_json::Value;

use super::IndexError;

/// More files than any part of a model is split into; each stays open.
const MAX_SHARDS: usize = 256;

/// Which of the variants of a model's weights to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The files without a variant in their names.
    Plain,
    /// The variant of this name, such as `fp16`; that, or none.
    Named(String),
    /// Whichever loses least and is smallest for weights that will be kept as this type: `fp16` files for f16 if there
    /// are any, otherwise the plain ones.
    For(DType),
}

impl Variant {
    /// The variants to look for, the best first; `None` is the plain one.
    pub(crate) fn preferences(&self) -> Vec<Option<&str>> {
        match self {
            Variant::Plain => vec![None],
            Variant::Named(name) => vec![Some(name)],
            Variant::For(DType::F16) => vec![Some("fp16"), None, Some("bf16")],
            Variant::For(DType::BF16) => vec![Some("bf16"), None, Some("fp16")],
            Variant::For(_) => vec![None, Some("fp16"), Some("bf16")],
        }
    }
}

/// The file that a model's weights start from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// All tensors in one file.
    Single(String),
    /// An index of files.
    Index(String),
}

/// The file to start from, of those with the given names; `None` if there is none of that stem and variant.
pub(crate) fn entry(names: &[String], stem: &str, variant: Option<&str>) -> Option<Entry> {
    let there = |name: &String| names.contains(name);
    let single = single_name(stem, variant);
    if there(&single) {
        return Some(Entry::Single(single));
    }
    let indices = match variant {
        None => vec![format!("{stem}.safetensors.index.json")],
        Some(v) => {
            vec![format!("{stem}.safetensors.index.{v}.json"), format!("{stem}.safetensors.{v}.index.json")]
        }
    };
    indices.into_iter().find(there).map(Entry::Index)
}

/// The name of the file that holds everything.
pub(crate) fn single_name(stem: &str, variant: Option<&str>) -> String {
    match variant {
        None => format!("{stem}.safetensors"),
        Some(variant) => format!("{stem}.{variant}.safetensors"),
    }
}

/// The names that are Python pickles.
pub(crate) fn pickles(names: &[String]) -> Vec<String> {
    with_extensions(names, &["bin", "ckpt", "pt", "pth", "pkl"])
}

/// The names that are weights this crate can read.
pub(crate) fn safetensors(names: &[String]) -> Vec<String> {
    with_extensions(names, &["safetensors"])
}

fn with_extensions(names: &[String], extensions: &[&str]) -> Vec<String> {
    let extension = |name: &str| Path::new(name).extension().and_then(|e| e.to_str()).map(str::to_lowercase);
    names.iter().filter(|name| extension(name).is_some_and(|e| extensions.contains(&&*e))).cloned().collect()
}

/// Where the tensors of a sharded model lie: file names by tensor.
///
/// # Errors
/// If the text is not an index, names no file or too many, or one outside the index's own folder.
pub(crate) fn read_index(text: &str) -> Result<BTreeMap<String, String>, IndexError> {
    let index: Value = serde_json::from_str(text)?;
    let places = index.get("weight_map").and_then(Value::as_object).ok_or(IndexError::NoPlaces)?;
    let place = |(tensor, file): (&String, &Value)| match file {
        Value::String(file) if is_file_name(file) => Ok((tensor.clone(), file.clone())),
        Value::String(file) => Err(IndexError::Outside(file.clone())),
        _ => Err(IndexError::NotAName { tensor: tensor.clone() }),
    };
    let places = places.iter().map(place).collect::<Result<BTreeMap<_, _>, _>>()?;
    match places.values().collect::<BTreeSet<_>>().len() {
        0 => Err(IndexError::Empty),
        1..=MAX_SHARDS => Ok(places),
        files => Err(IndexError::TooMany { files, limit: MAX_SHARDS }),
    }
}

/// Whether a name means an entry of the folder it is looked up in, and nothing elsewhere.
fn is_file_name(name: &str) -> bool {
    let mut components = Path::new(name).components();
    let single = matches!(components.next(), Some(Component::Normal(_))) && components.next().is_none();
    single && !name.contains(['/', '\\', ':', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn the_variant_asked_for_is_found_whole_or_in_shards() {
        let all = names(&[
            "model.safetensors",
            "model.fp16.safetensors",
            "other.safetensors.index.json",
            "other.safetensors.index.fp16.json",
            "old.safetensors.fp16.index.json",
        ]);
        let single = |name: &str| Some(Entry::Single(name.to_owned()));
        let index = |name: &str| Some(Entry::Index(name.to_owned()));
        assert_eq!(entry(&all, "model", None), single("model.safetensors"));
        assert_eq!(entry(&all, "model", Some("fp16")), single("model.fp16.safetensors"));
        assert_eq!(entry(&all, "model", Some("bf16")), None);
        assert_eq!(entry(&all, "other", None), index("other.safetensors.index.json"));
        assert_eq!(entry(&all, "other", Some("fp16")), index("other.safetensors.index.fp16.json"));
        assert_eq!(entry(&all, "old", Some("fp16")), index("old.safetensors.fp16.index.json"));
        assert_eq!(entry(&all, "old", None), None);
    }

    #[test]
    fn pickles_are_known_by_their_extension() {
        let all = names(&["a.bin", "b.safetensors", "c.CKPT", "config.json", "d.fp16.bin", "bin"]);
        assert_eq!(pickles(&all), ["a.bin", "c.CKPT", "d.fp16.bin"]);
        assert_eq!(safetensors(&all), ["b.safetensors"]);
    }

    #[test]
    fn an_index_may_not_lead_out_of_its_folder() {
        for name in ["../x.safetensors", "/etc/passwd", "a/b", "", ".", "..", "C:\\x", "a/"] {
            let text = serde_json::json!({ "weight_map": { "t": name } }).to_string();
            assert!(read_index(&text).is_err(), "{name}");
        }
        let text = r#"{"metadata": {"total_size": 4}, "weight_map": {"t": "m-00001-of-00002.safetensors"}}"#;
        assert_eq!(read_index(text).unwrap()["t"], "m-00001-of-00002.safetensors");
        for text in ["", "[]", "{}", r#"{"weight_map": 3}"#, r#"{"weight_map": {"a": 1}}"#] {
            assert!(read_index(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_index_names_some_files_and_not_too_many() {
        let index = |shards: usize| {
            let places: BTreeMap<String, String> =
                (0..2 * shards).map(|i| (format!("t{i}"), format!("{}.safetensors", i / 2))).collect();
            read_index(&serde_json::json!({ "weight_map": places }).to_string())
        };
        assert!(matches!(index(0), Err(IndexError::Empty)));
        assert_eq!(index(MAX_SHARDS).unwrap().len(), 2 * MAX_SHARDS);
        assert!(matches!(index(MAX_SHARDS + 1), Err(IndexError::TooMany { files: 257, .. })));
        let error = read_index(r#"{"weight_map": {"a": 1}}"#).unwrap_err().to_string();
        assert_eq!(error, "the place of a is not the name of a file");
        let error = read_index(r#"{"weight_map": []}"#).unwrap_err().to_string();
        assert_eq!(error, "it has no weight_map, which says in which file each tensor is");
    }
}
