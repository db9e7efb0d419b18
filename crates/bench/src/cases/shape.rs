//! The shape of a layer, as the tables write it.

use kinora_graph::{
    Graph, Source,
    op::{Prediction, StepCoefficients},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Groups and epsilon of every norm here.
pub(super) const GROUPS: usize = 32;
pub(super) const EPSILON: f32 = 1e-5;

fn one() -> usize {
    1
}

/// What is computed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Work {
    /// A convolution with bias, and what a ResNet block adds to it.
    Conv(ConvShape),
    /// A linear layer with bias.
    Linear {
        /// Rows of the input.
        rows: usize,
        /// Its channels.
        r#in: usize,
        /// Channels of the product.
        out: usize,
        /// Whether layer norm precedes it.
        #[serde(default)]
        norm: bool,
        /// Whether one half of them gates the other.
        #[serde(default)]
        geglu: bool,
        /// Whether a residual is added to the result.
        #[serde(default)]
        residual: bool,
    },
    /// Attention over positions, or over the frames of clips, whose positions are then the batch.
    Attention {
        /// Sequences.
        batch: usize,
        /// Heads.
        heads: usize,
        /// Queries of a sequence.
        queries: usize,
        /// Channels of a head.
        head: usize,
        /// Keys of a sequence, if they are not as many as the queries.
        keys: Option<usize>,
        /// Clips, if the queries are their frames.
        clips: Option<usize>,
        /// Whether a query sees only the keys up to its own, over positions. Operations are counted as if it saw them all.
        #[serde(default)]
        causal: bool,
        /// The most keys that a query sees, the last ones up to its own, over positions.
        window: Option<usize>,
    },
    /// The gradients of attention over positions, from the result of an attention that ran before.
    AttentionBackward {
        /// Sequences.
        batch: usize,
        /// Heads.
        heads: usize,
        /// Queries and keys of a sequence.
        queries: usize,
        /// Channels of a head.
        head: usize,
        /// As for attention.
        #[serde(default)]
        causal: bool,
    },
    /// Group norm, over the frames of a clip if there are several.
    GroupNorm {
        /// Images.
        images: usize,
        /// Frames that share statistics.
        #[serde(default = "one")]
        frames: usize,
        /// Height of an image.
        height: usize,
        /// Its width.
        width: usize,
        /// Its channels.
        channels: usize,
        /// Whether SiLU follows.
        #[serde(default)]
        silu: bool,
    },
    /// Layer norm.
    LayerNorm(Rows),
    /// A sum of two tensors.
    Add(Rows),
    /// SiLU of every element.
    Silu(Rows),
    /// GEGLU of a tensor of twice the channels.
    Geglu(Rows),
    /// A sampler step of a guided clip: guidance, the step of Euler's method, and the scaling of the next input.
    SamplerStep(Latents),
}

/// The latents of a clip.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latents {
    /// Frames.
    pub frames: usize,
    /// Height of a frame's latents.
    pub height: usize,
    /// Their width.
    pub width: usize,
    /// Their channels.
    pub channels: usize,
}

impl Latents {
    /// The noise levels that the step leads from and to: of the middle of a clip.
    const SIGMA: f64 = 10.0;
    const NEXT: f64 = 7.0;

    /// The step's row of coefficients.
    pub(super) fn coefficients() -> StepCoefficients {
        StepCoefficients::euler(Prediction::Velocity, Self::SIGMA, Self::NEXT)
    }
}

/// Rows of channels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rows {
    /// Rows.
    pub rows: usize,
    /// Channels of the result.
    pub channels: usize,
}

/// A convolution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvShape {
    /// Images: of all clips, all frames.
    pub images: usize,
    /// Height of an image.
    pub height: usize,
    /// Its width.
    pub width: usize,
    /// Its channels.
    pub r#in: usize,
    /// Channels of the result.
    pub out: usize,
    /// Frames, height and width of the kernel.
    pub kernel: [usize; 3],
    /// Its stride in height and width.
    #[serde(default = "one")]
    pub stride: usize,
    /// Frames of a clip, if the kernel reads several.
    #[serde(default = "one")]
    pub frames: usize,
    /// Whether group norm and SiLU precede it.
    #[serde(default)]
    pub norm: bool,
    /// Whether batch norm follows.
    #[serde(default)]
    pub batch_norm: bool,
    /// Whether a vector is added to every image.
    #[serde(default)]
    pub embedding: bool,
    /// Whether SiLU follows.
    #[serde(default)]
    pub silu: bool,
    /// Whether a residual is added to the result.
    #[serde(default)]
    pub residual: bool,
}

