//! The table of ops and shapes.

use kinora_graph::{
    DType, Op, Tensor,
    op::{
        Activation, Affine, BatchNorm, Concat, Gate, Interpolation, Mean, Norm, NormKind, Pool, PoolKind,
        Resample, SamplerStep, Scale, Slice, TemporalBlend, TimestepEmbedding, Upsample,
    },
};

use crate::testing::Random;

type Case = (Op, Vec<Tensor>);

/// Shapes of images: one element, odd sizes, channels short of, equal to and beyond a vector, an empty batch, several
/// tasks, and channels beyond a block.
const IMAGES: [[usize; 4]; 8] = [
    [1, 1, 1, 1],
    [2, 3, 5, 7],
    [1, 4, 4, 8],
    [3, 5, 1, 20],
    [0, 4, 4, 8],
    [4, 1, 3, 34],
    [2, 17, 19, 96],
    [2, 2, 3, 1100],
];

pub(super) fn max_pool(kernel: usize, stride: usize, padding: usize) -> Op {
    pool(PoolKind::Max, kernel, stride, padding)
}

fn pool(kind: PoolKind, kernel: usize, stride: usize, padding: usize) -> Op {
    Op::Pool(Pool { kind, kernel: [kernel; 2], stride: [stride; 2], padding: [padding, padding.min(1)] })
}

/// Every op over its shapes, with fresh numbers.
pub(super) fn cases(random: &mut Random, dtype: DType) -> Vec<Case> {
    let mut cases = Vec::new();
    for shape in IMAGES {
        norms(random, dtype, shape, &mut cases);
        pointwise(random, dtype, shape, &mut cases);
        moves(random, dtype, shape, &mut cases);
        samplers(random, dtype, shape, &mut cases);
    }
    broadcasts(random, dtype, &mut cases);
    means(random, dtype, &mut cases);
    embeddings(random, dtype, &mut cases);
    cases
}

fn norms(random: &mut Random, dtype: DType, shape: [usize; 4], cases: &mut Vec<Case>) {
    let channels = shape[3];
    let (mean, deviation) = [(0.0, 1.0), (3.0, 0.5), (0.0, 1e4)][random.below(3)];
    let groups = *[8, 4, 2, 5, 1].iter().find(|&&groups| channels.is_multiple_of(groups)).unwrap();
    let frames = if shape[0].is_multiple_of(2) { 2 } else { 1 };
    let activations: Vec<_> = Activation::ALL.into_iter().map(Some).chain([None]).collect();
    for kind in [
        NormKind::Group { groups, frames: 1 },
        NormKind::Group { groups, frames },
        NormKind::Group { groups: channels, frames: 1 },
        NormKind::Layer,
        NormKind::Rms,
    ] {
        for affine in [Affine::None, Affine::Scale, Affine::ScaleShift] {
            let activation = activations[random.below(activations.len())];
            let x = random.floats(dtype, &shape, mean, deviation);
            let learned = (0..affine.operands()).map(|_| random.floats(dtype, &[channels], 0.5, 1.0));
            let inputs = std::iter::once(x).chain(learned).collect();
            cases.push((
                Op::Norm(Norm { kind, epsilon: 1e-5, affine, activation, quantise: None, measured: false }),
                inputs,
            ));
        }
    }
    let mut inputs = vec![random.floats(dtype, &shape, mean, deviation)];
    inputs.extend((0..4).map(|_| random.floats(dtype, &[channels], 0.0, 1.0)));
    let variance: Vec<f32> = inputs[2].to_f32().iter().map(|x| x.abs() + 0.1).collect();
    inputs[2] = Tensor::from_f32(dtype, [channels], &variance).unwrap();
    cases.push((Op::BatchNorm(BatchNorm { epsilon: 1e-3 }), inputs));
}

