//! Every op at its edges: extents of one, odd extents and zero, channels close to a vector's width, masks that hide
//! everything, and magnitudes that overflow. Each executor is compared with the reference.

mod attention;

use kinora_graph::{
    DType, Op, Tensor,
    op::{
        Activation, Affine, Attention, BatchNorm, Concat, Conv, Gate, Interpolation, Linear, MatMul, Mean,
        Norm, NormKind, Pool, PoolKind, Quantise, Resample, Reshape, STEP_COLUMNS, SamplerStep, Scale, Slice,
        Stage, Statistics, TemporalBlend, TimestepEmbedding, Upsample,
    },
};

use crate::{
    compare,
    executor::{Executor, Reference, in_parallel},
};

/// Images, height and width: one element, odd extents, no images, no rows.
const EXTENTS: [[usize; 3]; 4] = [[1, 1, 1], [2, 3, 5], [0, 3, 3], [2, 0, 3]];

/// None, one, odd, and one more than each vector's width or half of it.
const CHANNELS: [usize; 7] = [0, 1, 3, 7, 9, 17, 33];

/// An op with its operands.
pub type Case = (Op, Vec<Tensor>);

/// Makes operands.
struct Operands {
    state: u64,
    dtype: DType,
    /// What activations are scaled by; weights stay near one.
    magnitude: f32,
}

impl Operands {
    fn new(dtype: DType, magnitude: f32) -> Self {
        Operands { state: 0x9E37_79B9_7F4A_7C15, dtype, magnitude }
    }

    fn uniform(&mut self) -> f32 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }

    fn scaled(&mut self, dtype: DType, shape: &[usize], scale: f32) -> Tensor {
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| self.uniform() * scale).collect();
        Tensor::from_f32(dtype, shape, &values).unwrap()
    }

    /// An activation.
    fn x(&mut self, shape: &[usize]) -> Tensor {
        self.scaled(self.dtype, shape, self.magnitude)
    }

    /// A weight.
    fn w(&mut self, shape: &[usize]) -> Tensor {
        self.scaled(self.dtype, shape, 1.0)
    }

    /// An activation for a product. With one sign alone nothing cancels, so that even a result of one element, which has
    /// no larger ones beside it, is as exact as f32 sums are.
    fn positive_x(&mut self, shape: &[usize]) -> Tensor {
        let values: Vec<f32> = self.x(shape).to_f32().iter().map(|x| x.abs()).collect();
        Tensor::from_f32(self.dtype, shape, &values).unwrap()
    }

    /// A weight for a product, likewise.
    fn positive_w(&mut self, shape: &[usize]) -> Tensor {
        let values: Vec<f32> = self.w(shape).to_f32().iter().map(|x| x.abs()).collect();
        Tensor::from_f32(self.dtype, shape, &values).unwrap()
    }

    /// A convolution with a bias and stages, and its operands.
    fn convolution(&mut self, x: [usize; 4], out: usize, conv: Conv, epilogue: Vec<Stage>) -> Case {
        let [kt, kh, kw] = conv.kernel;
        let mut inputs = vec![
            self.positive_x(&x),
            self.positive_w(&[out * conv.pixels(), kt, kh, kw, x[3]]),
            self.positive_w(&[out]),
        ];
        // The result without its stages says how large their operands are.
        let plain = Op::Conv(Conv { bias: true, ..conv.clone() });
        let shape =
            plain.infer(&inputs.iter().map(Tensor::ty).collect::<Vec<_>>()).unwrap()[0].shape.to_vec();
        self.push_stage_operands(&epilogue, &shape, &mut inputs);
        (Op::Conv(Conv { bias: true, epilogue, ..conv }), inputs)
    }

    /// A linear layer with a bias and stages, and its operands. A gate has as many columns again.
    fn linear(
        &mut self,
        [rows, depth]: [usize; 2],
        out: usize,
        gate: Option<Activation>,
        epilogue: Vec<Stage>,
    ) -> Case {
        let columns = if gate.is_some() { 2 * out } else { out };
        let mut inputs = vec![
            self.positive_x(&[1, rows, depth]),
            self.positive_w(&[columns, depth]),
            self.positive_w(&[columns]),
        ];
        self.push_stage_operands(&epilogue, &[1, rows, out], &mut inputs);
        (Op::Linear(Linear { bias: true, gate, epilogue, ..Linear::default() }), inputs)
    }

    /// A product of e4m3 operands of either sign, and its result of another type. Operands are small whole numbers times 16: their
    /// sums are exact even on Hopper's tensor cores, which keep 13 bits behind the point of the largest term. Scales bring
    /// results to order one.
    fn quantised(&mut self, (op, mut inputs): Case, result: DType) -> Case {
        let depth = inputs[1].shape()[1..].iter().product::<usize>().max(1);
        for operand in &mut inputs[..2] {
            let values: Vec<f32> =
                (0..operand.shape().elements()).map(|_| 16.0 * (4.0 * self.uniform()).round()).collect();
            *operand = Tensor::from_f32(DType::F8E4M3, operand.shape().clone(), &values).unwrap();
        }
        let (op, pixels) = match op {
            Op::Conv(conv) => {
                let pixels = conv.pixels();
                (Op::Conv(Conv { quantised: Some(result), ..conv }), pixels)
            }
            Op::Linear(linear) => (Op::Linear(Linear { quantised: Some(result), ..linear }), 1),
            other => panic!("{other} is no product with a weight"),
        };
        let scale = |x: f32| (0.75 + 0.25 * x) / (1024.0 * (depth as f32).sqrt());
        let scales: Vec<f32> = (0..inputs[1].shape()[0] / pixels).map(|_| scale(self.uniform())).collect();
        inputs.insert(2, Tensor::from_slice([scales.len()], &scales).unwrap());
        (op, inputs)
    }

    /// The operands of stages after a result of a shape.
    fn push_stage_operands(&mut self, stages: &[Stage], shape: &[usize], inputs: &mut Vec<Tensor>) {
        for stage in stages {
            match stage {
                Stage::AddChannels => {
                    let mut one = vec![1; shape.len()];
                    (one[0], one[shape.len() - 1]) = (shape[0], shape[shape.len() - 1]);
                    inputs.push(self.positive_x(&one));
                }
                Stage::Add | Stage::Mul => inputs.push(self.positive_x(shape)),
                Stage::Blend { .. } => {
                    inputs.push(self.positive_x(shape));
                    inputs.push(self.positive_w(&[1]));
                }
                Stage::Activate(_) | Stage::Scale(_) => {}
            }
        }
    }

    /// Whole eighths of a number, up to it: their products and sums are exact, so that what cancels leaves nothing.
    fn eighths(&mut self, shape: &[usize], scale: f32) -> Tensor {
        let values: Vec<f32> =
            (0..shape.iter().product()).map(|_| (8.0 * self.uniform()).round() / 8.0 * scale).collect();
        Tensor::from_f32(self.dtype, shape, &values).unwrap()
    }

    /// Activations of one size and either sign: scores are then exact, and so is which of them is the largest.
    fn signs(&mut self, shape: &[usize]) -> Tensor {
        let values: Vec<f32> = self.x(shape).to_f32().iter().map(|x| x.signum() * self.magnitude).collect();
        Tensor::from_f32(self.dtype, shape, &values).unwrap()
    }
}

