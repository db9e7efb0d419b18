//! The forms of convolution done this way, and their transformed weights.

use std::ops::Range;

use half::f16;
use kinora_graph::{DType, TensorType, op::Conv};
use rayon::prelude::*;

use crate::gemm::{Values, aligned::AlignedBuffer};
use crate::simd::{Float, Isa, Simd, convert};

/// With fewer output channels than this, transforming the input would cost as much as it saves.
const FEWEST_OUTPUTS: usize = 32;

/// With fewer input channels than this, by form, the products are too short. Eight, those of a UNet's first convolution,
/// still gain a little.
const FEWEST_INPUTS: [usize; 2] = [8, 32];

/// With more channels than this, outputs times inputs, f16 kernels are not transformed. To the 2.8 GB of Stable Video
/// Diffusion's UNet the transformed ones add some 20 MB.
const LARGEST_F16: usize = 512 * 512;

/// Channels that are transformed together: their lines are 32 KiB at most.
const CHANNEL_STEP: usize = 16;

/// The most planes of a form.
const MOST_PLANES: usize = 16;

/// What the windows of a convolution reach over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// 3×3 pixels of an image: F(2×2, 3×3).
    Square,
    /// A pixel in three frames: F(2, 3).
    Frames,
}

impl Form {
    /// The form that can do a convolution faster, if any.
    ///
    /// 3×3 windows gain 1.3 times at 32 channels and up to twice from 128 on. The size of the images, unknown when
    /// weights are loaded, is not considered: if there are only a few tiles in all (one image of 4×4 pixels with 1280
    /// channels), reading the larger weights takes up to 1.4 times as long as the direct product.
    ///
    /// A clip of one output frame leaves half of each tile unused, 4 multiplications instead of the direct product's 3.
    ///
    /// f16 is for those who lack memory: the widest convolutions, which are most of a large network's weights, stay with the
    /// direct product, which reads them as they are. Weights in bfloat16 all do: transformed, they would need more digits than they have, and
    /// instruction sets that multiply them in pairs are faster there.
    pub(crate) fn of(op: &Conv, weight: &TensorType) -> Option<Form> {
        let suits = match weight.dtype {
            DType::F32 => true,
            DType::F16 => weight.shape[0].saturating_mul(weight.shape[4]) <= LARGEST_F16,
            _ => false,
        };
        let general = op.stride == [1; 3] && op.groups == 1 && suits && weight.shape[0] >= FEWEST_OUTPUTS;
        let square = op.kernel == Form::Square.kernel()
            && weight.shape[4] >= FEWEST_INPUTS[0]
            && op.dilation[1..] == [1; 2]
            && op.padding[0] == [0; 2];
        let frames = op.kernel == Form::Frames.kernel()
            && weight.shape[4] >= FEWEST_INPUTS[1]
            && op.dilation[0] == 1
            && op.padding[1..] == [[0; 2]; 2]
            && op.frames + op.padding[0][0] + op.padding[0][1] >= 4;
        match (general, square, frames) {
            (true, true, _) => Some(Form::Square),
            (true, _, true) => Some(Form::Frames),
            _ => None,
        }
    }

    /// Taps over frames, rows and columns.
    pub(super) fn kernel(self) -> [usize; 3] {
        match self {
            Form::Square => [1, 3, 3],
            Form::Frames => [3, 1, 1],
        }
    }

    /// Taps of a kernel.
    fn taps(self) -> usize {
        self.kernel().iter().product()
    }

    /// Values of a transformed kernel.
    fn planes(self) -> usize {
        match self {
            Form::Square => 16,
            Form::Frames => 4,
        }
    }

    /// One channel of a kernel `[taps, channels]` transformed: its planes come first.
    fn transform<E: Float>(self, kernel: &[E], channel: usize, channels: usize) -> [f64; MOST_PLANES] {
        let tap = |index: usize| f64::from(kernel[index * channels + channel].to_f32());
        let mut values = [0.0; MOST_PLANES];
        match self {
            Form::Square => {
                let [left, middle, right] =
                    [0, 1, 2].map(|x| kernel_transform([tap(x), tap(3 + x), tap(6 + x)]));
                for (y, row) in values.chunks_exact_mut(4).enumerate() {
                    row.copy_from_slice(&kernel_transform([left[y], middle[y], right[y]]));
                }
            }
            Form::Frames => values[..4].copy_from_slice(&kernel_transform([tap(0), tap(1), tap(2)])),
        }
        values
    }
}

/// The kernels of a convolution as `G g Gᵀ`, or `G g` along frames, in panels of `2·LANES` columns:
/// `[panel][planes][channels][2·LANES]`, padded with zero columns. They have the kernels' type, and take 16/9 or 4/3 of their
/// memory.
#[derive(Debug)]
pub(crate) struct WinogradWeights {
    values: Stored,
    /// What the sums are multiplied by in the end, because the weights were divided by it.
    factor: f32,
    isa: Isa,
    form: Form,
    columns: usize,
    channels: usize,
}

/// Transformed kernels in their storage type.
#[derive(Debug)]
enum Stored {
    F32(AlignedBuffer<f32>),
    F16(AlignedBuffer<f16>),
}

