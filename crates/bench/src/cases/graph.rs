//! The graph of a layer.

use kinora_graph::{
    DType, Graph, GraphBuilder, GraphError, Op, Phase, Tensor, TensorType, ValueId,
    op::{Activation, Attention, Conv, Mask, NormKind, STEP_COLUMNS, SamplerStep},
};

use super::shape::{ConvShape, EPSILON, GROUPS, Latents, Work};
use crate::BenchError;

/// A graph with operands of one element type, named as the peers name them.
struct Layer {
    graph: GraphBuilder,
    dtype: DType,
}

impl Layer {
    /// An input that is an output as well cannot be overwritten in place: in a network something else may still read it,
    /// and every replay must start from the same values.
    fn input(&mut self, name: &str, shape: &[usize]) -> Result<ValueId, GraphError> {
        let id = self.graph.input(name, TensorType::new(self.dtype, shape), Phase::Step)?;
        self.graph.output(name, id)?;
        Ok(id)
    }

    fn weight(&mut self, name: &str, shape: &[usize]) -> Result<ValueId, GraphError> {
        self.graph.parameter(name, TensorType::new(self.dtype, shape))
    }

    fn add_residual(&mut self, y: ValueId) -> Result<ValueId, GraphError> {
        let shape = self.graph.shape(y).to_vec();
        let residual = self.input("residual", &shape)?;
        self.graph.add("residual", y, residual)
    }

