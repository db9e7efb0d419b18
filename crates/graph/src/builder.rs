//! Building a graph, one checked op at a time.

use std::collections::HashMap;

use crate::{
    DType, Graph, GraphError, Node, NodeId, Op, Output, Phase, Shape, Source, Tensor, TensorType, Value,
    ValueId,
    op::{
        Activation, Affine, Attention, AttentionBackward, BatchNorm, Concat, Conv, Gate, Interpolation,
        Linear, MatMul, Mean, Norm, NormKind, OpError, Pool, Resample, Reshape, SamplerStep, Scale, Slice,
        TemporalBlend, TimestepEmbedding, Upsample,
    },
};

/// Builds a [`Graph`]. Every op is checked as it is added, and an error names the layer.
///
/// ```
/// use kinora_graph::{DType, GraphBuilder, Phase, TensorType, op::{Activation, Conv}};
///
/// let mut g = GraphBuilder::new("example");
/// let x = g.input("image", TensorType::new(DType::F32, [1, 8, 8, 4]), Phase::Step)?;
/// let y = g.scope("down.0", |g| {
///     let weight = g.parameter("conv.weight", TensorType::new(DType::F32, [16, 1, 3, 3, 4]))?;
///     let h = g.conv("conv", x, weight, None, Conv::spatial([3, 3], 1, 1))?;
///     g.activate("act", h, Activation::Silu)
/// })?;
/// g.output("y", y)?;
/// let graph = g.finish();
/// assert_eq!(graph.nodes()[0].name, "down.0.conv");
/// # Ok::<(), kinora_graph::GraphError>(())
/// ```
#[derive(Debug)]
pub struct GraphBuilder {
    graph: Graph,
    scopes: Vec<String>,
    parameters: HashMap<String, ValueId>,
}

impl GraphBuilder {
    /// An empty graph.
    pub fn new(name: impl Into<String>) -> Self {
        GraphBuilder {
            graph: Graph {
                name: name.into(),
                values: Vec::new(),
                nodes: Vec::new(),
                inputs: Vec::new(),
                outputs: Vec::new(),
                calibration: None,
            },
            scopes: Vec::new(),
            parameters: HashMap::new(),
        }
    }

    /// Prefixes the names of all layers and parameters that `build` adds.
    pub fn scope<T>(&mut self, name: impl Into<String>, build: impl FnOnce(&mut Self) -> T) -> T {
        self.scopes.push(name.into());
        let result = build(self);
        self.scopes.pop();
        result
    }

    /// A name prefixed with its scopes.
    pub fn full_name(&self, name: &str) -> String {
        let mut full = self.scopes.join(".");
        if !full.is_empty() && !name.is_empty() {
            full.push('.');
        }
        full + name
    }

    /// Declares an input. Inputs are not scoped.
    ///
    /// # Errors
    /// If the name is that of another input or of a parameter, the phase is [`Phase::Load`] or the tensor is too large
    /// to exist.
    pub fn input(&mut self, name: &str, ty: TensorType, phase: Phase) -> Result<ValueId, GraphError> {
        if phase == Phase::Load {
            return Err(GraphError::LoadInput(name.to_owned()));
        }
        if self.has_input(name) || self.parameters.contains_key(name) {
            return Err(GraphError::Duplicate(format!("input {name}")));
        }
        let id = self.value(name.to_owned(), ty, Source::Input(phase))?;
        self.graph.inputs.push(id);
        Ok(id)
    }

    /// Declares a weight under the current scope. The same weight may be declared again.
    ///
    /// # Errors
    /// If it was declared with another type, its full name is an input's, or it is too large to exist.
    pub fn parameter(&mut self, name: &str, ty: TensorType) -> Result<ValueId, GraphError> {
        let name = self.full_name(name);
        if let Some(&id) = self.parameters.get(&name) {
            let first = self.graph.ty(id);
            if *first == ty {
                return Ok(id);
            }
            return Err(GraphError::Parameter { name, first: first.clone(), second: ty });
        }
        if self.has_input(&name) {
            return Err(GraphError::Duplicate(format!("parameter {name}")));
        }
        let id = self.value(name.clone(), ty, Source::Parameter)?;
        self.parameters.insert(name, id);
        Ok(id)
    }

