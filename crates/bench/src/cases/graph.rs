//! The graph of a layer.

use kinora_graph::{
    DType, Graph, GraphBuilder, GraphError, Phase, TensorType, ValueId,
    op::{Activation, Attention, Conv, NormKind},
};

use super::shape::{ConvShape, EPSILON, GROUPS, Work};

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
        let x = self.input("x", &[images, height, width, r#in])?;
        let weight = self.weight("weight", &[out, depth, rows, columns, r#in])?;
        let bias = self.weight("bias", &[out])?;
        let op = match depth {
            1 => Conv::spatial([rows, columns], shape.stride, rows / 2),
            _ => Conv::temporal(depth, shape.frames),
        };
        let mut y = self.graph.conv("conv", x, weight, Some(bias), op)?;
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
        geglu: bool,
        residual: bool,
    ) -> Result<ValueId, GraphError> {
        let x = self.input("x", &[rows, r#in])?;
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

    fn norm(&mut self, shape: &[usize], kind: NormKind) -> Result<ValueId, GraphError> {
        let channels = *shape.last().unwrap_or(&0);
        let x = self.input("x", shape)?;
        let (scale, shift) = (self.weight("scale", &[channels])?, self.weight("shift", &[channels])?);
        self.graph.norm("norm", x, kind, EPSILON, Some(scale), Some(shift))
    }
}

impl Work {
    /// The graph: inputs and weights have the peers' names, the result is `y`.
    ///
    /// # Errors
    /// If the shapes do not fit each other.
    pub fn graph(&self, name: &str, dtype: DType) -> Result<Graph, GraphError> {
        let mut layer = Layer { graph: GraphBuilder::new(name), dtype };
        let y = match *self {
            Work::Conv(ref shape) => layer.conv(shape)?,
            Work::Linear { rows, r#in, out, geglu, residual } => {
                layer.linear([rows, r#in, out], geglu, residual)?
            }
            Work::Attention { batch, heads, queries, head, clips: Some(clips), .. } => {
                let shape = [clips * queries, batch / clips.max(1), heads * head];
                layer.attention([&shape, &shape], Attention::over_frames(heads, head, queries))?
            }
            Work::Attention { batch, heads, queries, head, keys, clips: None } => {
                let shape = |tokens| [batch, tokens, heads * head];
                let (queries, keys) = (shape(queries), shape(keys.unwrap_or(queries)));
                layer.attention([&queries, &keys], Attention::over_positions(heads, head))?
            }
            Work::GroupNorm { images, frames, height, width, channels, silu } => {
                let kind = NormKind::Group { groups: GROUPS, frames };
                let y = layer.norm(&[images, height, width, channels], kind)?;
                if silu { layer.graph.activate("silu", y, Activation::Silu)? } else { y }
            }
            Work::LayerNorm(shape) => layer.norm(&[shape.rows, shape.channels], NormKind::Layer)?,
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
        };
        layer.graph.output("y", y)?;
        Ok(layer.graph.finish())
    }
}