fn convolutions(
    o: &mut Operands,
    [images, height, width]: [usize; 3],
    channels: usize,
    cases: &mut Vec<Case>,
) {
    let shape = [images, height, width, channels];
    for out in [1, 9, 0] {
        for conv in [
            Conv::spatial([1, 1], 1, 0),
            Conv::spatial([3, 3], 1, 1),
            Conv { padding: [[0; 2], [0, 1], [2, 1]], ..Conv::spatial([3, 2], 2, 0) },
            Conv { dilation: [1, 2, 2], ..Conv::spatial([3, 3], 1, 2) },
            Conv::temporal(3, images.max(1)),
            Conv { kernel: [2, 3, 3], padding: [[1, 0], [1, 1], [1, 1]], ..Conv::temporal(3, images.max(1)) },
        ] {
            let [kt, kh, kw] = conv.kernel;
            let inputs =
                vec![o.positive_x(&shape), o.positive_w(&[out, kt, kh, kw, channels]), o.positive_w(&[out])];
            cases.push((Op::Conv(Conv { bias: true, ..conv }), inputs));
        }
    }
}

fn products(o: &mut Operands, [images, height, width]: [usize; 3], channels: usize, cases: &mut Vec<Case>) {
    let shape = [images, height, width, channels];
    for out in [1, 9, 0] {
        let residual = o.positive_x(&[images, height, width, out]);
        let linear =
            Linear { bias: true, epilogue: vec![Stage::Scale(0.5), Stage::Add], ..Linear::default() };
        cases.push((
            Op::Linear(linear),
            vec![o.positive_x(&shape), o.positive_w(&[out, channels]), o.positive_w(&[out]), residual],
        ));
        let norm = Norm {
            kind: NormKind::Layer,
            epsilon: 1e-3,
            affine: Affine::ScaleShift,
            activation: None,
            quantise: None,
            measured: false,
        };
        let linear = Linear { gate: Some(Activation::Gelu), prologue: Some(norm), ..Linear::default() };
        let inputs = vec![
            o.positive_x(&shape),
            o.positive_w(&[2 * out, channels]),
            o.positive_w(&[channels]),
            o.positive_w(&[channels]),
        ];
        cases.push((Op::Linear(linear), inputs));
        for (transpose_a, transpose_b) in [(false, false), (true, false), (false, true), (true, true)] {
            let swap = |transposed: bool, [a, b]: [usize; 2]| if transposed { [b, a] } else { [a, b] };
            let [m, k] = swap(transpose_a, [height * width, channels]);
            let [k2, n] = swap(transpose_b, [channels, out]);
            for shared in [false, true] {
                let b = if shared { o.positive_x(&[k2, n]) } else { o.positive_x(&[images, k2, n]) };
                let inputs = vec![o.positive_x(&[images, m, k]), b];
                cases.push((Op::MatMul(MatMul { transpose_a, transpose_b }), inputs));
            }
        }
    }
    if channels > 0 {
        let depthwise = Conv { groups: channels, ..Conv::spatial([3, 3], 1, 1) };
        cases.push((Op::Conv(depthwise), vec![o.positive_x(&shape), o.positive_w(&[channels, 1, 3, 3, 1])]));
    }
}

