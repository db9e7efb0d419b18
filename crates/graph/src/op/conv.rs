//! Convolution.

use serde::{Deserialize, Serialize};

use super::{Norm, OpError, Stage, Statistics, TensorType, check};
use crate::{DType, shape::saturating_product};

/// A convolution over frames, height and width, channels last.
///
/// A 2-D convolution has a frame window of 1; a temporal one has a spatial window of 1×1. Arrays are
/// `[frames, height, width]`.
///
/// Operands: `x [batch·frames, H, W, I]`, `weight [O, KT, KH, KW, I / groups]`, `scale f32 [O]` if
/// [`quantised`](Conv::quantised), `bias [O]` if [`bias`](Conv::bias) is set, those of the prologue norm, those of the epilogue. Result: `[batch·frames', H', W', O]`,
/// and its [`statistics`](Conv::statistics) if they are asked for.
///
/// # Sub-pixel convolutions
/// With [`subpixel`](Conv::subpixel), every window gives a square of 2×2 pixels of the result, `[batch·frames, 2·H, 2·W, O]`. The weight
/// is `[4·O, 1, 2, 2, I]`: filters of the four pixels, that of row `y` and column `x` in block `2·x + y`. The window of that pixel
/// lies `y` rows lower and `x` columns further right than that of the first, which begins one pixel before its own place:
///
/// ```text
/// result[2·i + y, 2·j + x, o] = Σ over a, b in 0..2, c of  x[i + y + a − 1, j + x + b − 1, c] · weight[(2·x + y)·O + o, 0, a, b, c]
/// ```
///
/// A 3×3 convolution of an image whose pixels were doubled is one: see [`UpsampleFolding`](crate::passes::UpsampleFolding).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conv {
    /// The window.
    pub kernel: [usize; 3],
    /// Steps between windows.
    pub stride: [usize; 3],
    /// Zeros before and after each axis.
    pub padding: [[usize; 2]; 3],
    /// Steps between the taps of a window.
    pub dilation: [usize; 3],
    /// Independent slices of the channels.
    pub groups: usize,
    /// Frames of a clip. 1 for a 2-D convolution, which treats the images independently.
    pub frames: usize,
    /// Whether every window gives a square of 2×2 pixels.
    #[serde(default)]
    pub subpixel: bool,
    /// Whether the operands are e4m3, and the type of the result if they are: sums are multiplied by `scale` before anything
    /// else. Such a convolution has no prologue.
    #[serde(default)]
    pub quantised: Option<DType>,
    /// Whether a bias operand follows.
    #[serde(default)]
    pub bias: bool,
    /// A normalisation of the input, fused in.
    #[serde(default)]
    pub prologue: Option<Norm>,
    /// What happens to the result before it is stored.
    #[serde(default)]
    pub epilogue: Vec<Stage>,
    /// Makes the [`Statistics`] of the result, of its elements as they are stored, a second result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistics: Option<Statistics>,
}

impl Conv {
    /// A 2-D convolution with the same stride and padding on both axes.
    pub fn spatial(kernel: [usize; 2], stride: usize, padding: usize) -> Self {
        Conv {
            kernel: [1, kernel[0], kernel[1]],
            stride: [1, stride, stride],
            padding: [[0, 0], [padding, padding], [padding, padding]],
            dilation: [1; 3],
            groups: 1,
            frames: 1,
            subpixel: false,
            quantised: None,
            bias: false,
            prologue: None,
            epilogue: Vec::new(),
            statistics: None,
        }
    }

    /// A convolution over the frames of a clip alone, stride 1, padded to keep the frame count.
    pub fn temporal(kernel: usize, frames: usize) -> Self {
        let pad = kernel.saturating_sub(1);
        Conv {
            kernel: [kernel, 1, 1],
            stride: [1; 3],
            padding: [[pad / 2, pad - pad / 2], [0, 0], [0, 0]],
            frames,
            ..Conv::spatial([1, 1], 1, 0)
        }
    }

    /// A sub-pixel convolution.
    pub fn subpixel() -> Self {
        Conv { subpixel: true, ..Conv::spatial([2, 2], 1, 1) }
    }

