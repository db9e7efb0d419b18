//! Plans of networks in 8 bits that were not measured.

use std::sync::Arc;

use kinora_graph::{DType, Graph, calibration};
use kinora_profile::Ceilings;
use kinora_runtime::{Backend, PlannedNetwork, RunError};

use super::{Denoiser, QuantisationError, check_device};
use crate::image_to_video::Precision;

/// A graph that multiplies in 8 bits what it would if it were measured.
pub(crate) fn by_shape(graph: Graph) -> Graph {
    let Some(denoiser) = Denoiser::of(&graph) else { return graph };
    let largest = calibration::assumed(&graph, |weight| denoiser.has(weight));
    graph.calibrated(Arc::new(largest))
}

/// Another backend, for plans in a precision. Those of fp8 are by shape: nothing needs to be measured.
#[derive(Debug)]
pub(crate) struct ByShape<'a> {
    inner: &'a dyn Backend,
    precision: Precision,
}

impl<'a> ByShape<'a> {
    /// # Errors
    /// If the device cannot multiply in 8 bits.
    pub fn new(inner: &'a dyn Backend, precision: Precision) -> Result<ByShape<'a>, QuantisationError> {
        if precision == Precision::Fp8 {
            check_device(inner)?;
        }
        Ok(ByShape { inner, precision })
    }
}

impl Backend for ByShape<'_> {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn default_dtype(&self) -> DType {
        self.inner.default_dtype()
    }

    fn multiplies_e4m3(&self) -> bool {
        self.inner.multiplies_e4m3()
    }

    fn ceilings(&self, dtype: DType) -> Result<Option<Ceilings>, RunError> {
        self.inner.ceilings(dtype)
    }

    fn free_memory(&self) -> Result<Option<usize>, RunError> {
        self.inner.free_memory()
    }

    fn plan(&self, graph: &Graph, budget: Option<usize>) -> Result<Box<dyn PlannedNetwork>, RunError> {
        match self.precision {
            Precision::Fp8 => self.inner.plan(&by_shape(graph.clone()), budget),
            _ => self.inner.plan(graph, budget),
        }
    }
}