/// Products of few rows and columns over a large depth, which several blocks may share, with every kind of epilogue. No extent
/// is a multiple of a tile's, and the depth not of a step's. Channels are in eights, so that wide accesses are allowed.
fn deep_products(o: &mut Operands, cases: &mut Vec<Case>) {
    let silu = Stage::Activate(Activation::Silu);
    let blend = Stage::Blend { accumulator_first: false };
    for (gate, rows, depth, out, stages) in [
        (None, 3, 264, 24, vec![]),
        (None, 135, 392, 136, vec![silu, Stage::Add]),
        (None, 70, 648, 72, vec![Stage::AddChannels, Stage::Mul]),
        (None, 3, 1032, 328, vec![blend, Stage::Add]),
        (Some(Activation::Gelu), 5, 520, 88, vec![Stage::Scale(0.01), Stage::Add]),
        (Some(Activation::Silu), 131, 1288, 40, vec![Stage::Scale(0.01)]),
    ] {
        let columns = if gate.is_some() { 2 * out } else { out };
        let mut inputs =
            vec![o.positive_x(&[1, rows, depth]), o.positive_w(&[columns, depth]), o.positive_w(&[columns])];
        stage_operands(o, &stages, &[1, rows, out], &mut inputs);
        cases.push((Op::Linear(Linear { bias: true, gate, epilogue: stages, ..Linear::default() }), inputs));
    }
}

/// Convolutions of that kind.
fn deep_convolutions(o: &mut Operands, cases: &mut Vec<Case>) {
    let stages = vec![Stage::AddChannels, Stage::Activate(Activation::Silu), Stage::Add];
    for (extents, channels, out) in [([2, 5, 9], 72, 40), ([1, 9, 15], 136, 16)] {
        let [images, height, width] = extents;
        let mut inputs =
            vec![o.positive_x(&[images, height, width, channels]), o.positive_w(&[out, 1, 3, 3, channels])];
        stage_operands(o, &stages, &[images, height, width, out], &mut inputs);
        cases.push((Op::Conv(Conv { epilogue: stages.clone(), ..Conv::spatial([3, 3], 1, 1) }), inputs));
    }
}

/// The operands of an epilogue's stages over a result of a shape.
fn stage_operands(o: &mut Operands, stages: &[Stage], result: &[usize], inputs: &mut Vec<Tensor>) {
    for stage in stages {
        match stage {
            Stage::Activate(_) | Stage::Scale(_) => {}
            Stage::AddChannels => {
                // A vector for each image.
                let mut shape = vec![1; result.len()];
                shape[0] = result[0];
                shape[result.len() - 1] = result[result.len() - 1];
                inputs.push(o.positive_w(&shape));
            }
            Stage::Add | Stage::Mul => inputs.push(o.positive_x(result)),
            Stage::Blend { .. } => {
                inputs.push(o.positive_x(result));
                inputs.push(o.positive_w(&[1]));
            }
        }
    }
}

fn norms(o: &mut Operands, [images, height, width]: [usize; 3], channels: usize, cases: &mut Vec<Case>) {
    let shape = [images, height, width, channels];
    let mut kinds =
        vec![NormKind::Layer, NormKind::Rms, NormKind::Group { groups: 1, frames: images.max(1) }];
    if channels > 0 {
        kinds.push(NormKind::Group { groups: channels, frames: 1 });
    }
    for kind in kinds {
        let norm = Norm {
            kind,
            epsilon: 1e-3,
            affine: Affine::ScaleShift,
            activation: Some(Activation::Silu),
            quantise: None,
            measured: false,
        };
        for quantise in [None, Some(24.0)] {
            let norm = Norm { quantise, ..norm };
            cases.push((Op::Norm(norm), vec![o.x(&shape), o.w(&[channels]), o.w(&[channels])]));
            if let Some(Statistics { groups, frames }) = norm.statistics() {
                let given = o.scaled(DType::F32, &[images / frames, groups, 2], o.magnitude);
                let values: Vec<f32> = given.to_f32().into_iter().map(f32::abs).collect();
                let given = Tensor::from_f32(DType::F32, given.shape().clone(), &values).unwrap();
                let inputs = vec![o.x(&shape), o.w(&[channels]), o.w(&[channels]), given];
                cases.push((Op::Norm(Norm { measured: true, ..norm }), inputs));
            }
        }
    }
    let ones = Tensor::from_f32(o.dtype, [channels], &vec![1.0; channels]).unwrap();
    let vectors = [o.x(&[channels]), ones, o.w(&[channels]), o.w(&[channels])];
    let inputs = std::iter::once(o.x(&shape)).chain(vectors).collect();
    cases.push((Op::BatchNorm(BatchNorm { epsilon: 1e-3 }), inputs));
}

/// Filters of more vectors than a block has threads, of several widths.
fn long_filters(o: &mut Operands, cases: &mut Vec<Case>) {
    for shape in [&[4, 1, 3, 3, 264][..], &[2, 2052], &[2, 1030], &[2, 515]] {
        for blocks in [1, 2] {
            let filters = Quantise::Filters { blocks, activation: 0.5 };
            cases.push((Op::Quantise(filters), vec![o.x(shape)]));
        }
    }
}

