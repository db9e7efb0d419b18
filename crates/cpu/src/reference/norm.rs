//! Normalisations.

use kinora_graph::{
    Shape, Tensor, TensorType,
    op::{BatchNorm, Norm, NormKind, Statistics},
};

use super::{activation::activate, elements, rounded};

/// A normalisation and its activation, not rounded: a prologue passes it on unrounded. Its
/// statistics may be given.
pub(super) fn normalise(norm: &Norm, x: &Tensor, affine: &[&Tensor], given: Option<&Tensor>) -> Vec<f64> {
    let mut y = elements(x);
    if y.is_empty() {
        return y;
    }
    let channels = x.shape().channels();
    let scale = affine.first().map(|scale| elements(scale));
    let shift = affine.get(1).map(|shift| elements(shift));

    let (means, variances) = match given {
        None => statistics(norm.kind, x.shape(), &y),
        Some(given) => elements(given).chunks_exact(2).map(|pair| (pair[0], pair[1])).unzip(),
    };
    for (i, value) in y.iter_mut().enumerate() {
        let set = set_of(norm.kind, x.shape(), i);
        let channel = i % channels;
        *value = (*value - means[set]) / (variances[set] + f64::from(norm.epsilon)).sqrt();
        if let Some(scale) = &scale {
            *value *= scale[channel];
        }
        if let Some(shift) = &shift {
            *value += shift[channel];
        }
        if let Some(activation) = norm.activation {
            *value = activate(activation, *value);
        }
    }
    y
}

/// A normalisation, in e4m3 if it is quantised.
pub(super) fn norm(op: &Norm, inputs: &[&Tensor], result: &TensorType) -> Tensor {
    let (learned, given) = op.operands(inputs);
    let mut y = normalise(op, inputs[0], learned, given.copied());
    if let Some(factor) = op.quantise {
        y.iter_mut().for_each(|value| *value *= f64::from(factor));
    }
    rounded(result, &y)
}

/// The mean and the variance of each set of elements.
fn statistics(kind: NormKind, shape: &Shape, x: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let sets = set_count(kind, shape);
    let members = (x.len() / sets.max(1)) as f64;
    let mut means = vec![0.0; sets];
    if kind != NormKind::Rms {
        for (i, value) in x.iter().enumerate() {
            means[set_of(kind, shape, i)] += value / members;
        }
    }
    // About a mean of zero this is the mean square.
    let mut variances = vec![0.0; sets];
    for (i, value) in x.iter().enumerate() {
        let set = set_of(kind, shape, i);
        variances[set] += (value - means[set]).powi(2) / members;
    }
    (means, variances)
}

/// What a product tells the group norm after it. The statistics of nothing are zeros.
pub(super) fn measure(op: Statistics, x: &Tensor, result: &TensorType) -> Tensor {
    let kind = NormKind::Group { groups: op.groups, frames: op.frames };
    let (means, variances) = statistics(kind, x.shape(), &elements(x));
    let pairs: Vec<f64> =
        means.into_iter().zip(variances).flat_map(|(mean, variance)| [mean, variance]).collect();
    rounded(result, &pairs)
}

/// How many sets of elements there are that share statistics.
fn set_count(kind: NormKind, shape: &Shape) -> usize {
    match kind {
        NormKind::Group { groups, frames } => shape[0] / frames * groups,
        NormKind::Layer | NormKind::Rms => shape.rows(),
    }
}

/// The set that an element belongs to.
fn set_of(kind: NormKind, shape: &Shape, index: usize) -> usize {
    let channels = shape.channels();
    match kind {
        NormKind::Group { groups, frames } => {
            let image = index / (shape.elements() / shape[0]);
            let group = index % channels / (channels / groups);
            image / frames * groups + group
        }
        NormKind::Layer | NormKind::Rms => index / channels,
    }
}

/// A batch norm with its running statistics.
pub(super) fn batch_norm(op: BatchNorm, inputs: &[&Tensor], result: &TensorType) -> Tensor {
    let [mean, variance, scale, shift] = [1, 2, 3, 4].map(|i| elements(inputs[i]));
    let mut y = elements(inputs[0]);
    for (i, value) in y.iter_mut().enumerate() {
        let c = i % result.shape.channels();
        let deviation = (variance[c] + f64::from(op.epsilon)).sqrt();
        *value = (*value - mean[c]) / deviation * scale[c] + shift[c];
    }
    rounded(result, &y)
}