    /// Adds a tensor that is part of the graph.
    ///
    /// # Errors
    /// Never: a tensor that exists is not too large. The signature is that of the other declarations.
    pub fn constant(&mut self, name: &str, tensor: Tensor) -> Result<ValueId, GraphError> {
        let name = self.full_name(name);
        self.value(name, tensor.ty().clone(), Source::Constant(tensor))
    }

    /// Names a result.
    ///
    /// # Errors
    /// If the name is taken, or the value's id is out of range.
    pub fn output(&mut self, name: &str, value: ValueId) -> Result<(), GraphError> {
        if self.graph.outputs.iter().any(|o| o.name == name) {
            return Err(GraphError::Duplicate(format!("output {name}")));
        }
        self.known(name, value)?;
        self.graph.outputs.push(Output { name: name.to_owned(), value });
        Ok(())
    }

    /// A value's type.
    pub fn ty(&self, value: ValueId) -> &TensorType {
        self.graph.ty(value)
    }

    /// A value's shape.
    pub fn shape(&self, value: ValueId) -> &Shape {
        &self.graph.ty(value).shape
    }

    /// Adds any op; the others are short forms of this one.
    ///
    /// # Errors
    /// If the op refuses the operands, or a value's id is out of range.
    pub fn node(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> Result<Vec<ValueId>, GraphError> {
        let layer = self.full_name(name);
        for &value in inputs {
            self.known(&layer, value)?;
        }
        let types: Vec<&TensorType> = inputs.iter().map(|&v| self.graph.ty(v)).collect();
        let results =
            op.infer(&types).map_err(|source| GraphError::Layer { layer: layer.clone(), source })?;
        Ok(self.graph.push_node(layer, op, inputs.to_vec(), results))
    }

    /// The finished graph.
    pub fn finish(self) -> Graph {
        self.graph
    }

    fn has_input(&self, name: &str) -> bool {
        self.graph.inputs.iter().any(|&v| self.graph.value(v).name == name)
    }

    fn known(&self, layer: &str, value: ValueId) -> Result<(), GraphError> {
        if value.index() < self.graph.values.len() {
            return Ok(());
        }
        Err(GraphError::UnknownValue { layer: layer.to_owned(), value: format!("%{}", value.0) })
    }

    fn value(&mut self, name: String, ty: TensorType, source: Source) -> Result<ValueId, GraphError> {
        if ty.checked_bytes().is_none() {
            return Err(GraphError::TooLarge { name, ty });
        }
        Ok(self.graph.push_value(Value { name, ty, source }))
    }

    /// Adds an op with one result.
    fn one(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> Result<ValueId, GraphError> {
        Ok(self.node(name, op, inputs)?[0])
    }
}

impl Graph {
    pub(crate) fn push_value(&mut self, value: Value) -> ValueId {
        let id = ValueId(self.values.len() as u32);
        self.values.push(value);
        id
    }

    /// Appends a node whose operands have been checked.
    pub(crate) fn push_node(
        &mut self,
        name: String,
        op: Op,
        inputs: Vec<ValueId>,
        results: Vec<TensorType>,
    ) -> Vec<ValueId> {
        let node = NodeId(self.nodes.len() as u32);
        let outputs: Vec<ValueId> = results
            .into_iter()
            .enumerate()
            .map(|(output, ty)| {
                let name = if output == 0 { name.clone() } else { format!("{name}.{output}") };
                self.push_value(Value { name, ty, source: Source::Node { node, output } })
            })
            .collect();
        self.nodes.push(Node { name, op, inputs, outputs: outputs.clone() });
        outputs
    }
}

/// Short forms. Each fails if the op refuses its operands, with the layer's name in the error.
impl GraphBuilder {
    /// A convolution; `conv.bias` is set by whether a bias is given.
    pub fn conv(
        &mut self,
        name: &str,
        x: ValueId,
        weight: ValueId,
        bias: Option<ValueId>,
        conv: Conv,
    ) -> Result<ValueId, GraphError> {
        let mut inputs = vec![x, weight];
        inputs.extend(bias);
        self.one(name, Op::Conv(Conv { bias: bias.is_some(), ..conv }), &inputs)
    }

    /// A learned matrix product over the channels.
    pub fn linear(
        &mut self,
        name: &str,
        x: ValueId,
        weight: ValueId,
        bias: Option<ValueId>,
    ) -> Result<ValueId, GraphError> {
        let mut inputs = vec![x, weight];
        inputs.extend(bias);
        self.one(name, Op::Linear(Linear { bias: bias.is_some(), ..Linear::default() }), &inputs)
    }

    /// A product of two activations.
    pub fn matmul(&mut self, name: &str, a: ValueId, b: ValueId, op: MatMul) -> Result<ValueId, GraphError> {
        self.one(name, Op::MatMul(op), &[a, b])
    }

    /// A normalisation; scale and shift are the operands of its [`Affine`]. There is no shift without a scale.
    pub fn norm(
        &mut self,
        name: &str,
        x: ValueId,
        kind: NormKind,
        epsilon: f32,
        scale: Option<ValueId>,
        shift: Option<ValueId>,
    ) -> Result<ValueId, GraphError> {
        let affine = match (scale, shift) {
            (None, None) => Affine::None,
            (None, Some(_)) => {
                let source = OpError::Attribute("a shift needs a scale".into());
                return Err(GraphError::Layer { layer: self.full_name(name), source });
            }
            (Some(_), None) => Affine::Scale,
            (Some(_), Some(_)) => Affine::ScaleShift,
        };
        let mut inputs = vec![x];
        inputs.extend(scale);
        inputs.extend(shift);
        self.one(
            name,
            Op::Norm(Norm { kind, epsilon, affine, activation: None, quantise: None, measured: false }),
            &inputs,
        )
    }

    /// A batch norm; `statistics` are mean, variance, scale and shift.
    pub fn batch_norm(
        &mut self,
        name: &str,
        x: ValueId,
        statistics: [ValueId; 4],
        epsilon: f32,
    ) -> Result<ValueId, GraphError> {
        let [mean, variance, scale, shift] = statistics;
        self.one(name, Op::BatchNorm(BatchNorm { epsilon }), &[x, mean, variance, scale, shift])
    }

    /// A pointwise function.
    pub fn activate(
        &mut self,
        name: &str,
        x: ValueId,
        activation: Activation,
    ) -> Result<ValueId, GraphError> {
        self.one(name, Op::Activate(activation), &[x])
    }

    /// Softmax over the last axis.
    pub fn softmax(&mut self, name: &str, x: ValueId) -> Result<ValueId, GraphError> {
        self.one(name, Op::Softmax, &[x])
    }

    /// The first half of the channels times GELU of the second.
    pub fn geglu(&mut self, name: &str, x: ValueId) -> Result<ValueId, GraphError> {
        self.one(name, Op::Gate(Gate { activation: Activation::Gelu }), &[x])
    }

    /// Attention; `extra` are the mask and the key lengths, if it has them.
    pub fn attention(
        &mut self,
        name: &str,
        qkv: [ValueId; 3],
        extra: &[ValueId],
        op: Attention,
    ) -> Result<ValueId, GraphError> {
        let inputs: Vec<ValueId> = qkv.into_iter().chain(extra.iter().copied()).collect();
        self.one(name, Op::Attention(op), &inputs)
    }

    /// The gradients of an attention's queries, keys and values. `forward` are its operands and its two results, `dy` that of its
    /// first result.
    pub fn attention_backward(
        &mut self,
        name: &str,
        forward: &[ValueId],
        dy: ValueId,
        op: Attention,
    ) -> Result<[ValueId; 3], GraphError> {
        let inputs: Vec<ValueId> = forward.iter().copied().chain([dy]).collect();
        let op = AttentionBackward { forward: Attention { log_sum_exp: true, ..op } };
        let results = self.node(name, Op::AttentionBackward(op), &inputs)?;
        Ok([results[0], results[1], results[2]])
    }

    /// A sum with broadcasting.
    pub fn add(&mut self, name: &str, a: ValueId, b: ValueId) -> Result<ValueId, GraphError> {
        self.one(name, Op::Add, &[a, b])
    }

    /// A product with broadcasting.
    pub fn mul(&mut self, name: &str, a: ValueId, b: ValueId) -> Result<ValueId, GraphError> {
        self.one(name, Op::Mul, &[a, b])
    }

    /// `factor · x + offset`.
    pub fn scale(&mut self, name: &str, x: ValueId, factor: f32, offset: f32) -> Result<ValueId, GraphError> {
        self.one(name, Op::Scale(Scale { factor, offset }), &[x])
    }

    /// `α·a + (1−α)·b`.
    pub fn blend(
        &mut self,
        name: &str,
        a: ValueId,
        b: ValueId,
        alpha: ValueId,
    ) -> Result<ValueId, GraphError> {
        self.one(name, Op::Blend, &[a, b, alpha])
    }

    /// Joins along an axis.
    pub fn concat(&mut self, name: &str, parts: &[ValueId], axis: usize) -> Result<ValueId, GraphError> {
        self.one(name, Op::Concat(Concat { axis }), parts)
    }

    /// A range of an axis.
    pub fn slice(
        &mut self,
        name: &str,
        x: ValueId,
        axis: usize,
        start: usize,
        len: usize,
    ) -> Result<ValueId, GraphError> {
        self.one(name, Op::Slice(Slice { axis, start, len }), &[x])
    }

    /// Resizes to a height and width.
    pub fn upsample(
        &mut self,
        name: &str,
        x: ValueId,
        interpolation: Interpolation,
        size: [usize; 2],
    ) -> Result<ValueId, GraphError> {
        self.one(name, Op::Upsample(Upsample { interpolation, size }), &[x])
    }

    /// Resizes an axis of bytes. Operands as [`Resample`] lists them.
    pub fn resample(
        &mut self,
        name: &str,
        [x, first, weights]: [ValueId; 3],
        axis: usize,
    ) -> Result<ValueId, GraphError> {
        self.one(name, Op::Resample(Resample { axis }), &[x, first, weights])
    }

    /// Pools windows.
    pub fn pool(&mut self, name: &str, x: ValueId, op: Pool) -> Result<ValueId, GraphError> {
        self.one(name, Op::Pool(op), &[x])
    }

    /// The mean over some axes, which become 1.
    pub fn mean(&mut self, name: &str, x: ValueId, axes: &[usize]) -> Result<ValueId, GraphError> {
        self.one(name, Op::Mean(Mean { axes: axes.to_vec() }), &[x])
    }

    /// A sinusoidal embedding of numbers.
    pub fn timestep_embedding(
        &mut self,
        name: &str,
        t: ValueId,
        op: TimestepEmbedding,
    ) -> Result<ValueId, GraphError> {
        self.one(name, Op::TimestepEmbedding(op), &[t])
    }

    /// Rows of a table.
    pub fn embedding(&mut self, name: &str, table: ValueId, ids: ValueId) -> Result<ValueId, GraphError> {
        self.one(name, Op::Embedding, &[table, ids])
    }

    /// Another element type.
    pub fn cast(&mut self, name: &str, x: ValueId, dtype: DType) -> Result<ValueId, GraphError> {
        self.one(name, Op::Cast(dtype), &[x])
    }

    /// Another shape for the same memory.
    pub fn reshape(
        &mut self,
        name: &str,
        x: ValueId,
        shape: impl Into<Shape>,
    ) -> Result<ValueId, GraphError> {
        self.one(name, Op::Reshape(Reshape { shape: shape.into() }), &[x])
    }

    /// A sampler step: returns the next sample, then its other results. Operands as [`SamplerStep`] lists them.
    pub fn sampler_step(
        &mut self,
        name: &str,
        operands: &[ValueId],
        op: SamplerStep,
    ) -> Result<Vec<ValueId>, GraphError> {
        self.node(name, Op::SamplerStep(op), operands)
    }

    /// A frame blended with the previous one.
    pub fn temporal_blend(
        &mut self,
        name: &str,
        current: ValueId,
        previous: ValueId,
        strength: ValueId,
        op: TemporalBlend,
    ) -> Result<ValueId, GraphError> {
        self.one(name, Op::TemporalBlend(op), &[current, previous, strength])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32_type(shape: impl Into<Shape>) -> TensorType {
        TensorType::new(DType::F32, shape)
    }

    #[test]
    fn an_error_names_the_layer() {
        let mut g = GraphBuilder::new("unet");
        let x = g.input("x", f32_type([1, 8, 8, 640]), Phase::Step).unwrap();
        let error = g
            .scope("down.0", |g| {
                g.scope("resnets.1", |g| {
                    let w = g.parameter("conv1.weight", f32_type([320, 1, 3, 3, 320]))?;
                    g.conv("conv1", x, w, None, Conv::spatial([3, 3], 1, 1))
                })
            })
            .unwrap_err();
        assert_eq!(error.to_string(), "down.0.resnets.1.conv1: expected 320 input channels, got 640");
    }

    #[test]
    fn a_value_out_of_range_is_refused() {
        let mut other = GraphBuilder::new("other");
        let mut stray = other.input("a", f32_type([1]), Phase::Step).unwrap();
        for i in 0..5 {
            stray = other.scale(&format!("s{i}"), stray, 2.0, 0.0).unwrap();
        }
        let mut g = GraphBuilder::new("g");
        assert!(matches!(g.scale("s", stray, 1.0, 0.0), Err(GraphError::UnknownValue { .. })));
        assert!(matches!(g.output("y", stray), Err(GraphError::UnknownValue { .. })));
    }

    #[test]
    fn an_input_is_not_of_the_load_phase() {
        let mut g = GraphBuilder::new("g");
        let error = g.input("x", f32_type([1]), Phase::Load).unwrap_err();
        assert_eq!(
            error.to_string(),
            "input x cannot belong to the load phase: declare weights as parameters"
        );
        assert!(g.finish().inputs().is_empty());
    }

    #[test]
    fn a_shift_needs_a_scale() {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type([2, 4]), Phase::Step).unwrap();
        let shift = g.parameter("shift", f32_type([4])).unwrap();
        let error =
            g.scope("up", |g| g.norm("norm", x, NormKind::Layer, 1e-5, None, Some(shift))).unwrap_err();
        assert_eq!(error.to_string(), "up.norm: a shift needs a scale");
    }

    #[test]
    fn inputs_and_parameters_have_names_of_their_own() {
        let mut g = GraphBuilder::new("g");
        g.input("x", f32_type([1]), Phase::Step).unwrap();
        g.scope("a", |g| g.parameter("w", f32_type([1]))).unwrap();
        let twice = |error: Result<ValueId, GraphError>| error.unwrap_err().to_string();
        assert_eq!(twice(g.input("x", f32_type([1]), Phase::Clip)), "input x is declared twice");
        assert_eq!(twice(g.input("a.w", f32_type([1]), Phase::Step)), "input a.w is declared twice");
        assert_eq!(twice(g.parameter("x", f32_type([1]))), "parameter x is declared twice");
        // A scope makes it another name.
        g.scope("a", |g| g.parameter("x", f32_type([1]))).unwrap();
    }

    #[test]
    fn tensors_beyond_memory_are_refused() {
        let mut g = GraphBuilder::new("g");
        assert!(g.input("x", f32_type([usize::MAX, 2]), Phase::Step).is_err());
        let a = g.input("a", f32_type([1 << 31, 1]), Phase::Step).unwrap();
        let b = g.input("b", f32_type([1, 1 << 31]), Phase::Step).unwrap();
        assert!(g.add("sum", a, b).is_err());
        // Nor does an extent of zero make the others harmless.
        let empty = f32_type([0, usize::MAX, usize::MAX]);
        assert!(matches!(g.input("e", empty, Phase::Step), Err(GraphError::TooLarge { .. })));
    }

    #[test]
    fn figures_of_a_graph_saturate() {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type([1 << 30, 1 << 30]), Phase::Step).unwrap();
        let y = g.matmul("y", x, x, MatMul::default()).unwrap();
        let z = g.matmul("z", y, y, MatMul::default()).unwrap();
        g.output("z", z).unwrap();
        for i in 0..20 {
            g.parameter(&format!("w{i}"), TensorType::new(DType::U8, [isize::MAX as usize])).unwrap();
        }
        let graph = g.finish();
        assert_eq!((graph.step_flops(), graph.parameter_count()), (u64::MAX, u64::MAX));
    }

    #[test]
    fn a_parameter_is_declared_once() {
        let mut g = GraphBuilder::new("g");
        let a = g.parameter("w", f32_type([2])).unwrap();
        assert_eq!(g.parameter("w", f32_type([2])), Ok(a));
        assert!(matches!(g.parameter("w", f32_type([3])), Err(GraphError::Parameter { .. })));
    }
}