    /// How many blocks of filters the weight has: one for each pixel that a window gives.
    pub fn pixels(&self) -> usize {
        if self.subpixel { 4 } else { 1 }
    }

    /// Whether each output position depends on its own input position alone: a matrix product.
    pub fn is_pointwise(&self) -> bool {
        self.kernel == [1; 3] && self.stride == [1; 3] && self.padding == [[0; 2]; 3] && self.groups == 1
    }

    /// The operands by role.
    pub fn operands<'a, T>(&self, inputs: &'a [T]) -> LinearOperands<'a, T> {
        LinearOperands::split(inputs, self.quantised, self.bias, self.prologue.as_ref())
    }

    /// The number of the epilogue's first operand.
    pub fn first_of_epilogue(&self) -> usize {
        operands_before_epilogue(self.quantised, self.bias, self.prologue.as_ref())
    }

    pub(crate) fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        LinearOperands::<TensorType>::check_count(inputs, self.first_of_epilogue(), &self.epilogue)?;
        let args = self.operands(inputs);
        let (x, weight) = (*args.x, *args.weight);
        check::operands_of_product(x, weight, self.quantised, self.prologue.as_ref())?;
        check::rank("x", x, 4, "4 (images, height, width, channels)")?;
        check::rank("weight", weight, 5, "5 (out, frames, height, width, in / groups)")?;
        let [images, height, width, channels] = [x.shape[0], x.shape[1], x.shape[2], x.shape[3]];
        if self.subpixel {
            self.check_subpixel()?;
            check::multiple("filters", weight.shape[0], self.pixels())?;
        }
        let out = weight.shape[0] / self.pixels();
        check::at_least_one("groups", self.groups)?;
        let expected = weight.shape[4].checked_mul(self.groups).ok_or_else(|| {
            OpError::Attribute(format!("{} groups of {} channels are too many", self.groups, weight.shape[4]))
        })?;
        if channels != expected {
            return Err(OpError::InputChannels { expected, got: channels });
        }
        check::groups(channels, self.groups)?;
        check::multiple("output channels", out, self.groups)?;
        check::shape(
            "weight",
            weight,
            &[weight.shape[0], self.kernel[0], self.kernel[1], self.kernel[2], channels / self.groups],
        )?;
        check::clips(x, self.frames)?;
        let axis = |i: usize, axis, extent| {
            let [kernel, stride, dilation] = [self.kernel[i], self.stride[i], self.dilation[i]];
            check::Window { axis, extent, kernel, stride, padding: self.padding[i], dilation }.extents()
        };
        let [padded_frames, frames] = axis(0, "frame", self.frames)?;
        let [padded_height, height] = axis(1, "height", height)?;
        let [padded_width, width] = axis(2, "width", width)?;
        let clips = images / self.frames;
        let [padded_images, images] = [padded_frames, frames].map(|frames| clips.checked_mul(frames));
        let too_many =
            || OpError::Attribute(format!("{clips} clips of {padded_frames} padded frames are too many"));
        // Without images, one clip counts.
        let padded_images = padded_images.ok_or_else(too_many)?.max(padded_frames);
        check::padded(x, [padded_images, padded_height, padded_width, channels])?;
        // With one pixel of padding on each side there is one window more than there are pixels, but each pixel of a square has
        // as many windows as these.
        let [height, width] = if self.subpixel { doubled([height - 1, width - 1])? } else { [height, width] };
        let dtype = self.quantised.unwrap_or(x.dtype);
        let output = TensorType::new(dtype, [images.ok_or_else(too_many)?, height, width, out]);
        args.check(self.prologue.as_ref(), &self.epilogue, out, &output)?;
        with_statistics(output, self.statistics)
    }

    /// Whether the other attributes are those of a sub-pixel convolution.
    fn check_subpixel(&self) -> Result<(), OpError> {
        let Conv { kernel, stride, padding, dilation, groups, .. } = Conv::subpixel();
        let own = (self.kernel, self.stride, self.padding, self.dilation, self.groups);
        match own == (kernel, stride, padding, dilation, groups) {
            true => Ok(()),
            false => Err(OpError::Attribute(
                "a sub-pixel convolution has windows of 2×2, a padding of 1, no steps and one group"
                    .to_owned(),
            )),
        }
    }

    pub(crate) fn flops(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> u64 {
        let taps = saturating_product(&inputs[1].shape[1..]) as u64;
        (outputs[0].elements() as u64).saturating_mul(taps).saturating_mul(2)
    }
}

