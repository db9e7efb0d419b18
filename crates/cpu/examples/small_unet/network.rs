//! A small network of Stable Video Diffusion's shape: one denoising step of a clip, guidance and sampler included.

use kinora_graph::{
    DType, Graph, GraphBuilder, GraphError, Phase, TensorType, ValueId,
    op::{
        Activation, Attention, Conv, Interpolation, NormKind, STEP_COLUMNS, SamplerStep, TimestepEmbedding,
    },
};

/// The sizes of the network.
#[derive(Clone, Debug)]
pub struct Config {
    /// Channels of each level; each is a multiple of `head_dim` and of `groups`.
    pub widths: Vec<usize>,
    /// Channels of an attention head.
    pub head_dim: usize,
    /// Groups of every group norm.
    pub groups: usize,
    /// Channels of the image embedding.
    pub context: usize,
    /// Frames of the clip.
    pub frames: usize,
    /// Height and width of the latents.
    pub size: usize,
    /// Sampler steps that the table has room for.
    pub steps: usize,
    /// How activations and weights are stored.
    pub dtype: DType,
}

/// Channels of a latent.
pub const LATENT: usize = 4;

/// Builds the graph. Inputs: `latents`, `step` (every step); `image_latents`, `context`, `timesteps`, `table`,
/// `guidance` (every clip). Results: `next` latents and the `denoised` preview.
pub fn build(config: &Config) -> Result<Graph, GraphError> {
    let mut g = GraphBuilder::new("small_unet");
    let (frames, size, dtype) = (config.frames, config.size, config.dtype);
    let images = 2 * frames;
    let ty = |shape: &[usize]| TensorType::new(dtype, shape);
    let latents = g.input("latents", ty(&[frames, size, size, LATENT]), Phase::Step)?;
    let step = g.input("step", TensorType::new(DType::I32, [1]), Phase::Step)?;
    // The unconditional half of the batch comes first, in these as in every batch below.
    let image_latents = g.input("image_latents", ty(&[images, size, size, LATENT]), Phase::Clip)?;
    let context = g.input("context", ty(&[2, 1, config.context]), Phase::Clip)?;
    let timesteps = g.input("timesteps", TensorType::new(DType::F32, [config.steps, 1]), Phase::Clip)?;
    let table = g.input("table", TensorType::new(DType::F32, [config.steps, STEP_COLUMNS]), Phase::Clip)?;
    let guidance = g.input("guidance", TensorType::new(DType::F32, [frames]), Phase::Clip)?;

    let mut net = Network { g: &mut g, config, embedding: latents, context };
    net.embedding = net.time_embedding(timesteps, step)?;
    let both = net.g.concat("guidance.batch", &[latents, latents], 0)?;
    let noisy = net.g.concat("conv_in.input", &[both, image_latents], 3)?;
    let prediction = net.unet(noisy)?;

    let sampler = SamplerStep { guided: true, emit_denoised: true, ..SamplerStep::default() };
    let outputs = g.sampler_step("sampler", &[latents, prediction, table, step, guidance], sampler)?;
    g.output("next", outputs[0])?;
    g.output("denoised", outputs[1])?;
    Ok(g.finish())
}

struct Network<'a> {
    g: &'a mut GraphBuilder,
    config: &'a Config,
    /// The time embedding, `[1, width]`.
    embedding: ValueId,
    /// The image's embedding, one token, `[2, 1, context]`.
    context: ValueId,
}

