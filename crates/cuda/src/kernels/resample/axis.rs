//! One pass of a separable filter over bytes.

use kinora_graph::op::Resample;

use super::{THREADS, name};
use crate::{
    CudaError,
    kernels::{Call, Implementation, Kernel, Launch, Places, Source, geometry::vector},
    launch::{
        arguments, c_struct,
        limits::{self, grid, long},
    },
};

const SOURCE: Source = Source { path: "resample/axis.cu", text: include_str!("axis.cu") };

/// The most bytes of a thread: more would leave a chip idle, since frames are small.
const WIDEST: usize = 4;

c_struct! {
    /// The extents of an axis and of what lies in it.
    struct Extents {
        from: i64,
        to: i64,
        columns: i64,
        taps: i64,
        blocks: i64,
    }
}

/// A thread for some neighbouring bytes of a position of the result.
#[derive(Debug)]
pub(super) struct Axis {
    /// Positions of the axis, in operand and result.
    from: usize,
    to: usize,
    taps: usize,
    /// How often the axis is there: the axes outside it.
    slabs: usize,
    /// Bytes of a position: the axes inside it.
    bytes: usize,
    /// One byte a thread.
    plain: bool,
}

impl Axis {
    /// `None` if these are not its operands.
    pub(super) fn new(call: &Call<'_>, op: Resample, plain: bool) -> Option<Self> {
        let &[x, first, weights] = call.inputs else { return None };
        let inside = x.shape.get(op.axis + 1..)?;
        Some(Axis {
            from: x.shape[op.axis],
            to: *first.shape.first()?,
            taps: *weights.shape.get(1)?,
            slabs: x.shape[..op.axis].iter().product(),
            bytes: inside.iter().product(),
            plain,
        })
    }

    /// How many bytes a thread has. The three of a pixel have the same weights, so a thread has all of them.
    fn width(&self) -> usize {
        match vector(self.bytes, WIDEST) {
            _ if self.plain => 1,
            1 if self.bytes.is_multiple_of(3) => 3,
            width => width,
        }
    }
}

// SAFETY: the arguments are those of `resample_axis`, with the extents of operands and result; it reads no neighbour outside
// the axis, whatever the tables hold.
unsafe impl Implementation for Axis {
    fn name(&self) -> String {
        name(self.plain)
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let width = self.width();
        let columns = self.bytes / width;
        let vectors = self.to.saturating_mul(columns);
        // The kernel counts the vectors of a slab, and a block further, in 32 bits.
        if !limits::is_counted_in_i32(vectors) {
            return Err(CudaError::TooLarge(format!("{} positions of {} bytes", self.to, self.bytes)));
        }
        let blocks = vectors.div_ceil(THREADS);
        let grid = grid(self.slabs.saturating_mul(blocks))?;
        let mut kernel = Kernel::new(SOURCE, "resample_axis").with("VECTOR", width);
        kernel.hot = true;
        let extents = Extents {
            from: long(self.from),
            to: long(self.to),
            columns: long(columns),
            taps: long(self.taps),
            blocks: long(blocks),
        };
        let [x, first, weights] = [0, 1, 2].map(|operand| places.inputs[operand]);
        let arguments = arguments![places.outputs[0], x, first, weights, extents];
        Ok(vec![Launch::new(kernel, grid, THREADS as u32, arguments)])
    }
}

#[cfg(test)]
mod tests {
    use kinora_graph::{DType, Op, TensorType};

    use super::*;
    use crate::kernels::testing;

    #[test]
    fn a_thread_has_a_pixel_or_a_word() {
        let x = TensorType::new(DType::U8, [1, 307, 512, 3]);
        let tables = |to: usize| [&[to][..], &[to, 7]].map(|shape| TensorType::new(DType::I32, shape));
        let check = |axis: usize, to: usize, width: &str, grid: u32, words: [u64; 5]| {
            let [first, weights] = tables(to);
            let op = Op::Resample(Resample { axis });
            let offer = super::super::FAMILY.offer;
            let launches = testing::launches(offer, &op, &[&x, &first, &weights]).unwrap();
            assert_eq!(launches[0].grid, [grid, 1, 1]);
            assert!(launches[0].kernel.constants.contains(&("VECTOR", width.to_owned())));
            assert_eq!(testing::struct_words(&launches[0], "Extents"), words);
        };
        // Every row of 640 pixels in three blocks, and the words of the picture in a row.
        check(2, 640, "3", 307 * 3, [512, 640, 1, 7, 3]);
        check(1, 384, "4", 576, [307, 384, 384, 7, 576]);
    }
}
