//! Ops with random attributes on random operands, extreme ones among them: nothing panics, and what is accepted can be
//! addressed.

use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};

use super::*;

const EXTENTS: [usize; 12] =
    [0, 1, 1, 2, 2, 3, 4, 8, 1 << 31, usize::MAX / 2, usize::MAX / 2 + 1, usize::MAX];
const NUMBERS: [f32; 8] = [1.0, 1.0, 1e-5, 0.0, -2.0, f32::MAX, f32::INFINITY, f32::NAN];
/// How many kinds of op there are.
const KINDS: u32 = 27;

/// A list of numbers from which an op and its operands are made. When it is used up, everything is the first choice.
struct Choices(std::vec::IntoIter<u32>);

impl Choices {
    fn of<T: Clone>(&mut self, options: &[T]) -> T {
        let number = self.0.next().unwrap_or(0) as usize;
        options[number % options.len()].clone()
    }

    fn flag(&mut self) -> bool {
        self.of(&[false, true])
    }

    /// Rarely something else than `usual`.
    fn near(&mut self, usual: usize) -> usize {
        let other = self.of(&EXTENTS);
        self.of(&[usual, usual, usual, usual, usual, usual, usual, other])
    }

    fn extents<const N: usize>(&mut self) -> [usize; N] {
        std::array::from_fn(|_| self.of(&EXTENTS))
    }

    /// Small numbers of which one may be extreme.
    fn modest<const N: usize>(&mut self, usual: usize) -> [usize; N] {
        std::array::from_fn(|_| self.near(usual))
    }

    fn activation(&mut self) -> Option<Activation> {
        self.of(&[None, Some(Activation::Silu)])
    }

    fn float(&mut self) -> DType {
        self.of(&[DType::F32, DType::F16, DType::BF16])
    }

    fn ty(&mut self, shape: &[usize]) -> TensorType {
        let shape: Vec<usize> = shape.iter().map(|&d| self.near(d)).collect();
        TensorType::new(self.float(), shape)
    }

    fn quantised(&mut self) -> Option<DType> {
        self.of(&[None, None, None, Some(DType::F16), Some(DType::F8E4M3), Some(DType::U8)])
    }

    /// An operand of a product that may be quantised.
    fn operand(&mut self, quantised: Option<DType>, shape: &[usize]) -> TensorType {
        let ty = self.ty(shape);
        if quantised.is_some() { TensorType::new(DType::F8E4M3, ty.shape) } else { ty }
    }

    fn norm(&mut self) -> Norm {
        let group = NormKind::Group { groups: self.of(&EXTENTS), frames: self.of(&EXTENTS) };
        Norm {
            kind: self.of(&[NormKind::Layer, NormKind::Rms, group]),
            epsilon: self.of(&NUMBERS),
            affine: self.of(&[Affine::None, Affine::Scale, Affine::ScaleShift]),
            activation: self.activation(),
            quantise: self.of(&[None, None, Some(2.0)]),
            measured: self.of(&[false, false, true]),
        }
    }

    fn statistics(&mut self) -> Option<Statistics> {
        self.flag().then(|| Statistics { groups: self.of(&EXTENTS), frames: self.of(&EXTENTS) })
    }

    fn affine_operands(&mut self, norm: &Norm, channels: usize) -> Vec<TensorType> {
        (0..norm.affine.operands()).map(|_| self.ty(&[channels])).collect()
    }

    /// An epilogue, and its operands for an output that may or may not be this one.
    fn epilogue(&mut self, output: &[usize]) -> (Vec<Stage>, Vec<TensorType>) {
        let stages = [
            Stage::Activate(Activation::Gelu),
            Stage::Scale(self.of(&NUMBERS)),
            Stage::AddChannels,
            Stage::Add,
            Stage::Mul,
            Stage::Blend { accumulator_first: self.flag() },
        ];
        let stages: Vec<Stage> = (0..self.of(&[0, 0, 1, 3])).map(|_| self.of(&stages)).collect();
        let mut operands = Vec::new();
        for stage in &stages {
            match stage {
                Stage::AddChannels => operands.push(self.ty(&output[output.len() - 1..])),
                Stage::Add | Stage::Mul => operands.push(self.ty(output)),
                Stage::Blend { .. } => operands.extend([self.ty(output), self.ty(&[1])]),
                Stage::Activate(_) | Stage::Scale(_) => {}
            }
        }
        (stages, operands)
    }

