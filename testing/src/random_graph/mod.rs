//! Random graphs made of what networks are made of: single ops, and the patterns that the passes look for.
//!
//! A graph is a function of a list of numbers. A test framework that shortens or lowers the numbers therefore simplifies
//! the graph.

use kinora_graph::{
    DType, Graph, GraphBuilder, GraphError, Phase, SharedError, Source, Tensor, TensorType, ValueId,
    op::{Activation, Concat, Conv, Interpolation, NormKind, Op, Pool, PoolKind, TemporalBlend},
};
use kinora_runtime::Tensors;

mod patterns;

/// Rows of an embedding's table.
const TABLE_ROWS: usize = 11;
/// Rows of a sampler's table.
const SAMPLER_STEPS: usize = 4;
/// Numbers kept for the sampler's step at the end.
const SAMPLER_CHOICES: usize = 15;

/// A stream of decisions; zeros when it has run out.
pub struct Choices<'a> {
    numbers: std::slice::Iter<'a, u32>,
}

impl<'a> Choices<'a> {
    pub fn new(numbers: &'a [u32]) -> Self {
        Choices { numbers: numbers.iter() }
    }

    /// A number below `n`.
    fn below(&mut self, n: usize) -> usize {
        self.numbers.next().map_or(0, |&x| x as usize % n)
    }

    fn of<T: Copy>(&mut self, options: &[T]) -> T {
        options[self.below(options.len())]
    }

    fn yes(&mut self) -> bool {
        self.below(2) == 1
    }

    fn left(&self) -> usize {
        self.numbers.len()
    }
}

struct Generator<'a, 'b> {
    g: GraphBuilder,
    choices: Choices<'a>,
    dtype: DType,
    /// What some weights and residuals are stored as.
    second_dtype: DType,
    frames: usize,
    /// Images so far, all of `[images, height, width, channels]` with the same number of images.
    images: Vec<ValueId>,
    context: ValueId,
    counter: usize,
    kinds: &'b mut Vec<&'static str>,
}

/// A random graph; `kinds` learns what went into it. Results: `y`, sometimes a value from the middle, sometimes those of a
/// sampler's step. One in eight has no images at all, one in four has a second element type.
pub fn random_graph(
    numbers: &[u32],
    dtype: DType,
    kinds: &mut Vec<&'static str>,
) -> Result<Graph, GraphError> {
    let mut choices = Choices::new(numbers);
    let mut g = GraphBuilder::new("random");
    let frames = choices.of(&[1, 2, 3]);
    let batch = choices.of(&[1, 2, 1, 2, 1, 2, 1, 0]);
    let (height, width) = (choices.of(&[1, 2, 5, 4]), choices.of(&[3, 1, 4, 7]));
    let channels = choices.of(&[4, 8, 12, 20]);
    let phase = choices.of(&[Phase::Step, Phase::Clip]);
    let x = g.input("x", TensorType::new(dtype, [batch * frames, height, width, channels]), Phase::Step)?;
    let tokens = choices.of(&[1, 3]);
    let context = g.input("context", TensorType::new(dtype, [batch, tokens, 6]), Phase::Clip)?;
    let second =
        g.input("second", TensorType::new(dtype, [batch * frames, height, width, channels]), phase)?;
    let second_dtype = choices.of(&[dtype, dtype, dtype, DType::F16, dtype, dtype, dtype, DType::BF16]);
    if batch == 0 {
        kinds.push("no images");
    }
    if second_dtype != dtype {
        kinds.push("two element types");
    }
    let images = vec![x, second];
    let mut generator =
        Generator { g, choices, dtype, second_dtype, frames, images, context, counter: 0, kinds };
    let mut last = x;
    let mut middle = None;
    while generator.choices.left() > SAMPLER_CHOICES && generator.counter < 40 {
        last = generator.grow()?;
        generator.images.push(last);
        if generator.choices.below(6) == 5 {
            middle = Some(last);
        }
    }
    let results = if generator.choices.below(4) == 3 { generator.sampler_step(last)? } else { vec![last] };
    let mut g = generator.g;
    g.output("y", results[0])?;
    for (index, &result) in results.iter().enumerate().skip(1) {
        g.output(&format!("also{index}"), result)?;
    }
    if let Some(middle) = middle {
        g.output("middle", middle)?;
    }
    Ok(g.finish())
}

