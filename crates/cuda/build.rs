//! Gathers the headers that kernels share into a list that the compiler is given, so that adding one is adding a file.

use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("src/kernels/common");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let name = entry?.file_name().into_string().map_err(|name| format!("{name:?} is no text"))?;
        if name.ends_with(".cuh") {
            names.push(name);
        }
    }
    names.sort();
    let entries: String = names
        .iter()
        .map(|name| {
            let path = folder.join(name);
            format!("    ({name:?}, include_str!({:?})),\n", path.display().to_string())
        })
        .collect();
    let list = format!(
        "/// The headers that sources may include, by name.\n\
         pub(crate) const HEADERS: &[(&str, &str)] = &[\n{entries}];\n"
    );
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("headers.rs"), list)?;
    Ok(())
}