impl Work {
    /// What kind of op it is.
    pub fn family(&self) -> &'static str {
        match self {
            Work::Conv(_) => "conv",
            Work::Linear { .. } => "linear",
            Work::Attention { .. } => "attention",
            Work::AttentionBackward { .. } => "attention_backward",
            Work::GroupNorm { .. } | Work::LayerNorm(_) => "norm",
            Work::Add(_) | Work::Silu(_) | Work::Geglu(_) => "elementwise",
            Work::SamplerStep(_) => "sampler",
        }
    }

    /// The same kind of work, but little of it: fewer images and smaller extents, with channels that choose the same kernels.
    pub fn reduced(self) -> Work {
        let less = |count: usize, most: usize| count.min(most);
        match self {
            Work::Conv(c) => Work::Conv(ConvShape {
                images: c.frames.max(less(c.images, 2)),
                height: less(c.height, 16),
                width: less(c.width, 16),
                r#in: less(c.r#in, 128),
                out: less(c.out, 128),
                ..c
            }),
            Work::Linear { rows, r#in, out, norm, geglu, residual } => Work::Linear {
                rows: less(rows, 1024),
                r#in: less(r#in, 320),
                out: less(out, 1280),
                norm,
                geglu,
                residual,
            },
            Work::Attention { batch, heads, queries, head, keys, clips, causal, window } => {
                let batch = if clips.is_some() { less(batch, 128) } else { less(batch, 1) };
                Work::Attention {
                    batch,
                    heads: less(heads, 4),
                    queries: less(queries, 512),
                    head,
                    keys,
                    clips: clips.map(|_| 1),
                    causal,
                    window: window.map(|window| less(window, 128)),
                }
            }
            Work::AttentionBackward { batch, heads, queries, head, causal } => Work::AttentionBackward {
                batch: less(batch, 1),
                heads: less(heads, 2),
                queries: less(queries, 512),
                head,
                causal,
            },
            Work::GroupNorm { images, frames, height, width, channels, silu } => Work::GroupNorm {
                images: frames.max(less(images, 2)),
                frames,
                height: less(height, 16),
                width: less(width, 16),
                channels: less(channels, 320),
                silu,
            },
            Work::LayerNorm(shape) => Work::LayerNorm(shape.reduced()),
            Work::Add(shape) => Work::Add(shape.reduced()),
            Work::Silu(shape) => Work::Silu(shape.reduced()),
            Work::Geglu(shape) => Work::Geglu(shape.reduced()),
            // There is little of it in any case.
            Work::SamplerStep(latents) => Work::SamplerStep(latents),
        }
    }

    /// The request to a peer, without its tensors.
    pub fn peer_request(&self) -> Value {
        match *self {
            Work::Conv(ConvShape { stride, frames, norm, batch_norm, silu, .. }) => json!({
                "kind": "conv", "stride": stride, "frames": frames, "norm": norm, "batch_norm": batch_norm, "silu": silu,
                "groups": GROUPS, "epsilon": EPSILON,
            }),
            Work::Linear { norm, geglu, .. } => {
                json!({"kind": "linear", "norm": norm, "geglu": geglu, "epsilon": EPSILON})
            }
            Work::Attention { heads, queries, clips, causal, window, .. } => json!({
                "kind": "attention", "heads": heads, "frames": clips.map_or(1, |_| queries), "causal": causal,
                "sliding_window": window,
            }),
            Work::AttentionBackward { heads, causal, .. } => {
                json!({"kind": "attention_backward", "heads": heads, "causal": causal})
            }
            Work::GroupNorm { frames, silu, .. } => json!({
                "kind": "group_norm", "frames": frames, "silu": silu, "groups": GROUPS, "epsilon": EPSILON,
            }),
            Work::LayerNorm(_) => json!({"kind": "layer_norm", "epsilon": EPSILON}),
            Work::Add(_) => json!({"kind": "add"}),
            Work::Silu(_) => json!({"kind": "silu"}),
            Work::Geglu(_) => json!({"kind": "geglu"}),
            Work::SamplerStep(_) => {
                json!({"kind": "sampler_step", "sigma": Latents::SIGMA, "next": Latents::NEXT})
            }
        }
    }
}

impl Rows {
    fn reduced(self) -> Rows {
        Rows { rows: self.rows.min(1024), channels: self.channels.min(320) }
    }
}

/// The bytes that a layer must move: every operand and the result `y` once.
pub fn bytes(graph: &Graph) -> u64 {
    let results = graph.outputs().iter().filter(|output| output.name == "y");
    let results = results.map(|output| graph.value(output.value).ty.bytes());
    let operands = graph.value_ids().filter(|(_, value)| !matches!(value.source, Source::Node { .. }));
    operands.map(|(_, value)| value.ty.bytes()).chain(results).sum::<usize>() as u64
}