fn elements(o: &mut Operands, [images, height, width]: [usize; 3], channels: usize, cases: &mut Vec<Case>) {
    let shape = [images, height, width, channels];
    for activation in Activation::ALL {
        cases.push((Op::Activate(activation), vec![o.x(&shape)]));
        cases.push((Op::Gate(Gate { activation }), vec![o.x(&[images, height, width, 2 * channels])]));
    }
    cases.push((Op::Softmax, vec![o.x(&shape)]));
    cases.push((Op::Scale(Scale { factor: -1.5, offset: 0.25 }), vec![o.x(&shape)]));
    cases.push((Op::Quantise(Quantise::Tensor { factor: 0.75 }), vec![o.x(&shape)]));
    for blocks in [1, 2] {
        let filters = Quantise::Filters { blocks, activation: 0.5 };
        cases.push((Op::Quantise(filters), vec![o.x(&shape)]));
    }
    for other in [vec![channels], vec![images, 1, 1, channels], vec![], shape.to_vec()] {
        cases.push((Op::Add, vec![o.x(&shape), o.x(&other)]));
        cases.push((Op::Mul, vec![o.x(&shape), o.x(&other)]));
    }
    for alphas in [1, images] {
        cases.push((Op::Blend, vec![o.x(&shape), o.x(&shape), o.w(&[alphas])]));
    }
    for threshold in [None, Some(0.5 * o.magnitude)] {
        let strength = o.scaled(DType::F32, &[1], 1.0);
        let inputs = vec![o.x(&shape), o.x(&shape), strength];
        cases.push((Op::TemporalBlend(TemporalBlend { threshold }), inputs));
    }
    for (guided, blend) in [(false, false), (false, true), (true, true)] {
        let op = SamplerStep {
            guided,
            history: true,
            noise: true,
            blend,
            clip: guided.then_some(0.7 * o.magnitude),
            emit_denoised: true,
            emit_scaled: true,
        };
        let halves = if guided { 2 * images } else { images };
        let mut inputs = vec![o.x(&shape), o.x(&[halves, height, width, channels])];
        inputs.push(o.scaled(DType::F32, &[3, STEP_COLUMNS], 1.0));
        inputs.push(Tensor::from_slice([1], &[2i32]).unwrap());
        if guided {
            inputs.push(o.scaled(DType::F32, &[images.max(1)], 5.0));
        }
        inputs.extend([o.x(&shape), o.x(&shape)]);
        if blend {
            inputs.extend([o.x(&shape), o.scaled(DType::F32, &[1], 1.0)]);
        }
        cases.push((Op::SamplerStep(op), inputs));
    }
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F8E4M3, DType::U8, DType::I32] {
        cases.push((Op::Cast(dtype), vec![o.x(&shape)]));
    }
}

fn moves(o: &mut Operands, [images, height, width]: [usize; 3], channels: usize, cases: &mut Vec<Case>) {
    let shape = [images, height, width, channels];
    for axis in 0..4 {
        let mut none = shape;
        none[axis] = 0;
        cases.push((Op::Concat(Concat { axis }), vec![o.x(&shape), o.x(&none), o.x(&shape)]));
        for (start, len) in [(0, shape[axis]), (shape[axis] / 2, 0), (0, shape[axis].min(1))] {
            cases.push((Op::Slice(Slice { axis, start, len }), vec![o.x(&shape)]));
        }
        if shape[axis] > 0 {
            cases.push((Op::Mean(Mean { axes: vec![axis] }), vec![o.x(&shape)]));
        }
    }
    for interpolation in [Interpolation::Nearest, Interpolation::Bilinear] {
        for size in [[1, 1], [7, 4]] {
            cases.push((Op::Upsample(Upsample { interpolation, size }), vec![o.x(&shape)]));
        }
    }
    for kind in [PoolKind::Average, PoolKind::Max] {
        let pool = Pool { kind, kernel: [2, 3], stride: [1, 2], padding: [1, 1] };
        cases.push((Op::Pool(pool), vec![o.x(&shape)]));
    }
    let bytes: Vec<u8> = (0..shape.iter().product()).map(|_| (o.uniform() * 128.0 + 128.0) as u8).collect();
    for axis in 1..3 {
        for (to, taps) in [(1, 1), (7, 4)] {
            // From before the axis to behind it, with sums of either sign; the last two wrap.
            let first: Vec<i32> = (0..to).map(|i| 2 * i - 3).collect();
            let mut weights: Vec<i32> = (0..to * taps).map(|_| (o.uniform() * 4e6) as i32).collect();
            weights.iter_mut().rev().take(2).for_each(|weight| *weight = i32::MAX - 5);
            let inputs = vec![
                Tensor::from_slice(shape, &bytes).unwrap(),
                Tensor::from_slice([to as usize], &first).unwrap(),
                Tensor::from_slice([to as usize, taps as usize], &weights).unwrap(),
            ];
            cases.push((Op::Resample(Resample { axis }), inputs));
        }
    }
    cases.push((Op::Reshape(Reshape { shape: [height, channels, width, images].into() }), vec![o.x(&shape)]));
    let embedding = TimestepEmbedding {
        width: 2 + channels,
        cosine_first: true,
        frequency_shift: 0.0,
        max_period: 1e4,
        scale: 1.0,
    };
    cases.push((Op::TimestepEmbedding(embedding), vec![o.w(&[images])]));
    let ids: Vec<i32> = (0..images * width).map(|i| (i % 5) as i32).collect();
    let ids = Tensor::from_slice([images, width], &ids).unwrap();
    cases.push((Op::Embedding, vec![o.x(&[5, channels]), ids]));
}

