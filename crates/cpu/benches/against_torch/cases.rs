//! The shapes: a small SVD-like UNet (widths 128 to 512, 8 frames, 32×32 latents) and single layers of the full one.

use kinora_graph::{
    DType, Graph, GraphBuilder, GraphError, Phase, Source, Tensor, TensorType, ValueId,
    op::{Activation, Attention, Conv, NormKind},
};
use serde_json::{Value, json};

/// What is computed, in our terms and in PyTorch's.
#[derive(Clone, Copy)]
pub enum Work {
    /// A spatial convolution with bias, and what a ResNet block adds to it.
    Conv {
        images: usize,
        size: usize,
        input: usize,
        output: usize,
        kernel: usize,
        stride: usize,
        embedding: bool,
        silu: bool,
        residual: bool,
    },
    /// A 3×1×1 convolution over frames.
    Temporal { frames: usize, size: usize, channels: usize },
    /// A linear layer with bias.
    Linear { rows: usize, input: usize, output: usize, geglu: bool, residual: bool },
    /// Attention over positions.
    Attention { batch: usize, queries: usize, keys: usize, heads: usize, head_dim: usize },
    /// Attention over frames.
    Frames { frames: usize, positions: usize, heads: usize, head_dim: usize },
    /// Group norm and SiLU; `frames` images share statistics.
    GroupNorm { images: usize, frames: usize, size: usize, channels: usize },
    /// Layer norm.
    LayerNorm { rows: usize, channels: usize },
}

/// One row of the table.
pub struct Case {
    /// For people.
    pub name: &'static str,
    /// What kind of op it is.
    pub family: &'static str,
    /// What is computed.
    pub work: Work,
}

/// A plain convolution of 8 images.
const fn conv(size: usize, input: usize, output: usize, kernel: usize, stride: usize) -> Work {
    Work::Conv {
        images: 8,
        size,
        input,
        output,
        kernel,
        stride,
        embedding: false,
        silu: false,
        residual: false,
    }
}

