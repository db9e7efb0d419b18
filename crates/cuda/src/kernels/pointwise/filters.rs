//! Filters in e4m3.

use kinora_graph::{DType, op::Quantise};

use super::{NAMES, THREADS};
use crate::{
    CudaError,
    kernels::{
        Call, Implementation, Kernel, Launch, Places, Source,
        geometry::{WIDEST_ACCESS, vector},
        names::type_name,
    },
    launch::{
        arguments,
        limits::{grid, long},
    },
};

const SOURCE: Source = Source { path: "pointwise/filters.cu", text: include_str!("filters.cu") };

/// A block for each scale. It runs when a clip begins, for weights that change then; others are brought to e4m3 by the host.
#[derive(Debug)]
pub(super) struct Filters {
    dtype: DType,
    number: usize,
    blocks: usize,
    length: usize,
    activation: f32,
}

impl Filters {
    pub(super) fn new(call: &Call<'_>, blocks: usize, activation: f32) -> Filters {
        let (x, scales) = (call.inputs[0], call.outputs[1]);
        let length = x.shape[1..].iter().product();
        Filters { dtype: x.dtype, number: scales.elements(), blocks, length, activation }
    }
}

// SAFETY: the arguments are those of `quantise_filters`; weight and result have `blocks · number` filters of this length, and
// there are `number` scales.
unsafe impl Implementation for Filters {
    fn name(&self) -> String {
        NAMES[0].to_owned()
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let kernel = Kernel::new(SOURCE, "quantise_filters")
            .with("TYPE", type_name(self.dtype))
            .with("VECTOR", vector(self.length, WIDEST_ACCESS / self.dtype.size()));
        let arguments = arguments![
            places.outputs[0],
            places.outputs[1],
            places.inputs[0],
            long(self.number),
            long(self.blocks),
            long(self.length),
            Quantise::SMALLEST,
            self.activation,
        ];
        Ok(vec![Launch::new(kernel, grid(self.number)?, THREADS as u32, arguments)])
    }
}
