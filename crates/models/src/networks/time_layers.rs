//! The layers that make vectors of numbers: timesteps, sizes, frame numbers.

use kinora_graph::{
    GraphError, ValueId,
    op::{Activation, TimestepEmbedding},
};

use super::layers::Layers;

/// Sines and cosines of the numbers, in the network's type: `Timesteps`.
pub(super) fn sinusoid(
    l: &mut Layers<'_>,
    name: &str,
    t: ValueId,
    op: TimestepEmbedding,
) -> Result<ValueId, GraphError> {
    let embedding = l.g.timestep_embedding(name, t, op)?;
    l.g.cast(&format!("{name}_cast"), embedding, l.dtype)
}

/// Two linear layers around SiLU: `TimestepEmbedding`.
pub(super) fn mlp(
    l: &mut Layers<'_>,
    name: &str,
    x: ValueId,
    hidden: usize,
    out: usize,
) -> Result<ValueId, GraphError> {
    l.scope(name, |l| {
        let h = l.linear("linear_1", x, hidden, true)?;
        let h = l.g.activate("act", h, Activation::Silu)?;
        l.linear("linear_2", h, out, true)
    })
}
