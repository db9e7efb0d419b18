//! `fp8.json`, what was measured of a model.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::Path,
};

use kinora_models::weights::Weights;
use kinora_outside::read_text;
use serde::{Deserialize, Serialize};

use super::{Networks, QuantisationError};
use crate::files::WholeFile;

/// More than a network of ten thousand layers takes.
const LIMIT: u64 = 4 << 20;

const VERSION: u32 = 1;

/// The largest number of f16, in which activations are measured.
const LARGEST: f32 = 65504.0;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    /// The fingerprint of the model.
    model: String,
    /// By network and by the name of a weight, the largest size of the numbers that it is multiplied by.
    largest: Networks,
}

/// What was measured of the model with this fingerprint; `None` if there is no file, or it is of another model.
pub(super) fn read(path: &Path, model: &str) -> Result<Option<Networks>, QuantisationError> {
    let wrong = |why: String| QuantisationError::File { path: path.to_owned(), why };
    let text = match read_text(path, LIMIT) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(source) => return Err(QuantisationError::Read { path: path.to_owned(), source }),
    };
    let Document { version, model: measured, largest } =
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    if version != VERSION {
        return Err(wrong(format!("version {version} is not {VERSION}")));
    }
    for (name, &size) in largest.values().flatten() {
        if !(size > 0.0 && size <= LARGEST) {
            return Err(wrong(format!("the largest number of {} is {size}", name.escape_debug())));
        }
    }
    Ok((measured == model).then_some(largest))
}

/// Keeps what was measured.
pub(super) fn write(path: &Path, model: &str, largest: &Networks) -> io::Result<()> {
    let document = Document { version: VERSION, model: model.to_owned(), largest: largest.clone() };
    let mut file = WholeFile::create(path, true)?;
    serde_json::to_writer_pretty(&mut file, &document)?;
    file.write_all(b"\n")?;
    file.finish()
}

/// What tells a model from others: the names, shapes and types of its weights, and the first and last numbers of each, of which
/// training changes some. 64 bits of FNV-1a.
pub(super) fn fingerprint(weights: &Weights) -> String {
    /// So many bytes at either end of a tensor.
    const SAMPLE: usize = 64;
    let mut hash = Hash(0xcbf2_9ce4_8422_2325);
    let tensors: BTreeMap<&str, _> = weights.tensors().map(|tensor| (tensor.name(), tensor)).collect();
    for (name, tensor) in tensors {
        hash.add(format!("{name} {:?} {}\n", tensor.shape(), tensor.dtype()).as_bytes());
        // What cannot be read is reported when it is needed.
        if let Ok(Some(ends)) = weights.ends(name, SAMPLE) {
            ends.iter().for_each(|end| hash.add(end));
        }
    }
    format!("{:016x}", hash.0)
}

struct Hash(u64);

impl Hash {
    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use kinora_graph::DType;
    use kinora_models::{folder::ModelFolder, synthetic::SyntheticModel, weights::Variant};

    use super::*;

    fn networks() -> Networks {
        let sizes = [("a.weight".to_owned(), 1.5), ("b.weight".to_owned(), 300.25)];
        [("denoise".to_owned(), sizes.into())].into()
    }

    #[test]
    fn another_number_in_any_tensor_is_another_model() {
        let folder = tempfile::tempdir().unwrap();
        SyntheticModel::preset("tiny").unwrap().write(folder.path()).unwrap();
        let of = || {
            let model = ModelFolder::open(folder.path()).unwrap();
            let weights = model.weights("unet", &Variant::For(DType::F16)).unwrap();
            fingerprint(&weights)
        };
        let first = of();
        assert_eq!(of(), first);
        let path = folder.path().join("unet/diffusion_pytorch_model.safetensors");
        let mut bytes = std::fs::read(&path).unwrap();
        // The last tensor's last number.
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_ne!(of(), first);
    }

    #[test]
    fn what_is_kept_is_read_for_the_same_model_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fp8.json");
        assert_eq!(read(&path, "m").unwrap(), None);
        assert_eq!(read(&path.join("below"), "m").unwrap(), None);
        write(&path, "m", &networks()).unwrap();
        assert_eq!(read(&path, "m").unwrap(), Some(networks()));
        assert_eq!(read(&path, "other").unwrap(), None);
        write(&path, "other", &networks()).unwrap();
        assert_eq!(read(&path, "m").unwrap(), None);
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fp8.json");
        for (text, why) in [
            ("", "EOF while parsing"),
            ("[]", "invalid length 0"),
            (r#"{"version":2,"model":"m","largest":{}}"#, "version 2 is not 1"),
            (r#"{"version":1,"model":"m","largest":{},"x":1}"#, "unknown field `x`"),
            (r#"{"version":1,"model":"m","largest":{"d":{"w":0}}}"#, "the largest number of w is 0"),
            (r#"{"version":1,"model":"m","largest":{"d":{"w":-2.5}}}"#, "the largest number of w is -2.5"),
            (r#"{"version":1,"model":"m","largest":{"d":{"w":65505}}}"#, "the largest number of w is 65505"),
            (
                r#"{"version":1,"model":"m","largest":{"d":{"w\u001b":1e99}}}"#,
                "the largest number of w\\u{1b} is inf",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = read(&path, "m").unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("remove it"), "{text}: {error}");
        }
    }
}