/// The extents of an image whose every pixel became a square of 2×2.
fn doubled([height, width]: [usize; 2]) -> Result<[usize; 2], OpError> {
    match [height.checked_mul(2), width.checked_mul(2)] {
        [Some(height), Some(width)] => Ok([height, width]),
        _ => Err(OpError::Attribute(format!("an image of {height}×{width} is too large to double"))),
    }
}

/// The results of a convolution or a linear op.
pub(super) fn with_statistics(
    output: TensorType,
    statistics: Option<Statistics>,
) -> Result<Vec<TensorType>, OpError> {
    let measured = statistics.map(|statistics| statistics.of(&output)).transpose()?;
    Ok([output].into_iter().chain(measured).collect())
}

/// How many operands a convolution or a linear op has before those of its epilogue.
pub(super) fn operands_before_epilogue(
    quantised: Option<DType>,
    bias: bool,
    prologue: Option<&Norm>,
) -> usize {
    let norm = prologue.map_or(0, |norm| norm.affine.operands());
    2 + usize::from(quantised.is_some()) + usize::from(bias) + norm
}

/// The operands of a convolution or a linear op, by role.
#[derive(Clone, Copy, Debug)]
pub struct LinearOperands<'a, T> {
    /// The activation.
    pub x: &'a T,
    /// The weight.
    pub weight: &'a T,
    /// What the sums of a quantised product are multiplied by.
    pub scale: Option<&'a T>,
    /// The bias.
    pub bias: Option<&'a T>,
    /// The learned operands of the prologue norm.
    pub prologue: &'a [T],
    /// The operands of the epilogue's stages, in order.
    pub epilogue: &'a [T],
}

impl<'a, T> LinearOperands<'a, T> {
    /// Splits inputs whose count has been checked, as those of every node in a graph have.
    pub(crate) fn split(
        inputs: &'a [T],
        quantised: Option<DType>,
        bias: bool,
        prologue: Option<&Norm>,
    ) -> Self {
        let taken = |given: bool, inputs: &'a [T]| match inputs.split_first() {
            Some((first, rest)) if given => (Some(first), rest),
            _ => (None, inputs),
        };
        let (scale, rest) = taken(quantised.is_some(), &inputs[2..]);
        let (bias, rest) = taken(bias, rest);
        let (prologue, epilogue) = rest.split_at(prologue.map_or(0, |n| n.affine.operands()));
        LinearOperands { x: &inputs[0], weight: &inputs[1], scale, bias, prologue, epilogue }
    }

    pub(crate) fn check_count(
        inputs: &[&TensorType],
        before_epilogue: usize,
        epilogue: &[Stage],
    ) -> Result<(), OpError> {
        check::count(inputs, before_epilogue + Stage::operand_count(epilogue))
    }
}

impl LinearOperands<'_, &TensorType> {
    /// Checks everything but `x` and the weight. `out` is the rows of the weight.
    pub(crate) fn check(
        &self,
        prologue: Option<&Norm>,
        epilogue: &[Stage],
        out: usize,
        output: &TensorType,
    ) -> Result<(), OpError> {
        if let Some(scale) = self.scale {
            check::dtype("scale", scale, DType::F32, "f32")?;
            check::shape("scale", scale, &[out])?;
        }
        if let Some(bias) = self.bias {
            check::float("bias", bias)?;
            check::shape("bias", bias, &[out])?;
        }
        if let Some(norm) = prologue {
            if norm.quantise.is_some() {
                return Err(OpError::Attribute("a prologue does not give e4m3".to_owned()));
            }
            if norm.measured {
                return Err(OpError::Attribute("a prologue takes no statistics".to_owned()));
            }
            norm.check(self.x, self.prologue)?;
        }
        Stage::check_all(epilogue, self.epilogue, output)
    }
}