    fn conv(&mut self) -> (Op, Vec<TensorType>) {
        let [images, height, width, group_channels, group_out] = self.extents();
        let [kernel, stride, dilation] = [self.modest(1), self.modest(1), self.modest(1)];
        let (groups, frames) = (self.near(1), self.near(1));
        let padding = [self.modest(0), self.modest(0), self.modest(0)];
        let subpixel = self.flag();
        // The attributes of a sub-pixel convolution do not come by chance.
        let fixed = if subpixel && self.flag() { Some(Conv::subpixel()) } else { None };
        let [kernel, stride, dilation] = fixed
            .as_ref()
            .map_or([kernel, stride, dilation], |conv| [conv.kernel, conv.stride, conv.dilation]);
        let (padding, groups) = fixed.as_ref().map_or((padding, groups), |conv| (conv.padding, conv.groups));
        let group_out = if fixed.is_some() { group_out.wrapping_mul(4) } else { group_out };
        let [channels, out] = [group_channels, group_out].map(|n| n.wrapping_mul(groups));
        let quantised = self.quantised();
        let mut operands = vec![
            self.operand(quantised, &[images, height, width, channels]),
            self.operand(quantised, &[out, kernel[0], kernel[1], kernel[2], group_channels]),
        ];
        operands.extend(quantised.map(|_| TensorType::new(DType::F32, [out])));
        let bias = self.flag();
        operands.extend(bias.then(|| self.ty(&[out])));
        let prologue = self.flag().then(|| self.norm());
        operands.extend(
            prologue.iter().flat_map(|norm| self.affine_operands(norm, channels)).collect::<Vec<_>>(),
        );
        let (epilogue, more) = self.epilogue(&[images, height, width, out]);
        operands.extend(more);
        (
            Op::Conv(Conv {
                kernel,
                stride,
                padding,
                dilation,
                groups,
                frames,
                subpixel,
                quantised,
                bias,
                prologue,
                epilogue,
                statistics: self.statistics(),
            }),
            operands,
        )
    }

    fn linear(&mut self) -> (Op, Vec<TensorType>) {
        let [rows, channels, out] = self.extents();
        let quantised = self.quantised();
        let mut operands =
            vec![self.operand(quantised, &[rows, channels]), self.operand(quantised, &[out, channels])];
        operands.extend(quantised.map(|_| TensorType::new(DType::F32, [out])));
        let bias = self.flag();
        operands.extend(bias.then(|| self.ty(&[out])));
        let gate = self.activation();
        let prologue = self.flag().then(|| self.norm());
        operands.extend(
            prologue.iter().flat_map(|norm| self.affine_operands(norm, channels)).collect::<Vec<_>>(),
        );
        let (epilogue, more) = self.epilogue(&[rows, if gate.is_some() { out / 2 } else { out }]);
        operands.extend(more);
        let statistics = self.statistics();
        (Op::Linear(Linear { quantised, bias, gate, prologue, epilogue, statistics }), operands)
    }

    fn attention(&mut self) -> (Op, Vec<TensorType>) {
        let [batch, queries, keys] = self.extents();
        let frames = SequenceAxis::Frames { frames: self.of(&EXTENTS) };
        let diagonal = self.of(&[0, -1, i64::MIN, i64::MAX]);
        let window = self.of(&EXTENTS);
        let op = Attention {
            heads: self.of(&EXTENTS),
            head_dim: self.of(&EXTENTS),
            scale: self.of(&NUMBERS),
            axis: self.of(&[SequenceAxis::Positions, frames]),
            mask: self.of(&[
                Mask::None,
                Mask::Causal { diagonal },
                Mask::SlidingWindow { diagonal, window },
                Mask::Boolean,
                Mask::Additive,
            ]),
            key_lengths: self.flag(),
            boundaries: self.flag(),
            log_sum_exp: self.flag(),
            offsets: self.modest(0),
        };
        let width = op.heads.wrapping_mul(op.head_dim);
        let keys = if op.axis == SequenceAxis::Positions { keys } else { queries };
        let mut operands = vec![
            self.ty(&[batch, queries, width]),
            self.ty(&[batch, keys, width]),
            self.ty(&[batch, keys, width]),
        ];
        if let Mask::Boolean | Mask::Additive = op.mask {
            let mut mask = self.ty(&[1, op.heads, queries, keys]);
            if op.mask == Mask::Boolean {
                mask.dtype = DType::U8;
            }
            operands.push(mask);
        }
        operands.extend(op.key_lengths.then(|| TensorType::new(DType::I32, [batch])));
        if op.boundaries {
            let count = self.of(&EXTENTS);
            operands.extend([
                TensorType::new(DType::I32, [count]),
                TensorType::new(DType::I32, [self.near(count)]),
            ]);
        }
        (Op::Attention(op), operands)
    }