impl Generator<'_, '_> {
    fn name(&mut self, kind: &'static str) -> String {
        self.counter += 1;
        self.kinds.push(kind);
        format!("{kind}{}", self.counter)
    }

    fn any_image(&mut self) -> ValueId {
        // The latest values most often, so that graphs grow deep rather than wide.
        let back = self.choices.of(&[1, 1, 1, 2, 3]).min(self.images.len());
        self.images[self.images.len() - back]
    }

    fn like(&mut self, x: ValueId) -> ValueId {
        let shape = self.g.shape(x).clone();
        let same: Vec<ValueId> = self.images.iter().copied().filter(|&v| *self.g.shape(v) == shape).collect();
        self.choices.of(&same)
    }

    /// As `like`, and of the same element type.
    fn alike(&mut self, x: ValueId) -> ValueId {
        let ty = self.g.ty(x).clone();
        let same: Vec<ValueId> = self.images.iter().copied().filter(|&v| *self.g.ty(v) == ty).collect();
        self.choices.of(&same)
    }

    fn parameter(&mut self, name: &str, shape: &[usize]) -> Result<ValueId, GraphError> {
        let mixed = self.second_dtype != self.dtype && self.choices.below(3) == 0;
        let dtype = if mixed { self.second_dtype } else { self.dtype };
        self.g.parameter(name, TensorType::new(dtype, shape))
    }

    /// Adds one op or one pattern.
    fn grow(&mut self) -> Result<ValueId, GraphError> {
        let x = self.any_image();
        match self.choices.below(26) {
            0 => self.conv(x),
            1 => self.activate(x),
            2 => self.norm(x),
            3 => self.linear(x),
            4 => self.residual_block(x),
            5 => self.self_attention(x),
            6 => self.cross_attention(x),
            7 => self.feed_forward(x),
            8 => self.add_or_mul(x),
            9 => self.scale(x),
            10 => self.blend(x),
            11 => self.batch_norm_after_conv(x),
            12 => self.concat_or_slice(x),
            13 => self.resample(x),
            14 => self.pool(x),
            15 => self.mean_and_broadcast(x),
            16 => self.softmax(x),
            17 => self.time_embedding(x),
            18 => self.duplicate(x),
            19 => self.constants(x),
            20 => self.matmul(x),
            21 => self.temporal_stride(x),
            22 => self.embedding_lookup(x),
            23 => self.mixed_residual(x),
            24 => self.picture(x),
            _ => self.temporal_blend(x),
        }
    }

    fn conv_of(&mut self, name: &str, x: ValueId, out: usize, conv: Conv) -> Result<ValueId, GraphError> {
        let channels = self.g.shape(x).channels();
        let [kt, kh, kw] = conv.kernel;
        let weight = self.parameter(&format!("{name}.weight"), &[out, kt, kh, kw, channels / conv.groups])?;
        let bias =
            if self.choices.yes() { Some(self.parameter(&format!("{name}.bias"), &[out])?) } else { None };
        self.g.conv(name, x, weight, bias, conv)
    }

