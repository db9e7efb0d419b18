#![doc = include_str!("../README.md")]

/// A file: its path within its folder, with `/` between the parts, and its contents.
pub type File = (&'static str, &'static [u8]);

/// Embeds files of a folder of this crate.
macro_rules! files {
    ($folder:literal, [$($path:literal),+ $(,)?]) => {
        &[$(($path, include_bytes!(concat!("../", $folder, "/", $path)))),+]
    };
}

/// The files of the model's folder, as diffusers writes one: `unet/config.json`, `unet/diffusion_pytorch_model.safetensors` …
pub static MODEL: &[File] = files!(
    "model",
    [
        "model_index.json",
        "defaults.json",
        "feature_extractor/preprocessor_config.json",
        "image_encoder/config.json",
        "image_encoder/model.safetensors",
        "scheduler/scheduler_config.json",
        "unet/config.json",
        "unet/diffusion_pytorch_model.safetensors",
        "vae/config.json",
        "vae/diffusion_pytorch_model.safetensors",
    ]
);

/// The stills, PNG files of 128×128 pixels. The first is the one that Kinora animates if it is given no photo.
pub static STILLS: &[File] =
    files!("stills", ["flyer.png", "creature.png", "night.png", "pair.png", "trio.png", "walker.png"]);

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// Relative paths of all files below a folder of this crate.
    fn on_disk(folder: &str) -> Vec<String> {
        fn walk(folder: &Path, root: &Path, found: &mut Vec<String>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => walk(&path, root, found),
                    false => {
                        found.push(path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/"))
                    }
                }
            }
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let mut found = Vec::new();
        walk(&root, &root, &mut found);
        found.sort();
        found
    }

    fn embedded(files: &[File]) -> Vec<String> {
        let mut names: Vec<String> = files.iter().map(|(path, _)| (*path).to_owned()).collect();
        names.sort();
        names
    }

    /// A file that is added to the folders and forgotten in the lists would be missing in the program alone.
    #[test]
    fn everything_in_the_folders_is_embedded() {
        let mut model = on_disk("model");
        // The card and the record of the training are for readers.
        model.retain(|path| path != "README.md" && path != "training.json");
        assert_eq!(embedded(MODEL), model);
        assert_eq!(embedded(STILLS), on_disk("stills"));
    }
}
