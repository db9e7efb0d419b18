//! Convolution.

use kinora_graph::{Tensor, TensorType, op::Conv};

use super::{elements, epilogue, norm::normalise, rounded};

/// A convolution with its prologue and epilogue.
pub(super) fn conv(op: &Conv, inputs: &[&Tensor], result: &TensorType) -> Tensor {
    let args = op.operands(inputs);
    // The padding below stands around the normalised input: it is zero after the norm.
    let x = match &op.prologue {
        Some(norm) => normalise(norm, args.x, args.prologue, None),
        None => elements(args.x),
    };
    let weight = elements(args.weight);
    let scale = args.scale.map(|scale| elements(scale));
    let bias = args.bias.map(|bias| elements(bias));

    let [height, width, channels] = [args.x.shape()[1], args.x.shape()[2], args.x.shape()[3]];
    let [kernel_frames, kernel_height, kernel_width] = op.kernel;
    let [out_height, out_width, out_channels] = [result.shape[1], result.shape[2], result.shape[3]];
    let clips = args.x.shape()[0] / op.frames;
    let out_frames = result.shape[0].checked_div(clips).unwrap_or(0);
    let group_inputs = channels / op.groups;
    let group_outputs = out_channels / op.groups;

    let mut y = Vec::with_capacity(result.elements());
    for clip in 0..clips {
        for out_t in 0..out_frames {
            for out_y in 0..out_height {
                for out_x in 0..out_width {
                    for out in 0..out_channels {
                        let mut sum = 0.0;
                        // Which window it is, and with which filter.
                        let ([window_y, window_x], filter) = match op.subpixel {
                            false => ([out_y, out_x], out),
                            true => {
                                let [y, x] = [out_y % 2, out_x % 2];
                                ([out_y / 2 + y, out_x / 2 + x], (2 * x + y) * out_channels + out)
                            }
                        };
                        for tap_t in 0..kernel_frames {
                            let Some(t) = source(op, 0, out_t, tap_t, op.frames) else { continue };
                            for tap_y in 0..kernel_height {
                                let Some(row) = source(op, 1, window_y, tap_y, height) else { continue };
                                for tap_x in 0..kernel_width {
                                    let Some(column) = source(op, 2, window_x, tap_x, width) else {
                                        continue;
                                    };
                                    let pixel = ((clip * op.frames + t) * height + row) * width + column;
                                    let first = pixel * channels + out / group_outputs * group_inputs;
                                    let tap = ((filter * kernel_frames + tap_t) * kernel_height + tap_y)
                                        * kernel_width
                                        + tap_x;
                                    for i in 0..group_inputs {
                                        sum += x[first + i] * weight[tap * group_inputs + i];
                                    }
                                }
                            }
                        }
                        let scaled = sum * scale.as_ref().map_or(1.0, |scale| scale[out]);
                        y.push(scaled + bias.as_ref().map_or(0.0, |bias| bias[out]));
                    }
                }
            }
        }
    }
    epilogue::apply(&op.epilogue, args.epilogue, &result.shape, &mut y);
    rounded(result, &y)
}

/// The input coordinate that a tap of a window reads, or `None` in the padding.
fn source(op: &Conv, axis: usize, window: usize, tap: usize, extent: usize) -> Option<usize> {
    let padded = window * op.stride[axis] + tap * op.dilation[axis];
    padded.checked_sub(op.padding[axis][0]).filter(|&coordinate| coordinate < extent)
}

#[cfg(test)]
mod tests {
    use kinora_graph::{
        DType, Op,
        op::{Activation, Affine, Norm, NormKind, Stage},
    };

    use super::{super::testing::*, *};

    /// A window along the width alone.
    fn along_width(kernel: usize) -> Conv {
        Conv::spatial([1, kernel], 1, 0)
    }

    #[test]
    fn a_window_of_ones_sums_its_neighbours() {
        let x = counting(&[1, 3, 3, 1]);
        let ones = floats(&[1, 1, 3, 3, 1], &[1.0; 9]);
        let y = values(Op::Conv(Conv::spatial([3, 3], 1, 1)), &[&x, &ones]);
        assert_eq!(y, [12.0, 21.0, 16.0, 27.0, 45.0, 33.0, 24.0, 39.0, 28.0]);
        // A stride of 2 keeps the corners.
        let y = values(Op::Conv(Conv::spatial([3, 3], 2, 1)), &[&x, &ones]);
        assert_eq!(y, [12.0, 16.0, 24.0, 28.0]);
    }