    fn conv(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("conv");
        let channels = self.g.shape(x).channels();
        let conv = match self.choices.below(8) {
            0 => Conv::spatial([3, 3], 1, 1),
            1 => Conv::spatial([1, 1], 1, 0),
            2 => Conv::temporal(3, self.frames),
            3 => Conv { padding: [[0; 2], [1, 2], [0, 2]], ..Conv::spatial([3, 3], 2, 1) },
            4 => {
                self.kinds.push("3-D conv");
                let temporal = Conv::temporal(3, self.frames);
                let padding = [temporal.padding[0], [1, 1], [1, 1]];
                Conv { kernel: [3, 3, 3], padding, ..temporal }
            }
            5 => {
                self.kinds.push("dilated conv");
                Conv { dilation: [1, 2, 2], ..Conv::spatial([3, 3], 1, 2) }
            }
            6 => {
                self.kinds.push("depthwise conv");
                Conv { groups: channels, ..Conv::spatial([3, 3], 1, 1) }
            }
            _ => {
                Conv { groups: if channels.is_multiple_of(4) { 4 } else { 1 }, ..Conv::spatial([3, 3], 1, 1) }
            }
        };
        let out = if conv.groups == channels { channels } else { self.choices.of(&[channels, 4, 12, 20]) };
        self.conv_of(&name, x, out, conv)
    }

    fn activate(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("activate");
        let activation = self.choices.of(&Activation::ALL);
        self.g.activate(&name, x, activation)
    }

    fn norm(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("norm");
        let frames = self.frames;
        let channels = self.g.shape(x).channels();
        let groups = if channels.is_multiple_of(4) { 4 } else { 1 };
        let kind = self.choices.of(&[
            NormKind::Group { groups, frames: 1 },
            NormKind::Group { groups, frames },
            NormKind::Layer,
            NormKind::Rms,
        ]);
        let scale = if self.choices.yes() {
            Some(self.parameter(&format!("{name}.scale"), &[channels])?)
        } else {
            None
        };
        let shift = if scale.is_some() && self.choices.yes() {
            Some(self.parameter(&format!("{name}.shift"), &[channels])?)
        } else {
            None
        };
        // A group of a single element has no variance: an epsilon that is not tiny keeps rounding from being all there is.
        let y = self.g.norm(&name, x, kind, 0.05, scale, shift)?;
        if self.choices.yes() { self.activate(y) } else { Ok(y) }
    }

    fn linear_of(&mut self, name: &str, x: ValueId, out: usize) -> Result<ValueId, GraphError> {
        let channels = self.g.shape(x).channels();
        let weight = self.parameter(&format!("{name}.weight"), &[out, channels])?;
        let bias =
            if self.choices.yes() { Some(self.parameter(&format!("{name}.bias"), &[out])?) } else { None };
        self.g.linear(name, x, weight, bias)
    }

    fn linear(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("linear");
        let out = self.choices.of(&[self.g.shape(x).channels(), 4, 12, 24]);
        self.linear_of(&name, x, out)
    }

    fn add_or_mul(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("add_or_mul");
        let shape = self.g.shape(x).clone();
        let other = match self.choices.below(4) {
            0 => self.like(x),
            1 => self.parameter(&format!("{name}.channels"), &[shape.channels()])?,
            2 => self.parameter(&format!("{name}.images"), &[shape[0], 1, 1, shape.channels()])?,
            _ => self.parameter(&format!("{name}.plane"), &[shape[1], 1, 1])?,
        };
        if self.choices.yes() { self.g.mul(&name, x, other) } else { self.g.add(&name, x, other) }
    }

    fn scale(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("scale");
        let (factor, offset) = self.choices.of(&[(0.5, 0.0), (1.0, 0.0), (-1.5, 0.25)]);
        self.g.scale(&name, x, factor, offset)
    }

    fn blend(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("blend");
        let channels = self.g.shape(x).channels();
        let h = self.conv_of(&format!("{name}.conv"), x, channels, Conv::spatial([1, 1], 1, 0))?;
        let other = self.like(x);
        let images = self.g.shape(x)[0];
        let rows = self.choices.of(&[1, images]);
        let alpha = self.parameter(&format!("{name}.alpha"), &[rows])?;
        if self.choices.yes() {
            self.g.blend(&name, h, other, alpha)
        } else {
            self.g.blend(&name, other, h, alpha)
        }
    }