/// All cases.
pub fn all() -> Vec<Case> {
    let case = |family, name, work| Case { name, family, work };
    let block = |images, size, channels| Work::Conv {
        images,
        size,
        input: channels,
        output: channels,
        kernel: 3,
        stride: 1,
        embedding: true,
        silu: true,
        residual: true,
    };
    let linear = |rows, input, output| Work::Linear { rows, input, output, geglu: false, residual: false };
    vec![
        case("conv", "conv 3×3 8→128, 8×32×32", conv(32, 8, 128, 3, 1)),
        case("conv", "conv 3×3 128→128, 8×32×32", conv(32, 128, 128, 3, 1)),
        case("conv", "conv 3×3 256→256, 8×16×16", conv(16, 256, 256, 3, 1)),
        case("conv", "conv 3×3 512→512, 8×8×8", conv(8, 512, 512, 3, 1)),
        case("conv", "conv 3×3 384→128, 8×32×32", conv(32, 384, 128, 3, 1)),
        case("conv", "conv 3×3 stride 2 128→128, 8×32×32", conv(32, 128, 128, 3, 2)),
        case("conv", "conv 1×1 384→128, 8×32×32", conv(32, 384, 128, 1, 1)),
        case("conv", "conv 3×3 128→4, 8×32×32", conv(32, 128, 4, 3, 1)),
        case("conv", "conv 3×3 +emb silu +residual 128, 8×32×32", block(8, 32, 128)),
        case("conv", "conv 3×3 +emb silu +residual 256, 8×16×16", block(8, 16, 256)),
        case("conv", "conv 3×3 +emb silu +residual 320, 1×64×64", block(1, 64, 320)),
        case("conv", "conv 3×1×1 128, 8 frames 32×32", Work::Temporal { frames: 8, size: 32, channels: 128 }),
        case("conv", "conv 3×1×1 256, 8 frames 16×16", Work::Temporal { frames: 8, size: 16, channels: 256 }),
        case("conv", "conv 3×1×1 512, 8 frames 8×8", Work::Temporal { frames: 8, size: 8, channels: 512 }),
        case("linear", "linear 8192×128→384 (qkv)", linear(8192, 128, 384)),
        case("linear", "linear 2048×256→768 (qkv)", linear(2048, 256, 768)),
        case("linear", "linear 512×512→1536 (qkv)", linear(512, 512, 1536)),
        case(
            "linear",
            "linear geglu 8192×128→2·512",
            Work::Linear { rows: 8192, input: 128, output: 1024, geglu: true, residual: false },
        ),
        case(
            "linear",
            "linear geglu 2048×256→2·1024",
            Work::Linear { rows: 2048, input: 256, output: 2048, geglu: true, residual: false },
        ),
        case(
            "linear",
            "linear +residual 8192×512→128",
            Work::Linear { rows: 8192, input: 512, output: 128, geglu: false, residual: true },
        ),
        case(
            "linear",
            "linear +residual 2048×1024→256",
            Work::Linear { rows: 2048, input: 1024, output: 256, geglu: false, residual: true },
        ),
        case("linear", "linear 77×1024→512 (context)", linear(77, 1024, 512)),
        case("linear", "linear 8×512→512 (embedding)", linear(8, 512, 512)),
        case(
            "attention",
            "attention 8×2×1024×64",
            Work::Attention { batch: 8, queries: 1024, keys: 1024, heads: 2, head_dim: 64 },
        ),
        case(
            "attention",
            "attention 8×4×256×64",
            Work::Attention { batch: 8, queries: 256, keys: 256, heads: 4, head_dim: 64 },
        ),
        case(
            "attention",
            "attention 8×8×64×64",
            Work::Attention { batch: 8, queries: 64, keys: 64, heads: 8, head_dim: 64 },
        ),
        case(
            "attention",
            "attention 1×5×4096×64",
            Work::Attention { batch: 1, queries: 4096, keys: 4096, heads: 5, head_dim: 64 },
        ),
        case(
            "attention",
            "attention 2×8×1024×40",
            Work::Attention { batch: 2, queries: 1024, keys: 1024, heads: 8, head_dim: 40 },
        ),
        case(
            "attention",
            "attention 8×4×256×64, 77 keys",
            Work::Attention { batch: 8, queries: 256, keys: 77, heads: 4, head_dim: 64 },
        ),
        case(
            "attention",
            "attention over 8 frames, 1024×2×64",
            Work::Frames { frames: 8, positions: 1024, heads: 2, head_dim: 64 },
        ),
        case(
            "attention",
            "attention over 14 frames, 256×4×64",
            Work::Frames { frames: 14, positions: 256, heads: 4, head_dim: 64 },
        ),
        case(
            "norm",
            "group norm silu 8×32×32×128",
            Work::GroupNorm { images: 8, frames: 1, size: 32, channels: 128 },
        ),
        case(
            "norm",
            "group norm silu 8×16×16×256",
            Work::GroupNorm { images: 8, frames: 1, size: 16, channels: 256 },
        ),
        case(
            "norm",
            "group norm silu over 8 frames 32×32×128",
            Work::GroupNorm { images: 8, frames: 8, size: 32, channels: 128 },
        ),
        case("norm", "layer norm 8192×128", Work::LayerNorm { rows: 8192, channels: 128 }),
        case("norm", "layer norm 2048×256", Work::LayerNorm { rows: 2048, channels: 256 }),
    ]
}

/// Groups and epsilon of every group norm here.
const GROUPS: usize = 32;
const EPSILON: f32 = 1e-5;

