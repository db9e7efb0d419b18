//! `kinora lab new`: a task to start from.

use std::{fs, io, path::Path};

use kinora::files::Inputs;
use kinora_lab::scaffold;

use super::arguments::NewArgs;
use crate::{failure::Failure, files, print};

/// Writes the files. A folder that exists is taken if it has none of them.
pub fn run(arguments: &NewArgs) -> Result<(), Failure> {
    let new =
        scaffold(&arguments.name, &arguments.like).map_err(|error| Failure::Usage(error.to_string()))?;
    if let Some((exists, _)) = new.iter().find(|(path, _)| path.symlink_metadata().is_ok()) {
        return Err(Failure::LabExists(exists.clone()));
    }
    let folder = Path::new(&arguments.name);
    let failed = |source: io::Error| Failure::File { path: folder.to_owned(), source };
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
        made => made.map_err(failed)?,
    }
    let mut text = String::new();
    for (path, content) in &new {
        files::check(path, false, &Inputs::default())?.write(content.as_bytes())?;
        text += &format!("{}\n", path.display());
    }
    let name = &arguments.name;
    print(&format!(
        "{text}\nkinora lab run {name}      checks it and predicts its time\nkinora lab watch {name}    does so at every save\n"
    ))
}
