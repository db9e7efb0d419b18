//! A small graph for each family of ops.

use kinora_graph::{
    DType, Graph, GraphBuilder, GraphError, Phase, TensorType, ValueId,
    op::{
        Activation, Attention, Conv, Interpolation, NormKind, Pool, PoolKind, STEP_COLUMNS, SamplerStep,
        TimestepEmbedding,
    },
};

/// A family of ops.
#[derive(Clone, Copy)]
pub struct Family {
    pub name: &'static str,
    build: fn(&mut Builder) -> Result<(), GraphError>,
}

pub const FAMILIES: [Family; 7] = [
    Family { name: "convolutions", build: convolutions },
    Family { name: "products", build: products },
    Family { name: "attention", build: attention },
    Family { name: "norms", build: norms },
    Family { name: "elements", build: elements },
    Family { name: "pictures", build: pictures },
    Family { name: "sampler", build: sampler },
];

impl Family {
    /// The family's graph, with images and weights of an element type.
    pub fn graph(&self, dtype: DType) -> Result<Graph, GraphError> {
        let mut builder = Builder { graph: GraphBuilder::new(self.name), dtype };
        (self.build)(&mut builder)?;
        Ok(builder.graph.finish())
    }
}

struct Builder {
    graph: GraphBuilder,
    dtype: DType,
}

impl Builder {
    fn input(&mut self, name: &str, shape: &[usize]) -> Result<ValueId, GraphError> {
        self.graph.input(name, TensorType::new(self.dtype, shape), Phase::Step)
    }

    fn f32s(&mut self, name: &str, shape: &[usize]) -> Result<ValueId, GraphError> {
        self.graph.input(name, TensorType::new(DType::F32, shape), Phase::Step)
    }

    fn weight(&mut self, name: &str, shape: &[usize]) -> Result<ValueId, GraphError> {
        self.graph.parameter(name, TensorType::new(self.dtype, shape))
    }
}

/// Four frames, so that there is a clip.
const FRAMES: usize = 4;

fn convolutions(b: &mut Builder) -> Result<(), GraphError> {
    let x = b.input("x", &[FRAMES, 18, 14, 40])?;
    let (weight, bias) = (b.weight("weight", &[64, 1, 3, 3, 40])?, b.weight("bias", &[64])?);
    let y = b.graph.conv("spatial", x, weight, Some(bias), Conv::spatial([3, 3], 1, 1))?;
    let weight = b.weight("strided.weight", &[48, 1, 3, 3, 64])?;
    let small = b.graph.conv("strided", y, weight, None, Conv::spatial([3, 3], 2, 1))?;
    let weight = b.weight("temporal.weight", &[64, 3, 1, 1, 64])?;
    let clip = b.graph.conv("temporal", y, weight, None, Conv::temporal(3, FRAMES))?;
    let sum = b.graph.add("residual", clip, y)?;
    b.graph.output("strided", small)?;
    b.graph.output("sum", sum)
}

fn products(b: &mut Builder) -> Result<(), GraphError> {
    let x = b.input("x", &[2, 75, 96])?;
    let (weight, bias) = (b.weight("weight", &[320, 96])?, b.weight("bias", &[320])?);
    let wide = b.graph.linear("linear", x, weight, Some(bias))?;
    let gated = b.graph.geglu("geglu", wide)?;
    let weight = b.weight("back.weight", &[96, 160])?;
    let back = b.graph.linear("back", gated, weight, None)?;
    let sum = b.graph.add("residual", back, x)?;
    b.graph.output("y", sum)
}

fn attention(b: &mut Builder) -> Result<(), GraphError> {
    let (heads, width) = (2, 64);
    let operand = |b: &mut Builder, name: &str| b.input(name, &[FRAMES, 33, heads * width]);
    let qkv = [operand(b, "q")?, operand(b, "k")?, operand(b, "v")?];
    let y = b.graph.attention("positions", qkv, &[], Attention::over_positions(heads, width))?;
    let z = b.graph.attention("frames", qkv, &[], Attention::over_frames(heads, width, FRAMES))?;
    b.graph.output("positions", y)?;
    b.graph.output("frames", z)
}