    fn attention_backward(&mut self) -> (Op, Vec<TensorType>) {
        let (Op::Attention(mut forward), mut operands) = self.attention() else { unreachable!() };
        forward.log_sum_exp = self.of(&[true, true, true, false]);
        let inputs: Vec<&TensorType> = operands.iter().collect();
        if let Ok(results) = Op::Attention(Attention { log_sum_exp: true, ..forward.clone() }).infer(&inputs)
        {
            operands.extend(results.iter().chain([&results[0]]).cloned());
        }
        (Op::AttentionBackward(AttentionBackward { forward }), operands)
    }

    fn sampler(&mut self) -> (Op, Vec<TensorType>) {
        let op = SamplerStep {
            guided: self.flag(),
            history: self.flag(),
            noise: self.flag(),
            blend: self.flag(),
            clip: self.of(&[None, Some(1.0), Some(f32::NAN)]),
            emit_denoised: self.flag(),
            emit_scaled: self.flag(),
        };
        let [images, rest] = self.extents();
        let predicted = if op.guided { images.wrapping_mul(2) } else { images };
        let mut operands = vec![self.ty(&[images, rest]), self.ty(&[predicted, rest])];
        operands.push(TensorType::new(DType::F32, [self.of(&EXTENTS), STEP_COLUMNS]));
        operands.push(TensorType::new(DType::I32, [1]));
        operands.extend(op.guided.then(|| TensorType::new(DType::F32, [self.of(&EXTENTS)])));
        operands.extend(op.history.then(|| self.ty(&[images, rest])));
        operands.extend(op.noise.then(|| self.ty(&[images, rest])));
        if op.blend {
            operands.extend([self.ty(&[images, rest]), TensorType::new(DType::F32, [self.near(1)])]);
        }
        (Op::SamplerStep(op), operands)
    }

    fn image(&mut self) -> TensorType {
        let shape = self.extents::<4>();
        self.ty(&shape)
    }

