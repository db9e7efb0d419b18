//! The layers that networks are made of, under the names that diffusers and transformers give their weights.

use kinora_graph::{
    DType, GraphBuilder, GraphError, TensorType, ValueId,
    op::{Conv, NormKind},
};

/// A graph builder that declares the weights of the layers it adds.
///
/// Weights are declared in the graph's own layout (see [`crate::weights`] for how a file's tensors become that), in one
/// element type; the layer's name is the prefix of its weights in the file.
pub(crate) struct Layers<'a> {
    /// The graph.
    pub g: &'a mut GraphBuilder,
    /// How weights and activations are stored.
    pub dtype: DType,
}

impl Layers<'_> {
    /// Puts everything that `build` adds under a name.
    pub fn scope<T>(&mut self, name: impl Into<String>, build: impl FnOnce(&mut Layers<'_>) -> T) -> T {
        let dtype = self.dtype;
        self.g.scope(name, |g| build(&mut Layers { g, dtype }))
    }

    /// The channels of a value.
    pub fn channels(&self, x: ValueId) -> usize {
        self.g.shape(x).channels()
    }

    /// A weight.
    pub fn parameter(&mut self, name: &str, shape: &[usize]) -> Result<ValueId, GraphError> {
        self.g.parameter(name, TensorType::new(self.dtype, shape))
    }

    /// A linear layer.
    pub fn linear(&mut self, name: &str, x: ValueId, out: usize, bias: bool) -> Result<ValueId, GraphError> {
        let weight = self.parameter(&format!("{name}.weight"), &[out, self.channels(x)])?;
        let bias = if bias { Some(self.parameter(&format!("{name}.bias"), &[out])?) } else { None };
        self.g.linear(name, x, weight, bias)
    }

    /// A convolution with a bias.
    pub fn conv(&mut self, name: &str, x: ValueId, out: usize, conv: Conv) -> Result<ValueId, GraphError> {
        let weight = self.conv_weight(name, x, out, &conv)?;
        let bias = self.parameter(&format!("{name}.bias"), &[out])?;
        self.g.conv(name, x, weight, Some(bias), conv)
    }

    /// A convolution without a bias.
    pub fn conv_without_bias(
        &mut self,
        name: &str,
        x: ValueId,
        out: usize,
        conv: Conv,
    ) -> Result<ValueId, GraphError> {
        let weight = self.conv_weight(name, x, out, &conv)?;
        self.g.conv(name, x, weight, None, conv)
    }

    fn conv_weight(
        &mut self,
        name: &str,
        x: ValueId,
        out: usize,
        conv: &Conv,
    ) -> Result<ValueId, GraphError> {
        let [frames, height, width] = conv.kernel;
        self.parameter(&format!("{name}.weight"), &[out, frames, height, width, self.channels(x)])
    }

    /// A 3×3 convolution that keeps the size.
    pub fn conv3x3(&mut self, name: &str, x: ValueId, out: usize) -> Result<ValueId, GraphError> {
        self.conv(name, x, out, Conv::spatial([3, 3], 1, 1))
    }

    /// A group norm over `frames` consecutive images.
    pub fn group_norm(
        &mut self,
        name: &str,
        x: ValueId,
        groups: usize,
        frames: usize,
        epsilon: f32,
    ) -> Result<ValueId, GraphError> {
        self.norm(name, x, NormKind::Group { groups, frames }, epsilon)
    }

    /// A layer norm.
    pub fn layer_norm(&mut self, name: &str, x: ValueId, epsilon: f32) -> Result<ValueId, GraphError> {
        self.norm(name, x, NormKind::Layer, epsilon)
    }

    fn norm(&mut self, name: &str, x: ValueId, kind: NormKind, epsilon: f32) -> Result<ValueId, GraphError> {
        let channels = self.channels(x);
        let scale = self.parameter(&format!("{name}.weight"), &[channels])?;
        let shift = self.parameter(&format!("{name}.bias"), &[channels])?;
        self.g.norm(name, x, kind, epsilon, Some(scale), Some(shift))
    }
}