impl Network<'_> {
    fn unet(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let widths = self.config.widths.clone();
        let mut x = self.conv("conv_in", x, widths[0], 3, 1)?;
        let mut skips = vec![x];
        for (level, &width) in widths.iter().enumerate() {
            let name = format!("down.{level}");
            if level > 0 {
                x = self.conv(&format!("{name}.downsample"), x, widths[level - 1], 3, 2)?;
            }
            x = self.res_block(&format!("{name}.resnet"), x, width)?;
            x = self.transformer(&format!("{name}.attention"), x)?;
            skips.push(x);
        }
        x = self.res_block("mid.resnet", x, *widths.last().unwrap_or(&LATENT))?;
        for (level, &width) in widths.iter().enumerate().rev() {
            let name = format!("up.{level}");
            if let Some(skip) = skips.pop() {
                x = self.g.concat(&format!("{name}.concat"), &[x, skip], 3)?;
            }
            x = self.res_block(&format!("{name}.resnet"), x, width)?;
            x = self.transformer(&format!("{name}.attention"), x)?;
            if level > 0 {
                let size = [self.g.shape(x)[1] * 2, self.g.shape(x)[2] * 2];
                x = self.g.upsample(&format!("{name}.upsample"), x, Interpolation::Nearest, size)?;
                x = self.conv(&format!("{name}.upsample.conv"), x, width, 3, 1)?;
            }
        }
        x = self.group_norm("norm_out", x, 1)?;
        x = self.g.activate("act_out", x, Activation::Silu)?;
        self.conv("conv_out", x, LATENT, 3, 1)
    }

    /// The step's timestep as a vector. The table of embeddings is made once per clip; a step looks its row up.
    fn time_embedding(&mut self, timesteps: ValueId, step: ValueId) -> Result<ValueId, GraphError> {
        let (steps, width) = (self.config.steps, self.config.widths[0]);
        let t = self.g.reshape("time.flat", timesteps, [steps])?;
        let sinusoid = TimestepEmbedding {
            width,
            cosine_first: true,
            frequency_shift: 0.0,
            max_period: 10_000.0,
            scale: 1.0,
        };
        let t = self.g.timestep_embedding("time.sinusoid", t, sinusoid)?;
        let t = self.g.cast("time.cast", t, self.config.dtype)?;
        let t = self.linear("time.linear_1", t, 4 * width, true)?;
        let t = self.g.activate("time.act", t, Activation::Silu)?;
        let t = self.linear("time.linear_2", t, 4 * width, true)?;
        let t = self.g.activate("time.act_out", t, Activation::Silu)?;
        self.g.embedding("time.row", t, step)
    }

    /// A spatial and a temporal residual block, blended.
    fn res_block(&mut self, name: &str, x: ValueId, width: usize) -> Result<ValueId, GraphError> {
        let frames = self.config.frames;
        let shortcut = if self.g.shape(x).channels() == width {
            x
        } else {
            self.conv(&format!("{name}.shortcut"), x, width, 1, 1)?
        };
        let spatial = Conv::spatial([3, 3], 1, 1);
        let h = self.res_branch(&format!("{name}.spatial"), x, width, 1, &spatial)?;
        let s = self.g.add(&format!("{name}.spatial.residual"), shortcut, h)?;
        let temporal = Conv::temporal(3, frames);
        let h = self.res_branch(&format!("{name}.temporal"), s, width, frames, &temporal)?;
        let t = self.g.add(&format!("{name}.temporal.residual"), s, h)?;
        self.mix(name, s, t)
    }

    /// norm → SiLU → conv → + time embedding → norm → SiLU → conv.
    fn res_branch(
        &mut self,
        name: &str,
        x: ValueId,
        width: usize,
        frames: usize,
        conv: &Conv,
    ) -> Result<ValueId, GraphError> {
        let h = self.group_norm(&format!("{name}.norm1"), x, frames)?;
        let h = self.g.activate(&format!("{name}.act1"), h, Activation::Silu)?;
        let h = self.conv_with(&format!("{name}.conv1"), h, width, conv.clone())?;
        let t = self.linear(&format!("{name}.time"), self.embedding, width, true)?;
        let t = self.g.reshape(&format!("{name}.time.image"), t, [1, 1, 1, width])?;
        let h = self.g.add(&format!("{name}.time.add"), h, t)?;
        let h = self.group_norm(&format!("{name}.norm2"), h, frames)?;
        let h = self.g.activate(&format!("{name}.act2"), h, Activation::Silu)?;
        self.conv_with(&format!("{name}.conv2"), h, width, conv.clone())
    }

    /// Spatial and temporal transformer blocks, blended, around a residual.
    fn transformer(&mut self, name: &str, x: ValueId) -> Result<ValueId, GraphError> {
        let shape = self.g.shape(x).clone();
        let (images, positions, width) = (shape[0], shape[1] * shape[2], shape[3]);
        let h = self.group_norm(&format!("{name}.norm"), x, 1)?;
        let h = self.g.reshape(&format!("{name}.tokens"), h, [images, positions, width])?;
        let h = self.linear(&format!("{name}.proj_in"), h, width, true)?;
        let heads = width / self.config.head_dim;
        let spatial = Attention::over_positions(heads, self.config.head_dim);
        let temporal = Attention::over_frames(heads, self.config.head_dim, self.config.frames);
        let s = self.block(&format!("{name}.spatial"), h, spatial)?;
        let t = self.feed_forward(&format!("{name}.temporal.ff_in"), s)?;
        let t = self.block(&format!("{name}.temporal"), t, temporal)?;
        let h = self.mix(name, s, t)?;
        let h = self.linear(&format!("{name}.proj_out"), h, width, true)?;
        let h = self.g.reshape(&format!("{name}.image"), h, shape)?;
        self.g.add(&format!("{name}.residual"), h, x)
    }

    /// Self-attention, cross-attention to the one context token, feed-forward.
    fn block(&mut self, name: &str, x: ValueId, attention: Attention) -> Result<ValueId, GraphError> {
        let width = self.g.shape(x).channels();
        let n = self.layer_norm(&format!("{name}.norm1"), x)?;
        let cross = Attention::over_positions(attention.heads, attention.head_dim);
        let h = self.attend(&format!("{name}.attn1"), n, n, width, attention)?;
        let x = self.g.add(&format!("{name}.attn1.residual"), x, h)?;
        let n = self.layer_norm(&format!("{name}.norm2"), x)?;
        let h = self.attend(&format!("{name}.attn2"), n, self.context, width, cross)?;
        let x = self.g.add(&format!("{name}.attn2.residual"), x, h)?;
        self.feed_forward(&format!("{name}.ff"), x)
    }

    fn attend(
        &mut self,
        name: &str,
        x: ValueId,
        context: ValueId,
        width: usize,
        attention: Attention,
    ) -> Result<ValueId, GraphError> {
        let q = self.linear(&format!("{name}.to_q"), x, width, false)?;
        let k = self.linear(&format!("{name}.to_k"), context, width, false)?;
        let v = self.linear(&format!("{name}.to_v"), context, width, false)?;
        let h = self.g.attention(name, [q, k, v], &[], attention)?;
        self.linear(&format!("{name}.to_out"), h, width, true)
    }

    fn feed_forward(&mut self, name: &str, x: ValueId) -> Result<ValueId, GraphError> {
        let width = self.g.shape(x).channels();
        let h = self.layer_norm(&format!("{name}.norm"), x)?;
        let h = self.linear(&format!("{name}.proj"), h, 8 * width, true)?;
        let h = self.g.geglu(&format!("{name}.geglu"), h)?;
        let h = self.linear(&format!("{name}.out"), h, width, true)?;
        self.g.add(&format!("{name}.residual"), x, h)
    }

    /// α·spatial + (1−α)·temporal with a learned α.
    fn mix(&mut self, name: &str, spatial: ValueId, temporal: ValueId) -> Result<ValueId, GraphError> {
        let factor = self.parameter(&format!("{name}.mix_factor"), &[1])?;
        let alpha = self.g.activate(&format!("{name}.alpha"), factor, Activation::Sigmoid)?;
        self.g.blend(&format!("{name}.mix"), spatial, temporal, alpha)
    }

    fn conv(
        &mut self,
        name: &str,
        x: ValueId,
        width: usize,
        kernel: usize,
        stride: usize,
    ) -> Result<ValueId, GraphError> {
        self.conv_with(name, x, width, Conv::spatial([kernel, kernel], stride, kernel / 2))
    }

    fn conv_with(&mut self, name: &str, x: ValueId, width: usize, conv: Conv) -> Result<ValueId, GraphError> {
        let [kt, kh, kw] = conv.kernel;
        let channels = self.g.shape(x).channels();
        let weight = self.parameter(&format!("{name}.weight"), &[width, kt, kh, kw, channels])?;
        let bias = self.parameter(&format!("{name}.bias"), &[width])?;
        self.g.conv(name, x, weight, Some(bias), conv)
    }

    fn linear(&mut self, name: &str, x: ValueId, width: usize, bias: bool) -> Result<ValueId, GraphError> {
        let channels = self.g.shape(x).channels();
        let weight = self.parameter(&format!("{name}.weight"), &[width, channels])?;
        let bias = if bias { Some(self.parameter(&format!("{name}.bias"), &[width])?) } else { None };
        self.g.linear(name, x, weight, bias)
    }

    fn group_norm(&mut self, name: &str, x: ValueId, frames: usize) -> Result<ValueId, GraphError> {
        self.norm(name, x, NormKind::Group { groups: self.config.groups, frames })
    }

    fn layer_norm(&mut self, name: &str, x: ValueId) -> Result<ValueId, GraphError> {
        self.norm(name, x, NormKind::Layer)
    }

    fn norm(&mut self, name: &str, x: ValueId, kind: NormKind) -> Result<ValueId, GraphError> {
        let channels = self.g.shape(x).channels();
        let scale = self.parameter(&format!("{name}.weight"), &[channels])?;
        let shift = self.parameter(&format!("{name}.bias"), &[channels])?;
        self.g.norm(name, x, kind, 1e-5, Some(scale), Some(shift))
    }

    fn parameter(&mut self, name: &str, shape: &[usize]) -> Result<ValueId, GraphError> {
        self.g.parameter(name, TensorType::new(self.config.dtype, shape))
    }
}