/// Compares every executor with the reference.
fn check(cases: &[Case], executors: &[&dyn Executor]) {
    let check = |(op, inputs): &Case| {
        let operands: Vec<&Tensor> = inputs.iter().collect();
        let types: Vec<String> = inputs.iter().map(|x| x.ty().to_string()).collect();
        let expected = match Reference.run(op, &operands) {
            Ok(expected) => expected,
            Err(why) => panic!("{op} of {}: {why}", types.join(", ")),
        };
        let failures = executors.iter().filter_map(|executor| {
            let verdict = executor.run(op, &operands).and_then(|got| {
                assert_eq!(expected.len(), got.len());
                Ok(compare::all_close(op, &expected, &got)?)
            });
            let why = verdict.err()?;
            Some(format!("{} {op} of {}: {why}", executor.name(), types.join(", ")))
        });
        failures.collect::<Vec<_>>()
    };
    let failures = in_parallel(cases, check).concat();
    let shown = failures.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "{} failures of {}\n{shown}", failures.len(), cases.len());
}

/// A group of ops, whose edges are checked together.
#[derive(Clone, Copy, Debug)]
pub enum Family {
    /// Convolutions.
    Convolutions,
    /// Linear layers and batched matrix products.
    Products,
    /// Normalisations.
    Norms,
    /// Ops on single elements, and the sampler.
    Elements,
    /// Ops that move elements, resize and average.
    Moves,
    /// Attention.
    Attention,
    /// Its gradients.
    AttentionBackward,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 7] = [
        Family::Convolutions,
        Family::Products,
        Family::Norms,
        Family::Elements,
        Family::Moves,
        Family::Attention,
        Family::AttentionBackward,
    ];

    /// Its ops with their operands in a float type, with usual magnitudes and with those that overflow f16.
    pub fn all_cases(self, dtype: DType) -> Vec<Case> {
        let mut cases = Vec::new();
        for magnitude in [1.0, 1e4] {
            let mut operands = Operands::new(dtype, magnitude);
            for extents in EXTENTS {
                for channels in CHANNELS {
                    self.cases(&mut operands, extents, channels, &mut cases);
                }
            }
        }
        let mut operands = Operands::new(dtype, 1.0);
        match self {
            Family::Convolutions => deep_convolutions(&mut operands, &mut cases),
            Family::Products => deep_products(&mut operands, &mut cases),
            Family::Attention => attention::long(&mut operands, &mut cases),
            Family::AttentionBackward => attention::long_backward(&mut operands, &mut cases),
            Family::Elements => long_filters(&mut operands, &mut cases),
            Family::Norms | Family::Moves => {}
        }
        // Some combinations are not valid, such as a window larger than its image.
        cases.retain(|(op, inputs)| op.infer(&inputs.iter().map(Tensor::ty).collect::<Vec<_>>()).is_ok());
        cases
    }

    fn cases(self, operands: &mut Operands, extents: [usize; 3], channels: usize, cases: &mut Vec<Case>) {
        match self {
            Family::Convolutions => convolutions(operands, extents, channels, cases),
            Family::Products => products(operands, extents, channels, cases),
            Family::Norms => norms(operands, extents, channels, cases),
            Family::Elements => elements(operands, extents, channels, cases),
            Family::Moves => moves(operands, extents, channels, cases),
            // A head has at least one channel.
            Family::Attention if channels == 0 => {}
            Family::Attention => attention::short(operands, extents, channels, cases),
            // A few sizes are enough: tensor cores take none of these, and gradients are slow to compute.
            Family::AttentionBackward if ![1, 7, 33].contains(&channels) => {}
            Family::AttentionBackward => attention::short_backward(operands, extents, channels, cases),
        }
    }
}

/// Checks a family's edges in a float type, with usual magnitudes and with those that overflow f16.
///
/// # Panics
/// If an executor differs from the reference.
pub fn check_family(family: Family, dtype: DType, executors: &[&dyn Executor]) {
    let cases = family.all_cases(dtype);
    assert!(cases.len() > 150, "only {} cases are left", cases.len());
    check(&cases, executors);
}

/// Makes the tests of every family's edges, one for each float type, in modules by the families' names. `$check` is called
/// with a family and a type.
#[macro_export]
macro_rules! edge_tests {
    ($check:path) => {
        $crate::edge_tests!($check, edges_of_convolutions Convolutions, edges_of_products Products,
            edges_of_norms Norms, edges_of_elements Elements, edges_of_moves Moves, edges_of_attention Attention,
            edges_of_attention_backward AttentionBackward);
    };
    ($check:path, $($module:ident $family:ident),+) => {
        $(
            mod $module {
                use $crate::edge_cases::Family;

                #[test]
                fn f32() {
                    $check(Family::$family, kinora_graph::DType::F32);
                }

                #[test]
                fn f16() {
                    $check(Family::$family, kinora_graph::DType::F16);
                }

                #[test]
                fn bf16() {
                    $check(Family::$family, kinora_graph::DType::BF16);
                }
            }
        )+
    };
}