fn pointwise(random: &mut Random, dtype: DType, shape: [usize; 4], cases: &mut Vec<Case>) {
    for activation in Activation::ALL {
        cases.push((Op::Activate(activation), vec![random.floats(dtype, &shape, 0.0, 4.0)]));
        let doubled = [shape[0], shape[1], shape[2], 2 * shape[3]];
        cases.push((Op::Gate(Gate { activation }), vec![random.floats(dtype, &doubled, 0.0, 2.0)]));
    }
    cases.push((Op::Softmax, vec![random.floats(dtype, &shape, 0.0, 3.0)]));
    cases.push((Op::Softmax, vec![random.floats(dtype, &shape, 0.0, 1e4)]));
    let scale = Scale { factor: random.normal(), offset: random.normal() };
    cases.push((Op::Scale(scale), vec![random.floats(dtype, &shape, 0.0, 1e4)]));
    for alphas in [1, shape[0]] {
        let [a, b] = [(); 2].map(|()| random.floats(dtype, &shape, 0.0, 1e4));
        cases.push((Op::Blend, vec![a, b, random.floats(dtype, &[alphas], 0.5, 0.3)]));
    }
    for threshold in [None, Some(0.4)] {
        let [a, b] = [(); 2].map(|()| random.floats(dtype, &shape, 0.5, 0.3));
        let strength = random.floats(DType::F32, &[1], 0.5, 0.2);
        cases.push((Op::TemporalBlend(TemporalBlend { threshold }), vec![a, b, strength]));
    }
}

fn broadcasts(random: &mut Random, dtype: DType, cases: &mut Vec<Case>) {
    let pairs: [(&[usize], &[usize]); 16] = [
        (&[], &[]),
        (&[1], &[]),
        (&[37], &[37]),
        (&[2, 3, 5, 7], &[2, 3, 5, 7]),
        (&[2, 3, 5, 7], &[7]),
        (&[7], &[2, 3, 5, 7]),
        (&[2, 3, 5, 7], &[2, 1, 1, 7]),
        (&[2, 3, 5, 7], &[2, 3, 5, 1]),
        (&[2, 3, 1, 1], &[1, 1, 5, 7]),
        (&[2, 1, 5, 1], &[3, 1, 7]),
        (&[0, 4], &[1, 4]),
        (&[4, 17, 19, 96], &[4, 17, 19, 96]),
        (&[4, 17, 19, 96], &[4, 1, 1, 96]),
        (&[2, 40000], &[2, 1]),
        (&[40000], &[]),
        (&[2, 1, 1, 1100], &[1, 3, 2, 1]),
    ];
    for (a, b) in pairs {
        for op in [Op::Add, Op::Mul] {
            let deviation = if op == Op::Add { 1e4 } else { 10.0 };
            cases.push((
                op,
                vec![random.floats(dtype, a, 0.0, deviation), random.floats(dtype, b, 0.0, deviation)],
            ));
        }
    }
}

fn moves(random: &mut Random, dtype: DType, shape: [usize; 4], cases: &mut Vec<Case>) {
    for axis in 0..4 {
        let inputs = [0, 1, 2].map(|_| {
            let mut shape = shape;
            shape[axis] = random.below(4);
            random.floats(dtype, &shape, 0.0, 1.0)
        });
        cases.push((Op::Concat(Concat { axis }), inputs.to_vec()));
        let start = random.below(shape[axis] + 1);
        let len = random.below(shape[axis] - start + 1);
        let inputs = vec![random.floats(dtype, &shape, 0.0, 1.0)];
        cases.push((Op::Slice(Slice { axis, start, len }), inputs));
    }
    for interpolation in [Interpolation::Nearest, Interpolation::Bilinear] {
        for size in [[2 * shape[1], 2 * shape[2]], [1, 1], [1 + random.below(9), 1 + random.below(9)]] {
            let inputs = vec![random.floats(dtype, &shape, 0.0, 1e4)];
            cases.push((Op::Upsample(Upsample { interpolation, size }), inputs));
        }
    }
    for axis in 0..4 {
        let (to, taps) = (1 + random.below(9), 1 + random.below(9));
        let x: Vec<u8> = (0..shape.iter().product()).map(|_| random.below(256) as u8).collect();
        let first: Vec<i32> = (0..to).map(|_| random.below(shape[axis] + 9) as i32 - 4).collect();
        let weights: Vec<i32> = (0..to * taps).map(|_| random.below(1 << 22) as i32 - (1 << 20)).collect();
        let inputs = vec![
            Tensor::from_slice(shape, &x).unwrap(),
            Tensor::from_slice([to], &first).unwrap(),
            Tensor::from_slice([to, taps], &weights).unwrap(),
        ];
        if shape[axis] > 0 {
            cases.push((Op::Resample(Resample { axis }), inputs));
        }
    }
    for kind in [PoolKind::Average, PoolKind::Max] {
        for (kernel, stride, padding) in [(1, 1, 0), (1, 2, 0), (2, 2, 1), (3, 2, 1), (3, 1, 2)] {
            if shape[1] + 2 * padding >= kernel && shape[2] + 2 * padding.min(1) >= kernel {
                let inputs = vec![random.floats(dtype, &shape, -3.0, 1.0)];
                cases.push((pool(kind, kernel, stride, padding), inputs));
            }
        }
    }
}