/// The largest f16 value whose transform, a weighted sum with weights of 9/4 together, is a finite one.
const LARGEST_VALUE: f32 = 65504.0 / 2.25;

/// The power of two by which transformed kernels are divided, so that the largest is just below f16's largest number: small ones
/// then keep their digits, too. 1 if no value is, or one is not finite.
fn factor(largest: f32) -> f32 {
    if largest > 0.0 && largest.is_finite() { (largest / LARGEST_VALUE).log2().ceil().exp2() } else { 1.0 }
}

impl WinogradWeights {
    /// Transforms kernels `[columns, taps, channels]`, in f64; `None` if they are of a type that no form is for.
    ///
    /// # Panics
    /// If `kernels` is not of that size.
    pub(crate) fn new(
        isa: Isa,
        form: Form,
        kernels: Values,
        columns: usize,
        channels: usize,
    ) -> Option<Self> {
        let taps = form.taps();
        assert_eq!(kernels.len(), columns * taps * channels, "kernels [{columns}, {taps}, {channels}]");
        let transform = Transform { isa, form, columns, channels };
        let (values, factor) = match kernels {
            Values::F32(kernels) => (Stored::F32(transform.run(kernels, 1.0)), 1.0),
            Values::F16(kernels) => {
                let largest = kernels.iter().fold(0.0f32, |largest, value| largest.max(value.to_f32().abs()));
                let factor = factor(largest);
                (Stored::F16(transform.run(kernels, 1.0 / f64::from(factor))), factor)
            }
            Values::BF16(_) => return None,
        };
        Some(WinogradWeights { values, factor, isa, form, columns, channels })
    }

    /// The memory that the transformed kernels take, known before they are made.
    pub(crate) fn bytes_of(isa: Isa, form: Form, dtype: DType, columns: usize, channels: usize) -> usize {
        let padded = columns.next_multiple_of(2 * isa.lanes());
        padded.saturating_mul(form.planes()).saturating_mul(channels).saturating_mul(dtype.size())
    }

    /// The memory that the transformed kernels take.
    pub(crate) fn bytes(&self) -> usize {
        match &self.values {
            Stored::F32(values) => values.bytes(),
            Stored::F16(values) => values.bytes(),
        }
    }

    /// What the sums are multiplied by in the end.
    pub(super) fn factor(&self) -> f32 {
        self.factor
    }

    /// The instruction set this was packed for.
    pub(super) fn isa(&self) -> Isa {
        self.isa
    }

    /// What the windows reach over.
    pub(super) fn form(&self) -> Form {
        self.form
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

    /// The lines of some channels of one plane of a panel; `room` is for as many, if they are not stored as f32.
    #[inline(always)]
    pub(super) fn lines<'a, S: Simd>(
        &'a self,
        simd: S,
        panel: usize,
        plane: usize,
        channels: Range<usize>,
        room: &'a mut [f32],
    ) -> &'a [f32] {
        let width = 2 * self.isa.lanes();
        let start = ((panel * self.form.planes() + plane) * self.channels + channels.start) * width;
        let count = channels.len() * width;
        match &self.values {
            Stored::F32(values) => &values.as_slice()[start..start + count],
            Stored::F16(values) => {
                let (values, room) = (&values.as_slice()[start..start + count], &mut room[..count]);
                // SAFETY: both slices are that long, and a mutable one overlaps no other.
                unsafe { convert(simd, values.as_ptr(), room.as_mut_ptr(), count) };
                room
            }
        }
    }
}

/// One transform: the shape of both sides.
struct Transform {
    isa: Isa,
    form: Form,
    columns: usize,
    channels: usize,
}

impl Transform {
    /// The transformed kernels, times `factor`.
    fn run<E: Float>(&self, kernels: &[E], factor: f64) -> AlignedBuffer<E> {
        let &Transform { isa, form, columns, channels } = self;
        let (taps, planes, width) = (form.taps(), form.planes(), 2 * isa.lanes());
        let size = planes * channels * width;
        let mut values = AlignedBuffer::new();
        values.reserve(columns.div_ceil(width) * size);
        if size > 0 {
            let panels = &mut values.as_mut_slice()[..columns.div_ceil(width) * size];
            panels.par_chunks_mut(size).enumerate().for_each(|(index, panel)| {
                let first = index * width;
                if columns - first < width {
                    panel.fill(E::default());
                }
                // A few channels at a time for all columns, so that their lines are filled while they are in L1.
                for start in (0..channels).step_by(CHANNEL_STEP) {
                    for column in first..columns.min(first + width) {
                        let kernel = &kernels[column * taps * channels..][..taps * channels];
                        for channel in start..channels.min(start + CHANNEL_STEP) {
                            let values = form.transform(kernel, channel, channels);
                            for (plane, value) in values[..planes].iter().enumerate() {
                                let place = (plane * channels + channel) * width + column - first;
                                panel[place] = E::from_f32((value * factor) as f32);
                            }
                        }
                    }
                }
            });
        }
        values
    }
}

/// `G` times a column of three taps, and by symmetry a row times `Gᵀ`.
fn kernel_transform([a, b, c]: [f64; 3]) -> [f64; 4] {
    let (sum, middle) = (0.5 * (a + c), 0.5 * b);
    [a, sum + middle, sum - middle, c]
}
