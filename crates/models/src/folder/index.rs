//! The file that says what a model is made of.

use std::path::Path;

use kinora_outside::shortened;
use serde_json::Value;

use super::{FolderError, Kind, Part, classes};

/// The file that says which parts a model has.
pub(crate) const INDEX: &str = "model_index.json";

/// The name of the file that says what a model is made of: its index, or the configuration of a network that comes by
/// itself. `None` if there is neither.
pub(crate) fn index_name(has: impl Fn(&str) -> bool) -> Option<&'static str> {
    [INDEX, Kind::DiffusersNetwork.config_file()].into_iter().find(|name| has(name))
}

/// The pipeline and its parts, from the text of a model index that lies at `path`.
pub(crate) fn read_index(path: &Path, text: &str) -> Result<(&'static str, Vec<Part>), FolderError> {
    let at = || path.to_owned();
    let shown = |class: &str| shortened(class, 120).into_owned();
    let index: Value =
        serde_json::from_str(text).map_err(|source| FolderError::Json { path: at(), source })?;
    let problem = |problem: &str| FolderError::Index { path: at(), problem: problem.to_owned() };
    let index =
        index.as_object().ok_or_else(|| problem("this is not a model index: it must be a JSON object"))?;
    let class = index
        .get("_class_name")
        .and_then(Value::as_str)
        .ok_or_else(|| problem("there is no _class_name, so the kind of model is unknown"))?;
    let Some(pipeline) = classes::PIPELINES.iter().find(|known| known.class == class) else {
        return Err(FolderError::UnknownPipeline { path: at(), class: shown(class) });
    };
    let missing = |part| FolderError::MissingPart { path: at(), pipeline: pipeline.class, part };
    let mut parts = Vec::new();
    if let (true, [known]) = (pipeline.alone, pipeline.parts) {
        let (name, class) = (known.name.to_owned(), class.to_owned());
        return Ok((pipeline.class, vec![Part { name, class, kind: known.kind, alone: true }]));
    }
    for known in pipeline.parts {
        let name = known.name.to_owned();
        let class = match index.get(known.name).map(Value::as_array) {
            Some(Some(entry)) => match entry.as_slice() {
                [_, Value::String(class)] => class.clone(),
                // A part that the pipeline was saved without.
                [_, Value::Null] => return Err(missing(name)),
                _ => return Err(problem(&format!("{name} must be [library, class]"))),
            },
            Some(None) => return Err(problem(&format!("{name} must be [library, class]"))),
            None => return Err(missing(name)),
        };
        if !known.classes.contains(&class.as_str()) {
            let (pipeline, class) = (pipeline.class, shown(&class));
            return Err(FolderError::UnknownClass { path: at(), pipeline, part: name, class });
        }
        parts.push(Part { name, class, kind: known.kind, alone: false });
    }
    Ok((pipeline.class, parts))
}
