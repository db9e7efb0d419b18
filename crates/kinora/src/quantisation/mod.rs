//! Products in 8 bits: `--precision fp8`.
//!
//! Everything is as in f16, but products of the denoising network whose activations were measured are done in e4m3. How large
//! activations are is measured on the model itself. The first clip takes longer, for its denoising steps run in f16 first; before the
//! first frame of live video its UNet denoises a few pictures of its own. What was measured is kept beside the model as `fp8.json`;
//! that of a model that is a part of the program is kept in memory.
//!
//! The numbers are known by the weights' names. So they hold for every size, number of steps, prompt and strength, and for weights
//! that a LoRA has changed, since only activations are measured: a weight is quantised when it is loaded or merged. The factors leave
//! room for activations two to four times as large as those that were measured; what is larger still becomes the largest number of
//! e4m3.

mod calibrating;
mod file;
mod quantising;

use std::{collections::BTreeMap, io, path::PathBuf, sync::Arc};

use kinora_graph::{
    Graph, GraphError,
    calibration::{self, Largest, Measurement},
};
use kinora_models::networks::frame::UNET;
use kinora_runtime::Backend;

use crate::image_to_video::Precision;
pub(crate) use calibrating::Calibrating;
pub(crate) use quantising::Quantising;

/// What was measured, by the name of the network.
pub(crate) type Networks = BTreeMap<String, Largest>;

/// The denoising network in a graph: the products that are done in 8 bits are its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Denoiser {
    /// Its name in `fp8.json`.
    pub name: &'static str,
    /// What the names of its weights begin with, if the graph has other networks as well.
    part: Option<&'static str>,
}

impl Denoiser {
    /// That of a graph; `None` if it has none.
    pub fn of(graph: &Graph) -> Option<Denoiser> {
        match graph.name() {
            "denoise" => Some(Denoiser { name: "denoise", part: None }),
            // Of live video: from bytes to bytes, a stream batch as well.
            "frame" | "stream" => Some(Denoiser { name: "frame", part: Some(UNET) }),
            _ => None,
        }
    }

    /// Whether a weight is one of its own.
    pub fn has(self, weight: &str) -> bool {
        let of = |part| weight.split_once('.').is_some_and(|(network, _)| network == part);
        self.part.is_none_or(of)
    }

    /// The graph with results that tell how large its activations are.
    pub fn measured(self, graph: &Graph) -> Result<(Graph, Vec<Measurement>), GraphError> {
        calibration::measured(graph, |weight| self.has(weight))
    }
}

/// A graph as it is planned in a precision. In fp8 it multiplies in 8 bits what it would if it were measured: a [`Quantising`] backend
/// then puts in what was.
pub(crate) fn by_shape(precision: Precision, graph: Graph) -> Graph {
    let Some(denoiser) = Denoiser::of(&graph).filter(|_| precision == Precision::Fp8) else { return graph };
    let largest = calibration::assumed(&graph, |weight| denoiser.has(weight));
    graph.calibrated(Arc::new(largest))
}

/// Refuses a device that cannot multiply in 8 bits.
pub(crate) fn check_device(backend: &dyn Backend) -> Result<(), QuantisationError> {
    match backend.multiplies_e4m3() {
        true => Ok(()),
        false => Err(QuantisationError::Device { device: backend.describe() }),
    }
}

/// Refuses a network that does nothing in 8 bits, after all passes.
pub(crate) fn check_products(graph: &Graph) -> Result<(), QuantisationError> {
    if graph.quantised_products() == 0 { Err(QuantisationError::Nothing) } else { Ok(()) }
}

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
        "nothing would be multiplied in fp8: the picture is too small, or the model's fp8.json names none of its products; ask for \
         f16, or remove that file to have the model measured again"
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
