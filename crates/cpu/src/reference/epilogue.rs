//! What happens to the result of a convolution or a matrix product before it is stored.

use kinora_graph::{Shape, Tensor, op::Stage};

use super::{activation::activate, elements};

/// Runs the stages, in order, over the unrounded result of a given shape.
pub(super) fn apply(stages: &[Stage], operands: &[&Tensor], shape: &Shape, accumulators: &mut [f64]) {
    for (stage, own) in Stage::split(stages, operands) {
        let operand = own.first().map(|tensor| elements(tensor)).unwrap_or_default();
        let alpha = own.get(1).map(|tensor| elements(tensor)).unwrap_or_default();
        for (i, accumulator) in accumulators.iter_mut().enumerate() {
            *accumulator = match stage {
                Stage::Activate(activation) => activate(activation, *accumulator),
                Stage::Scale(factor) => *accumulator * f64::from(factor),
                Stage::AddChannels => *accumulator + operand[channel_index(shape, operand.len(), i)],
                Stage::Add => *accumulator + operand[i],
                Stage::Mul => *accumulator * operand[i],
                Stage::Blend { accumulator_first } => {
                    let alpha = alpha[0];
                    let (first, second) = if accumulator_first {
                        (*accumulator, operand[i])
                    } else {
                        (operand[i], *accumulator)
                    };
                    alpha * first + (1.0 - alpha) * second
                }
            };
        }
    }
}

/// The index, in a channel operand of `length` elements (one vector per image or one for all), of the value for element
/// `index` of the result.
fn channel_index(shape: &Shape, length: usize, index: usize) -> usize {
    let channels = shape.channels();
    let channel = index % channels;
    if length == channels {
        return channel;
    }
    let image = index / (shape.elements() / shape[0]);
    image * channels + channel
}

#[cfg(test)]
mod tests {
    use kinora_graph::{
        Op,
        op::{Activation, Conv, Linear},
    };

    use super::{super::testing::*, *};

    /// An epilogue over a product by 1, which leaves `x [2, 1, 2, 2]` as it is.
    fn run_stages(stages: &[Stage], operands: &[&Tensor]) -> Vec<f32> {
        let x = counting(&[2, 1, 2, 2]);
        let identity = floats(&[2, 1, 1, 1, 2], &[1.0, 0.0, 0.0, 1.0]);
        let inputs: Vec<&Tensor> = [&x, &identity].into_iter().chain(operands.iter().copied()).collect();
        let conv = Conv { epilogue: stages.to_vec(), ..Conv::spatial([1, 1], 1, 0) };
        values(Op::Conv(conv), &inputs)
    }

    #[test]
    fn stages_run_in_order() {
        let add = floats(&[2, 1, 2, 2], &[-5.0; 8]);
        let y = run_stages(&[Stage::Add, Stage::Scale(2.0), Stage::Activate(Activation::Relu)], &[&add]);
        assert_eq!(y, [0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 4.0, 6.0]);
        let y = run_stages(&[Stage::Activate(Activation::Relu), Stage::Scale(2.0), Stage::Add], &[&add]);
        assert_eq!(y, [-3.0, -1.0, 1.0, 3.0, 5.0, 7.0, 9.0, 11.0]);
    }

    #[test]
    fn stages_take_their_own_operands() {
        let two = floats(&[2, 1, 2, 2], &[2.0; 8]);
        let ramp = counting(&[2, 1, 2, 2]);
        let y = run_stages(&[Stage::Mul, Stage::Add], &[&two, &ramp]);
        assert_eq!(y, [3.0, 6.0, 9.0, 12.0, 15.0, 18.0, 21.0, 24.0]);
    }

    #[test]
    fn channel_operands_serve_an_image_or_all() {
        let each = floats(&[2, 1, 1, 2], &[10.0, 20.0, 30.0, 40.0]);
        let y = run_stages(&[Stage::AddChannels], &[&each]);
        assert_eq!(y, [11.0, 22.0, 13.0, 24.0, 35.0, 46.0, 37.0, 48.0]);
        for all in [floats(&[2], &[10.0, 20.0]), floats(&[1, 1, 1, 2], &[10.0, 20.0])] {
            let y = run_stages(&[Stage::AddChannels], &[&all]);
            assert_eq!(y, [11.0, 22.0, 13.0, 24.0, 15.0, 26.0, 17.0, 28.0]);
        }
    }

    #[test]
    fn a_blend_weights_its_first_side_by_alpha() {
        let other = floats(&[2, 1, 2, 2], &[0.0; 8]);
        let alpha = floats(&[1], &[0.25]);
        let y = run_stages(&[Stage::Blend { accumulator_first: true }], &[&other, &alpha]);
        assert_eq!(y, [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0]);
        let y = run_stages(&[Stage::Blend { accumulator_first: false }], &[&other, &alpha]);
        assert_eq!(y, [0.75, 1.5, 2.25, 3.0, 3.75, 4.5, 5.25, 6.0]);
    }

    #[test]
    fn the_bias_comes_before_every_stage() {
        let op = Linear { bias: true, epilogue: vec![Stage::Scale(10.0)], ..Linear::default() };
        let y =
            values(Op::Linear(op), &[&floats(&[1], &[2.0]), &floats(&[1, 1], &[3.0]), &floats(&[1], &[1.0])]);
        assert_eq!(y, [70.0]);
    }
}