/// Checks convolutions of few columns, for which backends have kernels of their own: images that tiles do not cover evenly, windows of
/// several shapes, channels and columns that fill no tile, and the stages that follow.
///
/// # Panics
/// If an executor differs from the reference.
pub fn check_few_columns(dtype: DType, executors: &[&dyn Executor]) {
    let same = Conv::spatial([3, 3], 1, 1);
    let relu = Stage::Activate(Activation::Relu);
    let silu = Stage::Activate(Activation::Silu);
    let blend = Stage::Blend { accumulator_first: true };
    let mut o = Operands::new(dtype, 1.0);
    let mut cases = Vec::new();
    for ([images, height, width, channels], out, conv, epilogue) in [
        // Several tiles in each direction, several images, and what an autoencoder's block ends with.
        ([2, 35, 27, 64], 64, same.clone(), vec![Stage::Add, relu]),
        ([1, 1, 1, 64], 64, same.clone(), vec![relu]),
        ([3, 16, 8, 64], 64, same.clone(), vec![Stage::Scale(0.5)]),
        ([2, 17, 9, 40], 56, same.clone(), vec![Stage::AddChannels, silu, blend]),
        ([1, 20, 19, 64], 40, Conv::spatial([3, 3], 1, 0), vec![Stage::Mul, Stage::Add]),
        ([1, 19, 23, 24], 64, Conv { dilation: [1, 2, 3], ..Conv::spatial([3, 3], 1, 2) }, vec![]),
        ([1, 18, 10, 128], 64, Conv::spatial([2, 2], 1, 0), vec![relu]),
        ([1, 5, 21, 136], 64, Conv::spatial([1, 3], 1, 1), vec![Stage::Add]),
        ([1, 33, 9, 64], 48, Conv { padding: [[0; 2], [2, 0], [0, 1]], ..same.clone() }, vec![silu]),
        // Frames around an image that a window of one frame does not read.
        ([2, 9, 8, 8], 64, Conv { padding: [[1, 1], [1, 1], [1, 1]], frames: 2, ..same.clone() }, vec![]),
        // What has too many taps, channels or columns for the weight to stay.
        ([1, 12, 12, 64], 64, Conv::spatial([5, 5], 1, 2), vec![Stage::Add]),
        ([1, 9, 17, 72], 64, same.clone(), vec![Stage::Add]),
        ([1, 9, 17, 64], 72, same.clone(), vec![relu]),
        ([1, 9, 17, 64], 32, same.clone(), vec![relu]),
        ([1, 9, 17, 64], 3, same, vec![]),
    ] {
        cases.push(o.convolution([images, height, width, channels], out, conv, epilogue));
    }
    check(&cases, executors);
}

/// Checks attention with heads of 264 to 512 channels: lengths that fill no tile, one tile of queries and several, several of keys,
/// a context that several batch elements share, packed operands, and scores that are nearly equal or far apart.
///
/// # Panics
/// If an executor differs from the reference.
pub fn check_wide_heads(dtype: DType, executors: &[&dyn Executor]) {
    let mut o = Operands::new(dtype, 1.0);
    let mut cases = Vec::new();
    for ([batch, key_batch, heads, queries, keys, head], scale) in [
        ([1, 1, 1, 1, 65, 512], 0.05),
        ([1, 1, 2, 65, 128, 512], 0.3),
        ([2, 1, 1, 130, 129, 264], 0.1),
        ([1, 1, 1, 64, 300, 512], 1.0),
        ([2, 2, 1, 200, 449, 392], 0.2),
        ([3, 1, 2, 17, 192, 328], 0.1),
    ] {
        let op = Attention { scale, ..Attention::over_positions(heads, head) };
        let [q, k, v] = [(batch, queries), (key_batch, keys), (key_batch, keys)]
            .map(|(batch, length)| o.x(&[batch, length, heads * head]));
        cases.push((Op::Attention(op), vec![q, k, v]));
    }
    let op = Attention { offsets: [0, 320, 640], ..Attention::over_positions(1, 320) };
    let packed = o.x(&[1, 150, 960]);
    cases.push((Op::Attention(op), vec![packed.clone(), packed.clone(), packed]));
    check(&cases, executors);
}

/// Checks attention with heads of up to 128 channels over positions, for blocks that have several tiles of queries: lengths that fill no
/// tile, one tile of keys and several, a context that several batch elements share, packed operands, and scores that are nearly
/// equal, that are far apart, and that grow with the key, from large positive ones or from large negative ones on.
///
/// # Panics
/// If an executor differs from the reference.
pub fn check_tiles_of_queries(dtype: DType, executors: &[&dyn Executor]) {
    let mut o = Operands::new(dtype, 1.0);
    let mut cases = Vec::new();
    // What keys are multiplied by, by their place from 0 to 1; then nothing is negative but that.
    type Stretch = Option<fn(f32) -> f32>;
    let (grow, negative): (Stretch, Stretch) =
        (Some(|place| 0.25 + 2.0 * place), Some(|place| 2.0 * place - 2.5));
    for ([batch, key_batch, heads, queries, keys, head], scale, stretch) in [
        ([2, 1, 2, 200, 77, 40], 0.2, None),
        ([1, 1, 3, 130, 300, 64], 0.05, None),
        ([1, 1, 2, 192, 288, 64], 1.0, None),
        ([1, 1, 2, 193, 576, 64], 1.0, grow),
        ([1, 1, 1, 257, 129, 128], 0.3, grow),
        ([1, 1, 2, 130, 300, 64], 1.0, negative),
        ([3, 1, 1, 100, 1, 16], 1.0, None),
    ] {
        let op = Attention { scale, log_sum_exp: keys > 128, ..Attention::over_positions(heads, head) };
        let width = heads * head;
        let [mut q, mut k, v] = [(batch, queries), (key_batch, keys), (key_batch, keys)]
            .map(|(batch, length)| o.x(&[batch, length, width]));
        if let Some(stretch) = stretch {
            let stretched = |x: &Tensor, by: fn(f32) -> f32| {
                let rows = x.shape()[1] as f32;
                let value = |(i, x): (usize, &f32)| x.abs() * by((i / width) as f32 / rows);
                let values: Vec<f32> = x.to_f32().iter().enumerate().map(value).collect();
                Tensor::from_f32(dtype, x.shape().clone(), &values).unwrap()
            };
            (q, k) = (stretched(&q, |_| 1.0), stretched(&k, stretch));
        }
        cases.push((Op::Attention(op), vec![q, k, v]));
    }
    let op = Attention { offsets: [0, 128, 256], ..Attention::over_positions(2, 64) };
    let packed = o.x(&[2, 150, 384]);
    cases.push((Op::Attention(op), vec![packed.clone(), packed.clone(), packed]));
    check(&cases, executors);
}

