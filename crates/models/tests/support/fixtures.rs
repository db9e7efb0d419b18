//! What the scripts under `golden/` wrote: cases, and the results that are expected of them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use kinora_graph::{DType, Tensor, TensorType};
use safetensors::{Dtype, SafeTensors};
use serde::de::DeserializeOwned;

/// The cases of one script with their results.
pub struct Fixture<C> {
    /// The cases, as the script lists them.
    pub cases: Vec<C>,
    results: BTreeMap<String, Tensor>,
}

impl<C: DeserializeOwned> Fixture<C> {
    /// Reads `<name>/<name>.json` and `<name>/<name>.safetensors`.
    pub fn load(name: &str) -> Self {
        let cases = fs::read_to_string(folder(name).join(format!("{name}.json"))).unwrap();
        Fixture { cases: serde_json::from_str(&cases).unwrap(), results: results(name) }
    }

    /// A result that the other implementation gave.
    pub fn expected(&self, case: &str, result: &str) -> &Tensor {
        let name = format!("{case}/{result}");
        self.results.get(&name).unwrap_or_else(|| panic!("the fixture has no {name}"))
    }
}

/// A folder of fixtures.
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join("fixtures").join(name)
}

/// The tensors of `<name>/<name>.safetensors`, by name.
pub fn results(name: &str) -> BTreeMap<String, Tensor> {
    read(&folder(name).join(format!("{name}.safetensors")))
}

/// The tensors of a file, by name.
pub fn read(path: &Path) -> BTreeMap<String, Tensor> {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = |(name, view): (&str, safetensors::tensor::TensorView<'_>)| {
        let dtype = match view.dtype() {
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            Dtype::U8 => DType::U8,
            other => panic!("{name} is stored as {other:?}"),
        };
        (name.to_owned(), Tensor::from_bytes(TensorType::new(dtype, view.shape()), view.data()).unwrap())
    };
    file.iter().map(tensor).collect()
}
