//! Weights and the index of their shards.

use std::cell::OnceCell;

use kinora_graph::{DType, TensorType};
use kinora_models::weights::{Variant, Weights};

use crate::scratch::Scratch;

const STEM: &str = "diffusion_pytorch_model";
/// A tensor larger than this is not brought into a graph's layout.
const ELEMENTS: u64 = 1 << 16;

thread_local! {
    static FOLDER: OnceCell<Scratch> = const { OnceCell::new() };
    static SHARDS: OnceCell<Scratch> = const { OnceCell::new() };
}

/// Any bytes as a safetensors file.
pub fn file(bytes: &[u8]) {
    FOLDER.with(|folder| {
        let folder = folder.get_or_init(Scratch::new);
        folder.write(&format!("{STEM}.safetensors"), bytes);
        read(folder);
    });
}

/// Any bytes as the index of two shards that are there.
pub fn index(bytes: &[u8]) {
    SHARDS.with(|folder| {
        let folder = folder.get_or_init(|| {
            let folder = Scratch::new();
            for (number, tensor) in [(1, "a"), (2, "b")] {
                let header = format!(r#"{{"{tensor}":{{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}}}"#);
                let mut shard = (header.len() as u64).to_le_bytes().to_vec();
                shard.extend_from_slice(header.as_bytes());
                shard.extend_from_slice(&[0; 8]);
                folder.write(&format!("{STEM}-0000{number}-of-00002.safetensors"), &shard);
            }
            folder
        });
        folder.write(&format!("{STEM}.safetensors.index.json"), bytes);
        read(folder);
    });
}

/// Opens weights and reads every tensor as itself.
fn read(folder: &Scratch) {
    let Ok(weights) = Weights::open(folder.path(), STEM, &Variant::Plain) else { return };
    let _ = (weights.parameter_count(), weights.byte_count(), format!("{weights:?}"));
    let tensors: Vec<_> = weights.tensors().map(|tensor| (tensor.name().to_owned(), tensor)).collect();
    for (name, tensor) in tensors {
        let _ = (tensor.dtype(), tensor.bytes());
        if tensor.elements() > ELEMENTS {
            continue;
        }
        for dtype in [DType::F32, DType::F16] {
            let _ = weights.tensor(&name, &TensorType::new(dtype, tensor.shape()));
        }
    }
}