    #[test]
    fn it_correlates_and_does_not_flip() {
        let x = floats(&[1, 2, 2, 1], &[1.0, 2.0, 3.0, 4.0]);
        let weight = floats(&[1, 1, 2, 2, 1], &[1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(values(Op::Conv(Conv::spatial([2, 2], 1, 0)), &[&x, &weight]), [4321.0]);
    }

    #[test]
    fn channels_are_mixed_and_the_bias_added() {
        let x = floats(&[1, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let weight = floats(&[3, 1, 1, 1, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
        let bias = floats(&[3], &[0.5, 0.25, -1.0]);
        let op = Conv { bias: true, ..Conv::spatial([1, 1], 1, 0) };
        assert_eq!(values(Op::Conv(op), &[&x, &weight, &bias]), [1.5, 2.25, 2.0, 3.5, 4.25, 6.0]);
    }

    #[test]
    fn padding_may_differ_on_the_two_sides() {
        let x = floats(&[1, 1, 3, 1], &[1.0, 2.0, 3.0]);
        let weight = floats(&[1, 1, 1, 2, 1], &[1.0, 10.0]);
        let padded = |width| Conv { padding: [[0, 0], [0, 0], width], ..along_width(2) };
        assert_eq!(values(Op::Conv(padded([0, 1])), &[&x, &weight]), [21.0, 32.0, 3.0]);
        assert_eq!(values(Op::Conv(padded([1, 0])), &[&x, &weight]), [10.0, 21.0, 32.0]);
        // More padding than window: some windows see nothing.
        assert_eq!(values(Op::Conv(padded([3, 0])), &[&x, &weight]), [0.0, 0.0, 10.0, 21.0, 32.0]);
    }

    #[test]
    fn a_subpixel_convolution_gives_four_pixels_a_window() {
        let x = floats(&[1, 1, 2, 1], &[1.0, 2.0]);
        // Upper left, lower left, upper right, lower right: each with taps in the four corners of its window.
        let taps = [1.0, 10.0, 100.0, 1000.0];
        let weight: Vec<f32> = [1.0, 2.0, 3.0, 4.0].iter().flat_map(|by| taps.map(|tap| tap * by)).collect();
        let weight = floats(&[4, 1, 2, 2, 1], &weight);
        let y = values(Op::Conv(Conv::subpixel()), &[&x, &weight]);
        // Windows of the upper pixels end in the only line, those of the lower ones begin there.
        let upper =
            [1.0 * 1000.0, 3.0 * (1.0 * 100.0 + 2.0 * 1000.0), 1.0 * 100.0 + 2.0 * 1000.0, 3.0 * 2.0 * 100.0];
        let lower = [2.0 * 10.0, 4.0 * (1.0 + 2.0 * 10.0), 2.0 * (1.0 + 2.0 * 10.0), 4.0 * 2.0];
        assert_eq!(y, [upper, lower].concat());
    }

    #[test]
    fn dilation_spreads_the_taps() {
        let x = counting(&[1, 1, 5, 1]);
        let weight = floats(&[1, 1, 1, 2, 1], &[1.0, 10.0]);
        let op = Conv { dilation: [1, 1, 2], ..along_width(2) };
        assert_eq!(values(Op::Conv(op), &[&x, &weight]), [31.0, 42.0, 53.0]);
    }

    #[test]
    fn groups_do_not_mix() {
        let x = floats(&[1, 1, 1, 4], &[1.0, 2.0, 3.0, 4.0]);
        let weight = floats(&[2, 1, 1, 1, 2], &[1.0, 10.0, 100.0, 1000.0]);
        let op = Conv { groups: 2, ..along_width(1) };
        assert_eq!(values(Op::Conv(op), &[&x, &weight]), [21.0, 4300.0]);
        // Depthwise, two outputs a channel.
        let x = floats(&[1, 1, 1, 2], &[1.0, 2.0]);
        let weight = floats(&[4, 1, 1, 1, 1], &[1.0, 2.0, 3.0, 4.0]);
        let op = Conv { groups: 2, ..along_width(1) };
        assert_eq!(values(Op::Conv(op), &[&x, &weight]), [1.0, 2.0, 6.0, 8.0]);
    }

    #[test]
    fn frames_do_not_leak_between_clips() {
        // Two clips of two frames; previous, own and next frame weigh 100, 10 and 1.
        let x = counting(&[4, 1, 1, 1]);
        let weight = floats(&[1, 3, 1, 1, 1], &[100.0, 10.0, 1.0]);
        assert_eq!(values(Op::Conv(Conv::temporal(3, 2)), &[&x, &weight]), [12.0, 120.0, 34.0, 340.0]);
        // A clip of one frame sees itself alone.
        assert_eq!(values(Op::Conv(Conv::temporal(3, 1)), &[&x, &weight]), [10.0, 20.0, 30.0, 40.0]);
    }

    #[test]
    fn a_temporal_window_may_shorten_a_clip() {
        // Two clips of three frames of two pixels each; differences of neighbouring frames.
        let x = counting(&[6, 1, 2, 1]);
        let weight = floats(&[1, 2, 1, 1, 1], &[-1.0, 2.0]);
        let op = Conv { padding: [[0; 2]; 3], ..Conv::temporal(2, 3) };
        let y = run_one(Op::Conv(op), &[&x, &weight]);
        assert_eq!(y.shape()[..], [4, 1, 2, 1]);
        assert_eq!(y.to_f32(), [5.0, 6.0, 7.0, 8.0, 11.0, 12.0, 13.0, 14.0]);
    }

    #[test]
    fn three_dimensions_at_once() {
        // The squares of 1..8 sum to 204.
        let x = counting(&[2, 2, 2, 1]);
        let weight = counting(&[1, 2, 2, 2, 1]);
        let op = Conv { kernel: [2, 2, 2], frames: 2, ..Conv::spatial([2, 2], 1, 0) };
        assert_eq!(values(Op::Conv(op), &[&x, &weight]), [204.0]);
    }

    #[test]
    fn padding_is_zero_after_the_prologue() {
        // The norm of a single channel is 0, so that the shift is all that is left of it.
        let norm = Norm {
            kind: NormKind::Layer,
            epsilon: 1e-5,
            affine: Affine::ScaleShift,
            activation: None,
            quantise: None,
            measured: false,
        };
        let x = counting(&[1, 1, 3, 1]);
        let (weight, one) = (floats(&[1, 1, 1, 3, 1], &[1.0; 3]), floats(&[1], &[1.0]));
        let padded = Conv { padding: [[0, 0], [0, 0], [1, 1]], ..along_width(3) };
        let op = Conv { prologue: Some(norm), ..padded.clone() };
        let y = values(Op::Conv(op), &[&x, &weight, &one, &floats(&[1], &[5.0])]);
        assert_eq!(y, [10.0, 15.0, 10.0]);
        // The activation follows the norm.
        let relu = Norm { activation: Some(Activation::Relu), ..norm };
        let op = Conv { prologue: Some(relu), ..padded };
        let y = values(Op::Conv(op), &[&x, &weight, &one, &floats(&[1], &[-5.0])]);
        assert_eq!(y, [0.0; 3]);
    }

    #[test]
    fn the_prologue_is_not_rounded() {
        // The norm of 1, 2, 3 ends in √1.5 = 1.2247449, which is 1254/1024 as f16: rounded there, the result were 0.
        let norm = Norm {
            kind: NormKind::Layer,
            epsilon: 1e-9,
            affine: Affine::None,
            activation: None,
            quantise: None,
            measured: false,
        };
        let x = counting(&[1, 1, 1, 3]).cast(DType::F16);
        let weight = floats(&[1, 1, 1, 1, 3], &[0.0, 0.0, 1024.0]);
        let offset = floats(&[1, 1, 1, 1], &[-1254.0]);
        let op = Conv { prologue: Some(norm), epilogue: vec![Stage::Add], ..along_width(1) };
        let y = run_one(Op::Conv(op), &[&x, &weight, &offset]);
        assert_eq!(y.dtype(), DType::F16);
        assert!((y.to_f32()[0] - 0.138_748).abs() < 1e-4);
    }

    #[test]
    fn empty_batches_and_empty_channels() {
        let weight = floats(&[2, 1, 3, 3, 1], &[1.0; 18]);
        let y = run_one(Op::Conv(Conv::spatial([3, 3], 1, 1)), &[&floats(&[0, 4, 4, 1], &[]), &weight]);
        assert_eq!(y.shape()[..], [0, 4, 4, 2]);
        let op = Conv { bias: true, ..along_width(1) };
        let empty = [&floats(&[1, 1, 2, 0], &[]), &floats(&[1, 1, 1, 1, 0], &[]), &floats(&[1], &[3.0])];
        assert_eq!(values(Op::Conv(op), &empty), [3.0, 3.0]);
    }
}