    fn conv(&mut self, shape: &ConvShape) -> Result<ValueId, GraphError> {
        let &ConvShape { images, height, width, r#in, out, kernel: [depth, rows, columns], .. } = shape;
        let mut x = self.input("x", &[images, height, width, r#in])?;
        if shape.norm {
            let norm = self.norm(x, NormKind::Group { groups: GROUPS, frames: 1 })?;
            x = self.graph.activate("norm_silu", norm, Activation::Silu)?;
        }
        let weight = self.weight("weight", &[out, depth, rows, columns, r#in])?;
        let bias = self.weight("bias", &[out])?;
        let op = match depth {
            1 => Conv::spatial([rows, columns], shape.stride, rows / 2),
            _ => Conv::temporal(depth, shape.frames),
        };
        let mut y = self.graph.conv("conv", x, weight, Some(bias), op)?;
        if shape.batch_norm {
            let [mean, variance] = [self.weight("mean", &[out])?, self.weight("variance", &[out])?];
            let [scale, shift] = [self.weight("scale", &[out])?, self.weight("shift", &[out])?];
            y = self.graph.batch_norm("batch_norm", y, [mean, variance, scale, shift], EPSILON)?;
        }
        if shape.embedding {
            let embedding = self.input("embedding", &[images, 1, 1, out])?;
            y = self.graph.add("embedding", y, embedding)?;
        }
        if shape.silu {
            y = self.graph.activate("silu", y, Activation::Silu)?;
        }
        if shape.residual { self.add_residual(y) } else { Ok(y) }
    }

    fn linear(
        &mut self,
        [rows, r#in, out]: [usize; 3],
        [norm, geglu, residual]: [bool; 3],
    ) -> Result<ValueId, GraphError> {
        let mut x = self.input("x", &[rows, r#in])?;
        if norm {
            x = self.norm(x, NormKind::Layer)?;
        }
        let (weight, bias) = (self.weight("weight", &[out, r#in])?, self.weight("bias", &[out])?);
        let mut y = self.graph.linear("linear", x, weight, Some(bias))?;
        if geglu {
            y = self.graph.geglu("geglu", y)?;
        }
        if residual { self.add_residual(y) } else { Ok(y) }
    }

    fn attention(&mut self, shapes: [&[usize]; 2], attention: Attention) -> Result<ValueId, GraphError> {
        let [queries, keys] = shapes;
        let operands = [self.input("q", queries)?, self.input("k", keys)?, self.input("v", keys)?];
        self.graph.attention("attention", operands, &[], attention)
    }

    /// The gradient of the queries, with those of keys and values as results beside it. Everything but the gradient of the attention's result
    /// is known before the first step, and so is that result: a step is the gradients alone.
    fn attention_backward(&mut self, shape: &[usize], op: Attention) -> Result<ValueId, GraphError> {
        let mut forward = Vec::new();
        for name in ["q", "k", "v"] {
            forward.push(self.graph.input(name, TensorType::new(self.dtype, shape), Phase::Clip)?);
        }
        let op = Attention { log_sum_exp: true, ..op };
        forward.extend(self.graph.node("attention", Op::Attention(op.clone()), &forward)?);
        let dy = self.input("dy", shape)?;
        let [dq, dk, dv] = self.graph.attention_backward("backward", &forward, dy, op)?;
        self.graph.output("dk", dk)?;
        self.graph.output("dv", dv)?;
        Ok(dq)
    }

    /// A sampler step on f32 latents, as a clip keeps them.
    fn sampler_step(&mut self, latents: &Latents) -> Result<ValueId, BenchError> {
        let &Latents { frames, height, width, channels } = latents;
        let prediction = self.input("prediction", &[2 * frames, height, width, channels])?;
        let f32_type = |shape: &[usize]| TensorType::new(DType::F32, shape);
        let graph = &mut self.graph;
        let sample = graph.input("sample", f32_type(&[frames, height, width, channels]), Phase::Step)?;
        graph.output("sample", sample)?;
        let guidance = graph.parameter("guidance", f32_type(&[frames]))?;
        let table = Tensor::from_slice([1, STEP_COLUMNS], &Latents::coefficients().row())?;
        let table = graph.constant("table", table)?;
        let step = graph.constant("step", Tensor::from_slice([1], &[0i32])?)?;
        let op = SamplerStep { guided: true, emit_scaled: true, ..SamplerStep::default() };
        let results = graph.sampler_step("sampler", &[sample, prediction, table, step, guidance], op)?;
        graph.output("scaled", results[1])?;
        Ok(results[0])
    }

    fn norm(&mut self, x: ValueId, kind: NormKind) -> Result<ValueId, GraphError> {
        let channels = *self.graph.shape(x).to_vec().last().unwrap_or(&0);
        let (scale, shift) = (self.weight("scale", &[channels])?, self.weight("shift", &[channels])?);
        self.graph.norm("norm", x, kind, EPSILON, Some(scale), Some(shift))
    }
}

impl Work {
    /// The graph: inputs and weights have the peers' names, the result is `y`.
    ///
    /// # Errors
    /// If the shapes do not fit each other.
    pub fn graph(&self, name: &str, dtype: DType) -> Result<Graph, BenchError> {
        let mut layer = Layer { graph: GraphBuilder::new(name), dtype };
        let y = match *self {
            Work::Conv(ref shape) => layer.conv(shape)?,
            Work::Linear { rows, r#in, out, norm, geglu, residual } => {
                layer.linear([rows, r#in, out], [norm, geglu, residual])?
            }
            Work::Attention { batch, heads, queries, head, clips: Some(clips), .. } => {
                let shape = [clips * queries, batch / clips.max(1), heads * head];
                layer.attention([&shape, &shape], Attention::over_frames(heads, head, queries))?
            }
            Work::Attention { batch, heads, queries, head, keys, clips: None, causal, window } => {
                let shape = |tokens| [batch, tokens, heads * head];
                let (queries, keys) = (shape(queries), shape(keys.unwrap_or(queries)));
                let mask = match window {
                    Some(window) => Mask::SlidingWindow { diagonal: 0, window },
                    None if causal => Mask::Causal { diagonal: 0 },
                    None => Mask::None,
                };
                let attention = Attention { mask, ..Attention::over_positions(heads, head) };
                layer.attention([&queries, &keys], attention)?
            }
            Work::AttentionBackward { batch, heads, queries, head, causal } => {
                let mask = if causal { Mask::Causal { diagonal: 0 } } else { Mask::None };
                let attention = Attention { mask, ..Attention::over_positions(heads, head) };
                layer.attention_backward(&[batch, queries, heads * head], attention)?
            }
            Work::GroupNorm { images, frames, height, width, channels, silu } => {
                let kind = NormKind::Group { groups: GROUPS, frames };
                let x = layer.input("x", &[images, height, width, channels])?;
                let y = layer.norm(x, kind)?;
                if silu { layer.graph.activate("silu", y, Activation::Silu)? } else { y }
            }
            Work::LayerNorm(shape) => {
                let x = layer.input("x", &[shape.rows, shape.channels])?;
                layer.norm(x, NormKind::Layer)?
            }
            Work::Add(shape) => {
                let x = layer.input("x", &[shape.rows, shape.channels])?;
                layer.add_residual(x)?
            }
            Work::Silu(shape) => {
                let x = layer.input("x", &[shape.rows, shape.channels])?;
                layer.graph.activate("silu", x, Activation::Silu)?
            }
            Work::Geglu(shape) => {
                let x = layer.input("x", &[shape.rows, 2 * shape.channels])?;
                layer.graph.geglu("geglu", x)?
            }
            Work::SamplerStep(ref latents) => layer.sampler_step(latents)?,
        };
        layer.graph.output("y", y)?;
        Ok(layer.graph.finish())
    }
}
