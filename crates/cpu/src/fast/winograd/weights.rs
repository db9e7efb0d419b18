//! The transformed weights of a 3×3 convolution.

use std::ops::Range;

use kinora_graph::{DType, TensorType, op::Conv};
use rayon::prelude::*;

use super::transform::PLANES;
use crate::gemm::aligned::{self, AlignedBuffer};
use crate::simd::Isa;

/// Fewer input or output channels than this are multiplied directly: the transforms would cost what they save.
const FEWEST_CHANNELS: usize = 32;

/// Channels that are transformed together: their lines are 16 or 32 KiB.
const CHANNEL_STEP: usize = 16;

/// The kernels of a convolution as `G g Gᵀ`, in panels of `2·LANES` columns: `[panel][16][channels][2·LANES]`, padded with
/// zero columns. They take 16/9 of the kernels' memory.
#[derive(Debug)]
pub(crate) struct WinogradWeights {
    values: AlignedBuffer<f32>,
    isa: Isa,
    columns: usize,
    channels: usize,
}

impl WinogradWeights {
    /// Whether a convolution can be done this way and gains by it.
    ///
    /// It gains 1.3 times at 32 channels and up to twice from 128 on. The size of the images, unknown when weights are
    /// loaded, has no say: where they are only a few tiles in all (one image of 4×4 pixels with 1280 channels), reading
    /// the larger weights takes up to 1.4 times as long as the direct product does.
    ///
    /// Half-precision weights stay with the direct product, which reads them as they are: here they would be 32/9 as
    /// large.
    pub(crate) fn suits(op: &Conv, weight: &TensorType) -> bool {
        op.kernel == [1, 3, 3]
            && op.stride == [1; 3]
            && op.dilation[1..] == [1; 2]
            && op.padding[0] == [0; 2]
            && op.groups == 1
            && weight.dtype == DType::F32
            && weight.shape[0].min(weight.shape[4]) >= FEWEST_CHANNELS
    }

    /// Transforms kernels `[columns, 3, 3, channels]`, in f64.
    ///
    /// # Panics
    /// Where `kernels` is not of that size.
    pub(crate) fn new(isa: Isa, kernels: &[f32], columns: usize, channels: usize) -> Self {
        assert_eq!(kernels.len(), columns * 9 * channels, "kernels [{columns}, 3, 3, {channels}]");
        let width = 2 * isa.lanes();
        let size = PLANES * channels * width;
        let mut values = AlignedBuffer::new();
        values.reserve(columns.div_ceil(width) * size);
        if size > 0 {
            let panels = &mut values.as_mut_slice()[..columns.div_ceil(width) * size];
            panels.par_chunks_mut(size).enumerate().for_each(|(index, panel)| {
                let first = index * width;
                if columns - first < width {
                    panel.fill(0.0);
                }
                // A few channels at a time for all columns, so that their lines are filled while they are in L1.
                for start in (0..channels).step_by(CHANNEL_STEP) {
                    for column in first..columns.min(first + width) {
                        let kernel = &kernels[column * 9 * channels..][..9 * channels];
                        for channel in start..channels.min(start + CHANNEL_STEP) {
                            for (plane, value) in
                                transformed(kernel, channel, channels).into_iter().enumerate()
                            {
                                panel[(plane * channels + channel) * width + column - first] = value as f32;
                            }
                        }
                    }
                }
            });
        }
        WinogradWeights { values, isa, columns, channels }
    }

    /// The memory that the transformed kernels take, known before they are made.
    pub(crate) fn bytes_of(isa: Isa, columns: usize, channels: usize) -> usize {
        let padded = columns.next_multiple_of(2 * isa.lanes());
        aligned::bytes_of(size_of::<f32>(), padded.saturating_mul(PLANES).saturating_mul(channels))
    }

    /// The memory that the transformed kernels take.
    pub(crate) fn bytes(&self) -> usize {
        self.values.bytes()
    }

    /// The instruction set this was packed for.
    pub(super) fn isa(&self) -> Isa {
        self.isa
    }

    /// Output channels.
    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// Input channels.
    pub(super) fn channels(&self) -> usize {
        self.channels
    }

    /// The number of panels.
    pub(super) fn panels(&self) -> usize {
        self.columns.div_ceil(2 * self.isa.lanes())
    }

    /// The lines of some channels of one plane of a panel.
    #[inline(always)]
    pub(super) fn lines(&self, panel: usize, plane: usize, channels: Range<usize>) -> &[f32] {
        let width = 2 * self.isa.lanes();
        let start = (panel * PLANES + plane) * self.channels + channels.start;
        &self.values.as_slice()[start * width..][..channels.len() * width]
    }
}

/// `G` times a column of three taps, and by symmetry a row times `Gᵀ`.
fn kernel_transform([a, b, c]: [f64; 3]) -> [f64; 4] {
    let (sum, middle) = (0.5 * (a + c), 0.5 * b);
    [a, sum + middle, sum - middle, c]
}

/// `G g Gᵀ` of one channel of a kernel `[3, 3, channels]`, by rows.
fn transformed(kernel: &[f32], channel: usize, channels: usize) -> [f64; PLANES] {
    let tap = |y: usize, x: usize| f64::from(kernel[(3 * y + x) * channels + channel]);
    let [left, middle, right] = [0, 1, 2].map(|x| kernel_transform([tap(0, x), tap(1, x), tap(2, x)]));
    let mut values = [0.0; PLANES];
    for (y, row) in values.chunks_exact_mut(4).enumerate() {
        row.copy_from_slice(&kernel_transform([left[y], middle[y], right[y]]));
    }
    values
}
