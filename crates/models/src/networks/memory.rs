//! Memory of past frames: self-attention also reads the keys and values that it had for the frames before.

use kinora_graph::{Graph, GraphError, Phase, TensorType, Value, ValueId};

use super::layers::Layers;

/// What the names of all rings begin with.
const PREFIX: &str = "memory.";
/// The input that says whether a frame is the first: f32 `[1]`, 1 if it is, otherwise 0.
pub const FRESH: &str = "memory.fresh";

/// What a network remembers of the frames before.
///
/// Every self-attention has a ring of keys and one of values: an input of the step phase and a result of the same name and
/// type, which becomes the input of the next frame ([`rings`] lists them). A ring is `[images, frames · tokens, channels]`, the
/// newest frame first. The first frame has none before it, and fills the rings with its own keys and values: attention to
/// copies of the same keys finds what attention to one of them does.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// How many frames, at least 1.
    pub frames: usize,
    /// The denoising step. Each has rings of its own, because what is remembered must be as noisy as what reads it.
    pub step: usize,
    /// The input [`FRESH`].
    pub fresh: ValueId,
}

impl Memory {
    /// The keys or values of a frame, followed by those of the frames before. Hands on all but the oldest.
    pub(super) fn recall(&self, l: &mut Layers<'_>, what: &str, own: ValueId) -> Result<ValueId, GraphError> {
        let ring = format!("{PREFIX}{}.{}", self.step, l.g.full_name(what));
        let ty = l.g.ty(own);
        let tokens = ty.shape[1].saturating_mul(self.frames);
        let ty = TensorType::new(ty.dtype, [ty.shape[0], tokens, ty.shape.channels()]);
        let before = l.g.input(&ring, ty, Phase::Step)?;
        let copies = l.g.concat(&format!("{what}.copies"), &vec![own; self.frames], 1)?;
        let before = l.g.blend(&format!("{what}.before"), copies, before, self.fresh)?;
        let all = l.g.concat(&format!("{what}.all"), &[own, before], 1)?;
        let next = l.g.slice(&format!("{what}.next"), all, 1, 0, tokens)?;
        l.g.output(&ring, next)?;
        Ok(all)
    }
}

/// The rings of a graph: inputs that have the names of results.
pub fn rings(graph: &Graph) -> impl Iterator<Item = &Value> {
    let inputs = graph.inputs().iter().map(|&id| graph.value(id));
    inputs.filter(|value| value.name.starts_with(PREFIX) && value.name != FRESH)
}