/// Checks sub-pixel convolutions: tiles of 160, 128 and 64 columns and columns that fill none, images smaller than a box, several tiles
/// in each direction, and the stages that follow.
///
/// # Panics
/// If an executor differs from the reference.
pub fn check_subpixels(dtype: DType, executors: &[&dyn Executor]) {
    let silu = Stage::Activate(Activation::Silu);
    let mut o = Operands::new(dtype, 1.0);
    let mut cases = Vec::new();
    for (x, out, epilogue) in [
        ([1, 9, 17, 64], 160, vec![Stage::AddChannels, silu]),
        ([2, 16, 8, 72], 128, vec![Stage::Add]),
        ([1, 35, 27, 8], 64, vec![]),
        ([3, 5, 3, 136], 320, vec![silu, Stage::Scale(0.5)]),
        ([1, 1, 1, 64], 64, vec![Stage::Mul]),
        ([2, 7, 6, 24], 40, vec![Stage::Add]),
        ([1, 6, 5, 3], 5, vec![silu]),
        ([2, 0, 5, 64], 64, vec![]),
    ] {
        cases.push(o.convolution(x, out, Conv::subpixel(), epilogue));
    }
    check(&cases, executors);
}

/// Checks products of several tiles in each direction, for blocks that compute many of them: rows and columns that fill no tile,
/// depths of one step and of more than there is room for at once, gates, and the stages that follow.
///
/// # Panics
/// If an executor differs from the reference.
pub fn check_many_tiles(dtype: DType, executors: &[&dyn Executor]) {
    let same = Conv::spatial([3, 3], 1, 1);
    let silu = Stage::Activate(Activation::Silu);
    let blend = Stage::Blend { accumulator_first: true };
    let mut o = Operands::new(dtype, 1.0);
    let mut cases = Vec::new();
    for (x, out, gate, epilogue) in [
        ([300, 72], 328, None, vec![]),
        ([400, 456], 168, None, vec![Stage::Add]),
        ([129, 8], 488, None, vec![Stage::Scale(0.5), Stage::Add, blend]),
        ([130, 200], 160, None, vec![Stage::Mul, silu, Stage::Add, blend]),
        ([300, 200], 184, Some(Activation::Gelu), vec![]),
        ([257, 64], 72, Some(Activation::Silu), vec![Stage::Add]),
        ([200, 392], 88, Some(Activation::GeluTanh), vec![blend, Stage::Add]),
    ] {
        cases.push(o.linear(x, out, gate, epilogue));
    }
    for (x, out, conv, epilogue) in [
        ([3, 9, 17, 40], 168, same.clone(), vec![Stage::AddChannels, silu, blend]),
        ([2, 11, 13, 72], 136, Conv { dilation: [1, 2, 2], ..Conv::spatial([3, 3], 1, 2) }, vec![Stage::Add]),
        ([6, 7, 9, 64], 160, Conv::temporal(3, 3), vec![Stage::AddChannels]),
        ([1, 20, 19, 8], 328, Conv::spatial([2, 3], 1, 0), vec![silu]),
    ] {
        cases.push(o.convolution(x, out, conv, epilogue));
    }
    check(&cases, executors);
}