    /// An op of a kind, with operands that often fit it.
    fn op(&mut self, kind: u32) -> (Op, Vec<TensorType>) {
        let [a, b] = self.extents();
        match kind {
            0 => self.conv(),
            1 => self.linear(),
            2 => {
                let op = MatMul { transpose_a: self.flag(), transpose_b: self.flag() };
                (Op::MatMul(op), vec![self.ty(&[a, b, b]), self.ty(&[a, b, b])])
            }
            3 => {
                let norm = self.norm();
                let mut operands = vec![self.ty(&[a, b])];
                operands.extend(self.affine_operands(&norm, b));
                if norm.measured {
                    let [slabs, groups] = match norm.kind {
                        NormKind::Group { groups, frames } => [a.checked_div(frames).unwrap_or(0), groups],
                        NormKind::Layer | NormKind::Rms => [a, 1],
                    };
                    let [slabs, groups, two] = [self.near(slabs), self.near(groups), self.near(2)];
                    operands.push(TensorType::new(DType::F32, [slabs, groups, two]));
                }
                (Op::Norm(norm), operands)
            }
            4 => {
                let op = BatchNorm { epsilon: self.of(&NUMBERS) };
                let vectors = (0..4).map(|_| self.ty(&[b])).collect();
                (Op::BatchNorm(op), [vec![self.ty(&[a, b])], vectors].concat())
            }
            5 => (Op::Activate(Activation::Tanh), vec![self.ty(&[a, b])]),
            6 => (Op::Softmax, vec![self.ty(&[a, b])]),
            7 => (Op::Gate(Gate { activation: Activation::Gelu }), vec![self.ty(&[a, b])]),
            8 => self.attention(),
            9 => (Op::Add, vec![self.ty(&[a, 1]), self.ty(&[b])]),
            10 => (Op::Mul, vec![self.ty(&[a]), self.ty(&[b, 1])]),
            11 => {
                let op = Scale { factor: self.of(&NUMBERS), offset: self.of(&NUMBERS) };
                (Op::Scale(op), vec![self.ty(&[a, b])])
            }
            12 => (Op::Blend, vec![self.ty(&[a, b]), self.ty(&[a, b]), self.ty(&[1])]),
            13 => {
                let dtype = self.float();
                let parts = [a, b].map(|n| TensorType::new(dtype, [n, 2]));
                (Op::Concat(Concat { axis: self.near(0) }), parts[..self.of(&[0, 1, 2])].to_vec())
            }
            14 => {
                let op = Slice { axis: self.near(0), start: self.of(&EXTENTS), len: self.of(&EXTENTS) };
                (Op::Slice(op), vec![self.ty(&[a, b])])
            }
            15 => {
                let op = Upsample { interpolation: Interpolation::Nearest, size: [a, b] };
                (Op::Upsample(op), vec![self.image()])
            }
            16 => {
                let kind = self.of(&[PoolKind::Average, PoolKind::Max]);
                let [kernel, stride, padding] = [self.extents(), self.extents(), self.modest(0)];
                (Op::Pool(Pool { kind, kernel, stride, padding }), vec![self.image()])
            }
            17 => {
                let axes = self.of(&[vec![], vec![0], vec![0, 1], vec![a, b]]);
                (Op::Mean(Mean { axes }), vec![self.ty(&[a, b])])
            }
            18 => {
                let op = TimestepEmbedding {
                    width: a,
                    cosine_first: self.flag(),
                    frequency_shift: self.of(&NUMBERS),
                    max_period: self.of(&NUMBERS),
                    scale: self.of(&NUMBERS),
                };
                (Op::TimestepEmbedding(op), vec![self.ty(&[b])])
            }
            19 => {
                let ids = TensorType::new(DType::I32, [self.of(&EXTENTS), 2]);
                (Op::Embedding, vec![self.ty(&[a, b]), ids])
            }
            20 => {
                let to =
                    self.of(&[DType::F32, DType::F16, DType::BF16, DType::F8E4M3, DType::U8, DType::I32]);
                (Op::Cast(to), vec![self.ty(&[a, b])])
            }
            21 => {
                let shape = self.of(&[vec![b, a], vec![a.wrapping_mul(b)], vec![a, 1, b], vec![0, b]]);
                (Op::Reshape(Reshape { shape: shape.into() }), vec![self.ty(&[a, b])])
            }
            22 => self.sampler(),
            23 => {
                let mut shape: [usize; 4] = self.extents();
                let axis = self.near(1);
                if let Some(extent) = shape.get_mut(axis) {
                    *extent = (*extent).max(1);
                }
                let [to, taps] = self.modest(3);
                let first = TensorType::new(DType::I32, [self.near(to)]);
                let weights = TensorType::new(DType::I32, [to, taps]);
                (Op::Resample(Resample { axis }), vec![TensorType::new(DType::U8, shape), first, weights])
            }
            24 => {
                let [factor, activation] = std::array::from_fn(|_| self.of(&NUMBERS));
                let filters = Quantise::Filters { blocks: self.near(1), activation };
                let op = self.of(&[Quantise::Tensor { factor }, filters]);
                (Op::Quantise(op), vec![self.ty(&[a, b])])
            }
            25 => self.attention_backward(),
            _ => {
                let op = TemporalBlend { threshold: self.of(&[None, Some(0.1), Some(0.0)]) };
                let strength = TensorType::new(DType::F32, [1]);
                (Op::TemporalBlend(op), vec![self.ty(&[a, b]), self.ty(&[a, b]), strength])
            }
        }
    }
}

fn choices() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(any::<u32>(), 0..120)
}

/// Whether the op accepts its operands; what it gives then must be addressable.
fn check(op: &Op, operands: &[TensorType]) -> bool {
    let operands: Vec<&TensorType> = operands.iter().collect();
    let _ = op.to_string();
    let Ok(results) = op.infer(&operands) else { return false };
    assert!(results.iter().all(|r| r.checked_bytes().is_some()), "{op} of {operands:?} gives {results:?}");
    let _ = op.flops(&operands, &results.iter().collect::<Vec<_>>());
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics_and_results_are_addressable(kind in 0..KINDS, choices in choices()) {
        let (op, operands) = Choices(choices.into_iter()).op(kind);
        check(&op, &operands);
        // One operand too few, and operands of integers.
        check(&op, &operands[..operands.len().saturating_sub(1)]);
        let integers: Vec<TensorType> =
            operands.iter().map(|ty| TensorType::new(DType::I32, ty.shape.clone())).collect();
        check(&op, &integers);
    }
}

#[test]
fn every_kind_of_op_is_accepted_and_refused() {
    let mut runner = TestRunner::deterministic();
    for kind in 0..KINDS {
        let mut seen = [false; 2];
        for _ in 0..2000 {
            let choices = choices().new_tree(&mut runner).unwrap().current();
            let (op, operands) = Choices(choices.into_iter()).op(kind);
            seen[usize::from(check(&op, &operands))] = true;
        }
        assert_eq!(seen, [true, true], "kind {kind}");
    }
}