impl Case {
    /// The graph: inputs and weights named as the peer names them, the result `y`.
    pub fn graph(&self) -> Result<Graph, GraphError> {
        let mut g = GraphBuilder::new(self.name);
        let ty = |shape: &[usize]| TensorType::new(DType::F32, shape);
        // An input that is a result as well cannot be overwritten: in a network something else may still read it, and
        // every replay starts from the same values.
        let input = |g: &mut GraphBuilder, name: &str, shape: &[usize]| {
            let id = g.input(name, ty(shape), Phase::Step)?;
            g.output(name, id)?;
            Ok::<_, GraphError>(id)
        };
        let weight = |g: &mut GraphBuilder, name: &str, shape: &[usize]| g.parameter(name, ty(shape));
        let y: ValueId = match self.work {
            Work::Conv {
                images,
                size,
                input: channels,
                output,
                kernel,
                stride,
                embedding,
                silu,
                residual,
            } => {
                let x = input(&mut g, "x", &[images, size, size, channels])?;
                let w = weight(&mut g, "weight", &[output, 1, kernel, kernel, channels])?;
                let b = weight(&mut g, "bias", &[output])?;
                let mut y =
                    g.conv("conv", x, w, Some(b), Conv::spatial([kernel, kernel], stride, kernel / 2))?;
                if embedding {
                    let e = input(&mut g, "embedding", &[images, 1, 1, output])?;
                    y = g.add("embedding", y, e)?;
                }
                if silu {
                    y = g.activate("silu", y, Activation::Silu)?;
                }
                if residual {
                    let shape = g.shape(y).to_vec();
                    let r = input(&mut g, "residual", &shape)?;
                    y = g.add("residual", y, r)?;
                }
                y
            }
            Work::Temporal { frames, size, channels } => {
                let x = input(&mut g, "x", &[frames, size, size, channels])?;
                let w = weight(&mut g, "weight", &[channels, 3, 1, 1, channels])?;
                let b = weight(&mut g, "bias", &[channels])?;
                g.conv("conv", x, w, Some(b), Conv::temporal(3, frames))?
            }
            Work::Linear { rows, input: channels, output, geglu, residual } => {
                let x = input(&mut g, "x", &[rows, channels])?;
                let w = weight(&mut g, "weight", &[output, channels])?;
                let b = weight(&mut g, "bias", &[output])?;
                let mut y = g.linear("linear", x, w, Some(b))?;
                if geglu {
                    y = g.geglu("geglu", y)?;
                }
                if residual {
                    let r = input(&mut g, "residual", &[rows, output])?;
                    y = g.add("residual", y, r)?;
                }
                y
            }
            Work::Attention { batch, queries, keys, heads, head_dim } => {
                let q = input(&mut g, "q", &[batch, queries, heads * head_dim])?;
                let k = input(&mut g, "k", &[batch, keys, heads * head_dim])?;
                let v = input(&mut g, "v", &[batch, keys, heads * head_dim])?;
                g.attention("attention", [q, k, v], &[], Attention::over_positions(heads, head_dim))?
            }
            Work::Frames { frames, positions, heads, head_dim } => {
                let shape = [frames, positions, heads * head_dim];
                let q = input(&mut g, "q", &shape)?;
                let k = input(&mut g, "k", &shape)?;
                let v = input(&mut g, "v", &shape)?;
                g.attention("attention", [q, k, v], &[], Attention::over_frames(heads, head_dim, frames))?
            }
            Work::GroupNorm { images, frames, size, channels } => {
                let x = input(&mut g, "x", &[images, size, size, channels])?;
                let scale = weight(&mut g, "scale", &[channels])?;
                let shift = weight(&mut g, "shift", &[channels])?;
                let kind = NormKind::Group { groups: GROUPS, frames };
                let y = g.norm("norm", x, kind, EPSILON, Some(scale), Some(shift))?;
                g.activate("silu", y, Activation::Silu)?
            }
            Work::LayerNorm { rows, channels } => {
                let x = input(&mut g, "x", &[rows, channels])?;
                let scale = weight(&mut g, "scale", &[channels])?;
                let shift = weight(&mut g, "shift", &[channels])?;
                g.norm("norm", x, NormKind::Layer, EPSILON, Some(scale), Some(shift))?
            }
        };
        g.output("y", y)?;
        Ok(g.finish())
    }

    /// The request to the peer, without its tensors.
    pub fn peer_request(&self) -> Value {
        match self.work {
            Work::Conv { kernel, stride, silu, .. } => {
                json!({"kind": "conv2d", "stride": stride, "padding": kernel / 2, "silu": silu})
            }
            Work::Temporal { frames, .. } => json!({"kind": "conv_temporal", "frames": frames}),
            Work::Linear { geglu, .. } => json!({"kind": "linear", "geglu": geglu}),
            Work::Attention { heads, .. } => json!({"kind": "attention", "heads": heads}),
            Work::Frames { frames, heads, .. } => {
                json!({"kind": "attention_frames", "frames": frames, "heads": heads})
            }
            Work::GroupNorm { frames, .. } => {
                json!({"kind": "group_norm", "frames": frames, "groups": GROUPS, "epsilon": EPSILON})
            }
            Work::LayerNorm { .. } => json!({"kind": "layer_norm", "epsilon": EPSILON}),
        }
    }

    /// Fresh random tensors for every input and weight; weights of the size that keeps results near 1.
    pub fn tensors(&self, graph: &Graph) -> Vec<(String, Tensor)> {
        let seed = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |elapsed| elapsed.subsec_nanos());
        let mut state = u64::from(seed) | 1;
        let mut uniform = move || {
            // xorshift64*, the upper bits of it.
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 40) as f32 / (1u32 << 23) as f32 - 1.0
        };
        graph
            .value_ids()
            .filter(|(_, v)| !matches!(v.source, Source::Node { .. }))
            .filter_map(|(_, value)| {
                let fan_in = value.ty.shape[1..].iter().product::<usize>().max(1);
                let scale =
                    if value.source == Source::Parameter { 1.7 / (fan_in as f32).sqrt() } else { 1.7 };
                let data: Vec<f32> = (0..value.ty.elements()).map(|_| uniform() * scale).collect();
                Some((value.name.clone(), Tensor::from_slice(value.ty.shape.clone(), &data).ok()?))
            })
            .collect()
    }
}