/// Checks products that measure their results for a group norm: tiles that are full, of one slab and of several, and extents that fill
/// none; groups of four channels and of more, images and clips, means that are large beside the deviations.
///
/// # Panics
/// If an executor differs from the reference.
pub fn check_measured_products(dtype: DType, executors: &[&dyn Executor]) {
    let same = Conv::spatial([3, 3], 1, 1);
    let blend = Stage::Blend { accumulator_first: true };
    let silu = Stage::Activate(Activation::Silu);
    let mut o = Operands::new(dtype, 1.0);
    let mut cases = Vec::new();
    for (x, out, conv, epilogue, [groups, frames]) in [
        ([3, 16, 16, 16], 128, same.clone(), vec![], [32, 1]),
        ([2, 32, 16, 24], 256, same.clone(), vec![Stage::Add], [8, 2]),
        ([4, 4, 32, 64], 128, Conv::temporal(3, 2), vec![Stage::Add, blend], [32, 2]),
        ([4, 16, 8, 64], 128, Conv::temporal(3, 4), vec![blend], [16, 1]),
        ([2, 8, 16, 64], 64, Conv::subpixel(), vec![], [16, 1]),
        ([2, 16, 16, 8], 64, Conv::spatial([1, 1], 1, 0), vec![silu], [8, 1]),
        ([2, 9, 17, 40], 128, same.clone(), vec![Stage::Add], [32, 1]),
        ([2, 16, 16, 16], 96, same, vec![], [32, 2]),
    ] {
        let (op, inputs) = o.convolution(x, out, conv, epilogue);
        let Op::Conv(conv) = op else { panic!("{op}") };
        cases.push((Op::Conv(Conv { statistics: Some(Statistics { groups, frames }), ..conv }), inputs));
    }
    for (rows, depth, out, gate, groups) in
        [(512, 72, 128, None, 32), (256, 200, 64, Some(Activation::Gelu), 4), (5, 9, 7, None, 1)]
    {
        let (op, inputs) = o.linear([rows, depth], out, gate, vec![Stage::Add]);
        let Op::Linear(linear) = op else { panic!("{op}") };
        let statistics = Some(Statistics { groups, frames: 1 });
        cases.push((Op::Linear(Linear { statistics, ..linear }), inputs));
    }
    // Of a large mean, whose digits f16 has no more than the deviations need; and of results that are all the same.
    for (mean, scale) in [(50.0, 0.01), (-3.0, 0.0)] {
        let mut inputs = vec![o.scaled(dtype, &[1, 256, 32], scale), o.w(&[128, 32])];
        inputs.push(Tensor::from_f32(dtype, [128], &[mean; 128]).unwrap());
        let statistics = Some(Statistics { groups: 32, frames: 1 });
        cases.push((Op::Linear(Linear { bias: true, statistics, ..Linear::default() }), inputs));
    }
    check(&cases, executors);
}

/// Checks products of e4m3 with a result of a type: several tiles in each direction, rows, columns and depths that fill none, channels
/// that are not in sixteens, sub-pixel convolutions, gates, and the stages that follow.
///
/// # Panics
/// If an executor differs from the reference.
pub fn check_quantised_products(result: DType, executors: &[&dyn Executor]) {
    let same = Conv::spatial([3, 3], 1, 1);
    let silu = Stage::Activate(Activation::Silu);
    let blend = Stage::Blend { accumulator_first: true };
    let mut o = Operands::new(DType::F16, 1.0);
    let mut cases = Vec::new();
    for (x, out, gate, epilogue) in [
        ([300, 144], 328, None, vec![]),
        ([200, 528], 168, None, vec![Stage::Add]),
        ([129, 16], 488, None, vec![Stage::Scale(0.5), Stage::Add, blend]),
        ([130, 208], 160, None, vec![Stage::Mul, silu, Stage::Add, blend]),
        ([300, 208], 184, Some(Activation::Gelu), vec![]),
        ([257, 64], 72, Some(Activation::Silu), vec![Stage::Add]),
        ([3, 528], 40, None, vec![Stage::AddChannels]),
        ([5, 9], 7, None, vec![silu]),
        ([0, 32], 16, None, vec![]),
        ([7, 0], 16, None, vec![]),
    ] {
        let case = o.linear(x, out, gate, epilogue);
        cases.push(o.quantised(case, result));
    }
    for (x, out, conv, epilogue) in [
        ([3, 9, 17, 48], 168, same.clone(), vec![Stage::AddChannels, silu, blend]),
        ([2, 11, 13, 16], 136, Conv { dilation: [1, 2, 2], ..Conv::spatial([3, 3], 1, 2) }, vec![Stage::Add]),
        ([6, 7, 9, 144], 160, Conv::temporal(3, 3), vec![Stage::AddChannels]),
        ([1, 9, 8, 16], 24, Conv::spatial([3, 3], 2, 1), vec![silu]),
        ([1, 5, 4, 3], 5, same, vec![]),
        ([1, 9, 17, 64], 160, Conv::subpixel(), vec![Stage::AddChannels, silu]),
        ([2, 16, 8, 80], 128, Conv::subpixel(), vec![Stage::Add]),
        ([1, 35, 27, 16], 64, Conv::subpixel(), vec![]),
        ([2, 7, 6, 24], 40, Conv::subpixel(), vec![Stage::Add]),
    ] {
        let case = o.convolution(x, out, conv, epilogue);
        cases.push(o.quantised(case, result));
    }
    check(&cases, executors);
}

/// The case that large magnitudes are made for: products beyond 65504 are the same infinity everywhere.
///
/// # Panics
/// If an executor returns something else.
pub fn check_overflow(executors: &[&dyn Executor]) {
    let x = Tensor::from_f32(DType::F16, [2, 3], &[1e4, 1e4, 1e4, -1e4, -1e4, -1e4]).unwrap();
    let weight = Tensor::from_f32(DType::F16, [1, 3], &[3.0, 3.0, 3.0]).unwrap();
    for executor in executors {
        let y = executor.run(&Op::Linear(Linear::default()), &[&x, &weight]).unwrap();
        assert_eq!(y[0].to_f32(), [f32::INFINITY, f32::NEG_INFINITY], "{}", executor.name());
    }
}
