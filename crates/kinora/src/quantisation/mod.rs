//! Products in 8 bits: `--precision fp8`.
//!
//! Everything is as in f16, but products of the denoising network whose activations were measured are done in e4m3. How large
//! activations are is measured on the model itself: the first clip takes longer, for its denoising steps run in f16 first. It is
//! kept beside the model as `fp8.json`; that of a model that is a part of the program is kept in memory.

mod calibrating;
mod file;
mod quantising;

use std::{collections::BTreeMap, io, path::PathBuf};

use kinora_graph::calibration::Largest;

pub(crate) use calibrating::Calibrating;
pub(crate) use quantising::{Quantising, quantised_products};

/// What was measured, by the name of the network.
pub(crate) type Networks = BTreeMap<String, Largest>;

/// Why products in 8 bits are not possible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuantisationError {
    /// The device has no instructions for them.
    #[error(
        "{device} cannot multiply in fp8, which takes a GPU of the Ada generation or later: ask for f16, or for the CPU"
    )]
    Device {
        /// The device in words.
        device: String,
    },
    /// Everything would be done in f16.
    #[error(
        "nothing of this clip would be multiplied in fp8: it is too small, or the model's fp8.json names none of its products; ask \
         for f16, or remove that file to have the model measured again"
    )]
    Nothing,
    /// The file beside the model.
    #[error("{}: {why}; remove it to have the model measured again", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The file beside the model cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}