    fn concat_or_slice(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("concat_or_slice");
        let channels = self.g.shape(x).channels();
        if self.choices.yes() && channels >= 8 {
            return self.g.slice(&name, x, 3, 3, channels / 2);
        }
        let other = self.alike(x);
        let both = self.g.node(&name, Op::Concat(Concat { axis: 3 }), &[x, other])?[0];
        // Channels must not grow without end.
        if channels > 32 { self.g.slice(&format!("{name}.half"), both, 3, 0, 12) } else { Ok(both) }
    }

    fn resample(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("upsample");
        let shape = self.g.shape(x).clone();
        let interpolation = self.choices.of(&[Interpolation::Nearest, Interpolation::Bilinear]);
        let size = self.choices.of(&[[4, 3], [shape[1].min(6) * 2, shape[2].min(6) * 2], [3, 7]]);
        let y = self.g.upsample(&name, x, interpolation, size)?;
        // As in the networks: a convolution that the doubling may be folded into.
        let out = self.choices.of(&[0, 0, 6, 12]);
        match out {
            0 => Ok(y),
            out => self.conv_of(&format!("{name}.conv"), y, out, Conv::spatial([3, 3], 1, 1)),
        }
    }

    /// A picture of bytes in the size of `x`, added to it. Bytes come from an input: rounding to them would make a small
    /// difference of floats a large one.
    fn picture(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("resample");
        let shape = self.g.shape(x).clone();
        let size = self.choices.of(&[[1, 1], [3, 8], [9, 5]]);
        let ty = TensorType::new(DType::U8, [shape[0], size[0], size[1], shape[3]]);
        let phase = self.choices.of(&[Phase::Step, Phase::Clip]);
        let mut picture = self.g.input(&format!("{name}.picture"), ty, phase)?;
        let taps = self.choices.of(&[1, 2, 7]);
        for axis in self.choices.of(&[[1, 2], [2, 1]]) {
            let (from, to) = (self.g.shape(picture)[axis], shape[axis]);
            let first: Vec<i32> = (0..to).map(|i| (i * from / to) as i32 - taps as i32 / 2).collect();
            let weight = |i: usize| if i % 4 == 3 { -(1 << 19) } else { (1 << 22) / taps as i32 };
            let weights: Vec<i32> = (0..to * taps).map(weight).collect();
            let table = |values: &[i32], shape: &[usize]| {
                Tensor::from_slice(shape, values)
                    .map_err(|e| GraphError::Json(SharedError::new(format!("{name}: {e}"))))
            };
            let (first, weights) = (table(&first, &[to])?, table(&weights, &[to, taps])?);
            let first = self.g.constant(&format!("{name}.{axis}.first"), first)?;
            let weights = self.g.constant(&format!("{name}.{axis}.weights"), weights)?;
            picture = self.g.resample(&format!("{name}.{axis}"), [picture, first, weights], axis)?;
        }
        let picture = self.g.cast(&format!("{name}.cast"), picture, self.dtype)?;
        let picture = self.g.scale(&format!("{name}.range"), picture, 1.0 / 127.5, -1.0)?;
        self.g.add(&format!("{name}.add"), x, picture)
    }

    fn pool(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("pool");
        let kind = self.choices.of(&[PoolKind::Average, PoolKind::Max]);
        self.g.pool(&name, x, Pool { kind, kernel: [2, 3], stride: [1, 2], padding: [1, 1] })
    }

    fn mean_and_broadcast(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("mean");
        let axes: &[usize] = self.choices.of(&[&[1, 2][..], &[3][..], &[1][..]]);
        let mean = self.g.mean(&name, x, axes)?;
        self.g.add(&format!("{name}.add"), x, mean)
    }

    fn softmax(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("softmax");
        self.g.softmax(&name, x)
    }

