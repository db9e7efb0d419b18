//! A row of frames with synthetic weights: each from the host's bytes to the host's bytes, as a stream of live video draws it.

use std::time::Instant;

use kinora_graph::{Graph, Tensor};
use kinora_runtime::{Backend, Carried, Network as Loaded, Tensors};

use super::{
    networks::load,
    turns::{Layer, samples},
};
use crate::{BenchError, cases::in_windows};

/// What a frame hands on to the next, and the input that takes it.
const HANDED_ON: (&str, &str) = ("latents", "previous");
const FRAME: &str = "frame";

/// A network that is loaded, and the picture that it is given again and again.
pub struct StreamLayer {
    network: Box<dyn Loaded>,
    /// What the first frame takes from one before it.
    first: Tensors,
    picture: Vec<u8>,
    inputs: Tensors,
    results: Tensors,
}

impl StreamLayer {
    /// Plans and loads the network of a frame.
    ///
    /// # Errors
    /// If it does not fit into memory, or does not run.
    pub fn new(
        graph: &Graph,
        clip: &Tensors,
        mut step: Tensors,
        backend: &dyn Backend,
    ) -> Result<StreamLayer, BenchError> {
        let first = step.remove_entry(HANDED_ON.1).into_iter().collect();
        let picture = step.get(FRAME).ok_or(BenchError::Nothing("frame"))?.bytes().to_vec();
        let network = load(graph, clip, backend)?;
        let mut layer = StreamLayer { network, first, picture, inputs: step, results: Tensors::new() };
        layer.begin()?;
        Ok(layer)
    }

    fn begin(&mut self) -> Result<(), BenchError> {
        Ok(self.network.begin_frames(Carried(&[HANDED_ON]), &self.first)?)
    }

    /// The bytes of the next frame.
    fn frame(&mut self) -> Result<Vec<u8>, BenchError> {
        if let Some(tensor) = self.inputs.get_mut(FRAME) {
            tensor.bytes_mut().copy_from_slice(&self.picture);
        }
        self.network.run_frame(&self.inputs, &mut self.results)?;
        Ok(self.results.get(FRAME).map(Tensor::bytes).ok_or(BenchError::Nothing("frame"))?.to_vec())
    }
}

impl Layer for StreamLayer {
    /// The first frame of a row.
    fn result(&mut self) -> Result<Vec<f32>, BenchError> {
        self.begin()?;
        let bytes: Vec<f32> = self.frame()?.into_iter().map(f32::from).collect();
        Ok(in_windows(&bytes))
    }

    fn time(&mut self, seconds: f64, least: usize) -> Result<Vec<f64>, BenchError> {
        samples(seconds, least, || {
            let start = Instant::now();
            self.frame()?;
            Ok(start.elapsed().as_secs_f64())
        })
    }
}
