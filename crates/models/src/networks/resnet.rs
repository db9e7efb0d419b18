//! Residual blocks: over space, over the frames of a clip, and the two blended.

use kinora_graph::{
    GraphError, ValueId,
    op::{Activation, Conv},
};

use super::layers::Layers;

/// Every norm of these blocks has as many groups.
pub(crate) const GROUPS: usize = 32;

/// What a [`resnet`] is built of.
pub(crate) struct Resnet {
    /// Channels of the result.
    pub out: usize,
    /// Added to the variances of the norms.
    pub epsilon: f32,
    /// The activated time embedding `[1 or images, width]`, if the block has one.
    pub time: Option<ValueId>,
}

/// norm → SiLU → conv → + time embedding → norm → SiLU → conv, around a residual: `ResnetBlock2D`.
pub(crate) fn resnet(l: &mut Layers<'_>, x: ValueId, block: &Resnet) -> Result<ValueId, GraphError> {
    let h = branch(l, x, block, 1, &Conv::spatial([3, 3], 1, 1))?;
    let shortcut = if l.channels(x) == block.out {
        x
    } else {
        l.conv("conv_shortcut", x, block.out, Conv::spatial([1, 1], 1, 0))?
    };
    l.g.add("residual", shortcut, h)
}

/// The same over the frames of a clip, whose norms run over all frames together: `TemporalResnetBlock`.
fn temporal_resnet(
    l: &mut Layers<'_>,
    x: ValueId,
    block: &Resnet,
    frames: usize,
) -> Result<ValueId, GraphError> {
    let h = branch(l, x, block, frames, &Conv::temporal(3, frames))?;
    l.g.add("residual", x, h)
}

fn branch(
    l: &mut Layers<'_>,
    x: ValueId,
    block: &Resnet,
    frames: usize,
    conv: &Conv,
) -> Result<ValueId, GraphError> {
    let h = l.group_norm("norm1", x, GROUPS, frames, block.epsilon)?;
    let h = l.g.activate("act1", h, Activation::Silu)?;
    let mut h = l.conv("conv1", h, block.out, conv.clone())?;
    if let Some(time) = block.time {
        let rows = l.g.shape(time)[0];
        let time = l.linear("time_emb_proj", time, block.out, true)?;
        let time = l.g.reshape("time_emb_image", time, [rows, 1, 1, block.out])?;
        h = l.g.add("time_emb_add", h, time)?;
    }
    let h = l.group_norm("norm2", h, GROUPS, frames, block.epsilon)?;
    let h = l.g.activate("act2", h, Activation::Silu)?;
    l.conv("conv2", h, block.out, conv.clone())
}

/// norm → SiLU → conv: what makes the results of a network of what its last residual block gives.
pub(crate) fn conv_out(
    l: &mut Layers<'_>,
    x: ValueId,
    epsilon: f32,
    out: usize,
) -> Result<ValueId, GraphError> {
    let x = l.group_norm("conv_norm_out", x, GROUPS, 1, epsilon)?;
    let x = l.g.activate("conv_act", x, Activation::Silu)?;
    l.conv3x3("conv_out", x, out)
}

/// Which of the two a blend's learned factor weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weighs {
    /// The spatial block: UNets.
    Spatial,
    /// The temporal block: the decoder of the autoencoder.
    Temporal,
}

/// A spatial block, a temporal one on its result, and the two blended: `SpatioTemporalResBlock`.
pub(crate) fn spatio_temporal_resnet(
    l: &mut Layers<'_>,
    x: ValueId,
    block: &Resnet,
    temporal_epsilon: f32,
    frames: usize,
    weighs: Weighs,
) -> Result<ValueId, GraphError> {
    let spatial = l.scope("spatial_res_block", |l| resnet(l, x, block))?;
    let temporal = Resnet { epsilon: temporal_epsilon, ..*block };
    let temporal = l.scope("temporal_res_block", |l| temporal_resnet(l, spatial, &temporal, frames))?;
    blend(l, spatial, temporal, weighs)
}

/// `α·spatial + (1−α)·temporal`, or the other way round, with a learned α: `AlphaBlender`.
pub(crate) fn blend(
    l: &mut Layers<'_>,
    spatial: ValueId,
    temporal: ValueId,
    weighs: Weighs,
) -> Result<ValueId, GraphError> {
    l.scope("time_mixer", |l| {
        let factor = l.parameter("mix_factor", &[1])?;
        let alpha = l.g.activate("alpha", factor, Activation::Sigmoid)?;
        match weighs {
            Weighs::Spatial => l.g.blend("blend", spatial, temporal, alpha),
            Weighs::Temporal => l.g.blend("blend", temporal, spatial, alpha),
        }
    })
}