    /// The same layer twice under two names, and their sum.
    fn duplicate(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("duplicate");
        let a = self.g.scale(&format!("{name}.a"), x, 0.75, 0.0)?;
        let b = self.g.scale(&format!("{name}.b"), x, 0.75, 0.0)?;
        let unused = self.g.activate(&format!("{name}.unused"), b, Activation::Tanh)?;
        let _ = unused;
        self.g.add(&name, a, b)
    }

    /// A channel vector computed from constants and parameters alone.
    fn constants(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("constants");
        let channels = self.g.shape(x).channels();
        let values: Vec<f32> = (0..channels).map(|i| 0.1 * i as f32 - 0.3).collect();
        let tensor = Tensor::from_f32(self.dtype, [channels], &values)
            .map_err(|e| GraphError::Json(SharedError::new(format!("{name}: {e}"))))?;
        let c = self.g.constant(&format!("{name}.values"), tensor)?;
        let c = self.g.activate(&format!("{name}.tanh"), c, Activation::Tanh)?;
        let c = if self.choices.yes() {
            let p = self.parameter(&format!("{name}.parameter"), &[channels])?;
            self.g.mul(&format!("{name}.product"), c, p)?
        } else {
            c
        };
        self.g.add(&name, x, c)
    }

    fn temporal_blend(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("temporal_blend");
        let previous = self.like(x);
        let strength = self.g.parameter(&format!("{name}.strength"), TensorType::new(DType::F32, [1]))?;
        let threshold = self.choices.of(&[None, Some(1.5)]);
        self.g.temporal_blend(&name, x, previous, strength, TemporalBlend { threshold })
    }
}

/// Random weights and inputs, of a size that keeps results near 1. Variances are positive.
pub fn random_tensors(graph: &Graph, seed: u64) -> (Tensors, Tensors) {
    let (mut parameters, mut inputs) = (Tensors::new(), Tensors::new());
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for (_, value) in graph.value_ids() {
        let target = match value.source {
            Source::Parameter => &mut parameters,
            Source::Input(_) => &mut inputs,
            Source::Constant(_) | Source::Node { .. } => continue,
        };
        let fan_in = value.ty.shape.get(1..).map_or(1, |s| s.iter().product::<usize>().max(1));
        let weight = value.name.ends_with(".weight");
        let scale = if weight { 1.7 / (fan_in as f32).sqrt() } else { 1.0 };
        let keys = value.ty.shape.last().copied().unwrap_or(1);
        let mut uniform = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
        };
        let data: Vec<f32> = (0..value.ty.elements())
            .map(|index| {
                let uniform = uniform();
                let below = |end: usize| ((uniform + 1.0) * 0.5 * end as f32).floor().min(end as f32 - 1.0);
                match (value.name.rsplit('.').next(), value.ty.dtype) {
                    (Some("ids"), _) => below(TABLE_ROWS),
                    (Some("step"), DType::I32) => below(SAMPLER_STEPS),
                    // None, some, all, and more than there are.
                    (Some("lengths"), _) => below(8) - 1.0,
                    // Short sequences, and what is outside them.
                    (Some("query_boundaries" | "key_boundaries"), _) => 2.0 * index as f32,
                    // One key in four is hidden, and now and then all of them.
                    (Some("mask"), DType::U8) => f32::from(uniform > -0.5 && index / keys.max(1) % 5 != 4),
                    (Some("mask"), _) if uniform < -0.5 || index / keys.max(1) % 5 == 4 => f32::NEG_INFINITY,
                    (Some("picture"), _) => below(256),
                    (Some("variance"), _) => uniform.abs() + 0.2,
                    _ => uniform * scale,
                }
            })
            .collect();
        let tensor = Tensor::from_f32(value.ty.dtype, value.ty.shape.clone(), &data).unwrap();
        target.insert(value.name.clone(), tensor);
    }
    (parameters, inputs)
}