fn norms(b: &mut Builder) -> Result<(), GraphError> {
    let x = b.input("x", &[FRAMES, 9, 7, 64])?;
    let (scale, shift) = (b.weight("scale", &[64])?, b.weight("shift", &[64])?);
    for (name, kind) in [
        ("group", NormKind::Group { groups: 32, frames: 1 }),
        ("clip", NormKind::Group { groups: 32, frames: FRAMES }),
        ("layer", NormKind::Layer),
        ("rms", NormKind::Rms),
    ] {
        let shift = (kind != NormKind::Rms).then_some(shift);
        let y = b.graph.norm(name, x, kind, 1e-5, Some(scale), shift)?;
        let y = b.graph.activate(&format!("{name}.silu"), y, Activation::Silu)?;
        b.graph.output(name, y)?;
    }
    let y = b.graph.softmax("softmax", x)?;
    b.graph.output("softmax", y)
}

fn elements(b: &mut Builder) -> Result<(), GraphError> {
    let (x, y) = (b.input("x", &[FRAMES, 35, 24])?, b.input("y", &[FRAMES, 35, 24])?);
    let alpha = b.weight("alpha", &[1])?;
    let blended = b.graph.blend("blend", x, y, alpha)?;
    let gelu = b.graph.activate("gelu", blended, Activation::Gelu)?;
    let product = b.graph.mul("mul", gelu, y)?;
    let scaled = b.graph.scale("scale", product, 0.5, 0.25)?;
    let joined = b.graph.concat("concat", &[scaled, x], 2)?;
    let part = b.graph.slice("slice", joined, 2, 7, 30)?;
    let mean = b.graph.mean("mean", part, &[1])?;
    b.graph.output("part", part)?;
    b.graph.output("mean", mean)
}

fn pictures(b: &mut Builder) -> Result<(), GraphError> {
    let x = b.input("x", &[2, 10, 14, 16])?;
    let nearest = b.graph.upsample("nearest", x, Interpolation::Nearest, [20, 28])?;
    let bilinear = b.graph.upsample("bilinear", x, Interpolation::Bilinear, [15, 21])?;
    let pool = Pool { kind: PoolKind::Average, kernel: [2, 2], stride: [2, 2], padding: [0, 0] };
    let pooled = b.graph.pool("pool", x, pool)?;
    b.graph.output("nearest", nearest)?;
    b.graph.output("bilinear", bilinear)?;
    b.graph.output("pooled", pooled)
}

/// As diffusers embeds timesteps.
const TIMESTEPS: TimestepEmbedding =
    TimestepEmbedding { width: 64, cosine_first: true, frequency_shift: 0.0, max_period: 1e4, scale: 1.0 };

fn sampler(b: &mut Builder) -> Result<(), GraphError> {
    let t = b.f32s("t", &[3])?;
    let embedded = b.graph.timestep_embedding("timesteps", t, TIMESTEPS)?;
    b.graph.output("embedded", embedded)?;
    let sample = b.f32s("sample", &[FRAMES, 6, 5, 4])?;
    let prediction = b.input("prediction", &[2 * FRAMES, 6, 5, 4])?;
    let table = b.f32s("table", &[3, STEP_COLUMNS])?;
    let step = b.graph.input("step", TensorType::new(DType::I32, [1]), Phase::Step)?;
    let guidance = b.f32s("guidance", &[FRAMES])?;
    let op = SamplerStep { guided: true, emit_denoised: true, ..SamplerStep::default() };
    let results = b.graph.sampler_step("step", &[sample, prediction, table, step, guidance], op)?;
    for (name, value) in ["next", "denoised"].into_iter().zip(results) {
        b.graph.output(name, value)?;
    }
    Ok(())
}
