//! Elements as another type.

use kinora_graph::DType;

use super::{NAMES, THREADS};
use crate::{
    Chip, CudaError,
    kernels::{
        Call, Implementation, Kernel, Launch, Places, Source,
        geometry::{WIDEST_ACCESS, unroll},
        names::type_name,
    },
    launch::{
        arguments,
        limits::{grid, long},
    },
};

const SOURCE: Source = Source { path: "pointwise/cast.cu", text: include_str!("cast.cu") };

/// A cast of every element.
#[derive(Debug)]
pub(super) struct Cast {
    from: DType,
    to: DType,
    count: usize,
    /// One element a thread.
    plain: bool,
    multiprocessors: u32,
}

impl Cast {
    pub(super) fn new(call: &Call<'_>, chip: &Chip, plain: bool) -> Cast {
        let (x, result) = (call.inputs[0], call.outputs[0]);
        let multiprocessors = chip.multiprocessors;
        Cast { from: x.dtype, to: result.dtype, count: x.elements(), plain, multiprocessors }
    }
}

// SAFETY: the arguments are those of `cast`; operand and result have `count` elements of these types.
unsafe impl Implementation for Cast {
    fn name(&self) -> String {
        NAMES[usize::from(!self.plain)].to_owned()
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let narrowest = self.from.size().min(self.to.size());
        let width = if self.plain { 1 } else { (WIDEST_ACCESS / narrowest).min(8) };
        let vectors = self.count.div_ceil(width);
        let unroll = if self.plain { 1 } else { unroll(vectors, THREADS, self.multiprocessors, 4) };
        let mut kernel = Kernel::new(SOURCE, "cast")
            .with("TYPE", type_name(self.from))
            .with("RESULT", type_name(self.to))
            .with("VECTOR", width)
            .with("UNROLL", unroll);
        kernel.hot = true;
        let arguments = arguments![places.outputs[0], places.inputs[0], long(self.count)];
        let blocks = grid(vectors.div_ceil(THREADS * unroll))?;
        Ok(vec![Launch::new(kernel, blocks, THREADS as u32, arguments)])
    }
}