fn means(random: &mut Random, dtype: DType, cases: &mut Vec<Case>) {
    let axes: [&[usize]; 9] = [&[], &[0], &[1], &[3], &[1, 2], &[0, 2], &[1, 3], &[2, 3], &[0, 1, 2, 3]];
    for shape in [[2, 3, 5, 7], [1, 1, 1, 1], [1, 9, 1, 20], [3, 29, 31, 33], [1, 2, 2, 1100]] {
        for axes in axes {
            let inputs = vec![random.floats(dtype, &shape, 100.0, 1.0)];
            cases.push((Op::Mean(Mean { axes: axes.to_vec() }), inputs));
        }
    }
    cases.push((Op::Mean(Mean { axes: vec![] }), vec![random.floats(dtype, &[], 0.0, 1.0)]));
    cases.push((Op::Mean(Mean { axes: vec![1] }), vec![random.floats(dtype, &[0, 3, 2], 0.0, 1.0)]));
}

fn embeddings(random: &mut Random, dtype: DType, cases: &mut Vec<Case>) {
    for (width, cosine_first, frequency_shift) in
        [(2, false, 0.0), (9, true, 1.0), (320, true, 0.0), (33, false, 0.5)]
    {
        let op = TimestepEmbedding { width, cosine_first, frequency_shift, max_period: 1e4, scale: 1.5 };
        for count in [0, 1, 3] {
            let t = random.floats(dtype, &[count], 500.0, 300.0);
            cases.push((Op::TimestepEmbedding(op), vec![t]));
        }
    }
    for (shape, channels) in [(&[3usize, 5][..], 7), (&[0], 4), (&[], 1), (&[77], 768), (&[2], 0)] {
        let table = random.floats(dtype, &[11, channels], 0.0, 1.0);
        let ids: Vec<i32> = (0..shape.iter().product()).map(|_| random.below(11) as i32).collect();
        cases.push((Op::Embedding, vec![table, Tensor::from_slice(shape, &ids).unwrap()]));
    }
}

fn samplers(random: &mut Random, dtype: DType, shape: [usize; 4], cases: &mut Vec<Case>) {
    for flags in 0..64 {
        let flag = |bit: usize| flags >> bit & 1 == 1;
        let op = SamplerStep {
            guided: flag(0),
            history: flag(1),
            noise: flag(2),
            blend: flag(5),
            clip: flag(3).then_some(0.8),
            emit_denoised: flag(4),
            emit_scaled: flag(3) != flag(4),
        };
        let doubled = [shape[0] * if op.guided { 2 } else { 1 }, shape[1], shape[2], shape[3]];
        let mut inputs = vec![
            random.floats(dtype, &shape, 0.0, 1.0),
            random.floats(dtype, &doubled, 0.0, 1.0),
            random.floats(DType::F32, &[4, 8], 0.0, 1.0),
            Tensor::from_slice([1], &[random.below(4) as i32]).unwrap(),
        ];
        if op.guided {
            let values = [1, shape[0].max(1)][random.below(2)];
            inputs.push(random.floats(DType::F32, &[values], 5.0, 2.0));
        }
        inputs.extend(
            (0..usize::from(op.history) + usize::from(op.noise))
                .map(|_| random.floats(dtype, &shape, 0.0, 1.0)),
        );
        if op.blend {
            inputs.push(random.floats(dtype, &shape, 0.0, 1.0));
            inputs.push(random.floats(DType::F32, &[1], 0.5, 0.2));
        }
        cases.push((Op::SamplerStep(op), inputs));
    }
}