#[cfg(test)]
mod tests {
    use kinora_graph::{
        DType, Op,
        op::{Activation, Affine, Linear, Stage},
    };

    use super::{
        super::{run, testing::*},
        *,
    };

    fn plain(kind: NormKind) -> Norm {
        Norm { kind, epsilon: 1e-12, affine: Affine::None, activation: None, quantise: None, measured: false }
    }

    #[test]
    fn layer_norm_of_each_row() {
        // 1, 2, 3: mean 2, variance 2/3, so ∓√1.5 about 0. A constant row gives zeros.
        let x = floats(&[2, 3], &[1.0, 2.0, 3.0, 7.0, 7.0, 7.0]);
        let y = values(Op::Norm(plain(NormKind::Layer)), &[&x]);
        assert_close(&y, &[-1.224744871, 0.0, 1.224744871, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn epsilon_is_added_to_the_variance() {
        // Variance 1 plus 3: the root is 2.
        let norm = Norm { epsilon: 3.0, ..plain(NormKind::Layer) };
        assert_eq!(values(Op::Norm(norm), &[&floats(&[2], &[1.0, 3.0])]), [-0.5, 0.5]);
        // Mean square 5 plus 4: the root is 3.
        let norm = Norm { epsilon: 4.0, ..plain(NormKind::Rms) };
        assert_close(&values(Op::Norm(norm), &[&floats(&[2], &[1.0, 3.0])]), &[1.0 / 3.0, 1.0]);
    }

    #[test]
    fn rms_norm_subtracts_nothing() {
        // The mean square of 3, 4 is 12.5.
        let y = values(Op::Norm(plain(NormKind::Rms)), &[&floats(&[1, 2], &[3.0, 4.0])]);
        assert_close(&y, &[0.848528137, 1.131370850]);
    }

    #[test]
    fn the_affine_part_and_the_activation_follow() {
        // −1, 1 times 2, 3 plus 0.5, −1: −1.5, 2.
        let x = floats(&[1, 2], &[1.0, 3.0]);
        let (scale, shift) = (floats(&[2], &[2.0, 3.0]), floats(&[2], &[0.5, -1.0]));
        let norm = Norm { affine: Affine::ScaleShift, ..plain(NormKind::Layer) };
        assert_close(&values(Op::Norm(norm), &[&x, &scale, &shift]), &[-1.5, 2.0]);
        let relu = Norm { activation: Some(Activation::Relu), ..norm };
        assert_close(&values(Op::Norm(relu), &[&x, &scale, &shift]), &[0.0, 2.0]);
        let norm = Norm { affine: Affine::Scale, ..plain(NormKind::Layer) };
        assert_close(&values(Op::Norm(norm), &[&x, &scale]), &[-2.0, 3.0]);
    }

    #[test]
    fn group_norm_shares_statistics_over_positions_and_neighbouring_channels() {
        // Two pixels of four channels in two groups. Group one holds 0, 2, 4, 6: mean 3, variance 5.
        // Group two holds 10, 10, 10, 10.
        let x = floats(&[1, 1, 2, 4], &[0.0, 2.0, 10.0, 10.0, 4.0, 6.0, 10.0, 10.0]);
        let y = values(Op::Norm(plain(NormKind::Group { groups: 2, frames: 1 })), &[&x]);
        let root = 5f64.sqrt();
        assert_close(&y, &[-3.0 / root, -1.0 / root, 0.0, 0.0, 1.0 / root, 3.0 / root, 0.0, 0.0]);
    }

    #[test]
    fn group_norm_keeps_images_apart_unless_they_are_frames_of_a_clip() {
        // Four images of one pixel and one channel: two clips of two frames, 1 and 3, 10 and 30.
        let x = floats(&[4, 1, 1, 1], &[1.0, 3.0, 10.0, 30.0]);
        let norm = |frames| Op::Norm(plain(NormKind::Group { groups: 1, frames }));
        assert_close(&values(norm(1), &[&x]), &[0.0; 4]);
        assert_close(&values(norm(2), &[&x]), &[-1.0, 1.0, -1.0, 1.0]);
        // All four share a mean of 11 and a variance of 131.5.
        let root = 131.5f64.sqrt();
        let expected = [-10.0, -8.0, -1.0, 19.0].map(|d| d / root);
        assert_close(&values(norm(4), &[&x]), &expected);
    }

    #[test]
    fn group_norm_of_an_image_without_positions_of_its_own() {
        // [images, channels], as PyTorch takes it: groups of one row.
        let x = floats(&[2, 4], &[1.0, 3.0, 5.0, 5.0, 2.0, 2.0, 0.0, 8.0]);
        let y = values(Op::Norm(plain(NormKind::Group { groups: 2, frames: 1 })), &[&x]);
        assert_close(&y, &[-1.0, 1.0, 0.0, 0.0, 0.0, 0.0, -1.0, 1.0]);
    }

    #[test]
    fn a_product_tells_the_mean_and_the_variance_of_each_group() {
        // Two clips of two frames of a pixel of two channels, each a group: rows times a weight that swaps them.
        let x = floats(&[4, 1, 2], &[1.0, 10.0, 3.0, 30.0, 5.0, -2.0, 5.0, 2.0]);
        let weight = floats(&[2, 2], &[0.0, 1.0, 1.0, 0.0]);
        let statistics = Some(Statistics { groups: 2, frames: 2 });
        let op = Op::Linear(Linear { statistics, ..Linear::default() });
        let results = run("layer", &op, &[&x, &weight]).unwrap();
        assert_eq!(results[1].shape()[..], [2, 2, 2]);
        assert_eq!(results[1].to_f32(), [20.0, 100.0, 2.0, 1.0, 0.0, 4.0, 5.0, 0.0]);
        // Of what is stored: 2049 is 2048 in f16.
        let [x, weight] = [floats(&[1, 1, 1], &[2049.0]), floats(&[1, 1], &[1.0])];
        let [x, weight] = [x.cast(DType::F16), weight.cast(DType::F16)];
        let double = Linear {
            epilogue: vec![Stage::Scale(1.000_488_3)],
            statistics: Some(Statistics { groups: 1, frames: 1 }),
            ..Linear::default()
        };
        let results = run("layer", &Op::Linear(double), &[&x, &weight]).unwrap();
        assert_eq!((results[0].to_f32()[0], results[1].to_f32()), (2048.0, vec![2048.0, 0.0]));
    }

    #[test]
    fn given_statistics_are_used_as_they_are() {
        // One image of two pixels of two channels: (x − 1) / √(3 + 1) and (x − 2) / √(8 + 1).
        let x = floats(&[1, 2, 2], &[3.0, 5.0, 1.0, -1.0]);
        let given = floats(&[1, 2, 2], &[1.0, 3.0, 2.0, 8.0]);
        let kind = NormKind::Group { groups: 2, frames: 1 };
        let norm = Norm { measured: true, epsilon: 1.0, ..plain(kind) };
        assert_eq!(values(Op::Norm(norm), &[&x, &given]), [1.0, 1.0, 0.0, -1.0]);
    }

    #[test]
    fn a_large_mean_does_not_eat_the_variance() {
        let x = floats(&[1, 2], &[10_000.0, 10_001.0]);
        assert_close(&values(Op::Norm(plain(NormKind::Layer)), &[&x]), &[-1.0, 1.0]);
    }

    #[test]
    fn empty_and_half_precision_operands() {
        let y = run_one(Op::Norm(plain(NormKind::Layer)), &[&floats(&[3, 0], &[])]);
        assert_eq!(y.shape()[..], [3, 0]);
        let x = floats(&[1, 2], &[1.0, 3.0]).cast(DType::F16);
        let y = run_one(Op::Norm(plain(NormKind::Layer)), &[&x]);
        assert_eq!((y.dtype(), y.to_f32()), (DType::F16, vec![-1.0, 1.0]));
    }

    #[test]
    fn batch_norm_is_an_affine_map_of_each_channel() {
        // (x − 1) / √(3 + 1) · 4 + 0.5 and (x − 2) / √(8 + 1) · 3 − 1.
        let x = floats(&[2, 2], &[1.0, 2.0, 3.0, 5.0]);
        let operands = [[1.0, 2.0], [3.0, 8.0], [4.0, 3.0], [0.5, -1.0]].map(|row| floats(&[2], &row));
        let inputs = [&x, &operands[0], &operands[1], &operands[2], &operands[3]];
        assert_eq!(values(Op::BatchNorm(BatchNorm { epsilon: 1.0 }), &inputs), [0.5, -1.0, 4.5, 2.0]);
    }
}
