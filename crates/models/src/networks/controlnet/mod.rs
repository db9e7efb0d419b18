//! `ControlNetModel`: steers a UNet by a picture, such as its edges (Zhang et al. 2023).
//!
//! It is the way down of a UNet of the same shape, which reads the picture too, and what it gives is added to the UNet's skips
//! and middle.

mod config;

pub use config::ControlNetConfig;
use config::SETTINGS;

use kinora_graph::{
    DType, GraphBuilder, GraphError, ValueId,
    op::{Activation, Conv},
};

use super::{
    NetworkError, Residuals,
    layers::Layers,
    unet2d::{Conditions, Unet2dInputs},
};

/// What the network makes of the picture, which is the same for all steps: `[images, height, width, first block's
/// channels]`. The picture is `[images, height, width, conditioning_channels]` of numbers from 0 to 1, in the network's
/// type, and larger than the sample by [`ControlNetConfig::pixels_per_latent`].
///
/// # Errors
/// If the configuration is refused or the picture has other channels.
pub fn condition(
    g: &mut GraphBuilder,
    config: &ControlNetConfig,
    dtype: DType,
    picture: ValueId,
) -> Result<ValueId, NetworkError> {
    config.check()?;
    let given = ("the picture", g.shape(picture).channels());
    SETTINGS.agrees("conditioning_channels", config.conditioning_channels, given)?;
    let mut l = Layers { g, dtype };
    Ok(l.scope("controlnet_cond_embedding", |l| embedding(l, config, picture))?)
}

fn embedding(l: &mut Layers<'_>, config: &ControlNetConfig, picture: ValueId) -> Result<ValueId, GraphError> {
    let widths = &config.conditioning_embedding_out_channels;
    let mut x = l.conv3x3("conv_in", picture, widths[0])?;
    x = l.g.activate("act_in", x, Activation::Silu)?;
    for (i, pair) in widths.windows(2).enumerate() {
        for (layer, out, stride) in [(2 * i, pair[0], 1), (2 * i + 1, pair[1], 2)] {
            x = l.conv(&format!("blocks.{layer}"), x, out, Conv::spatial([3, 3], stride, 1))?;
            x = l.g.activate(&format!("blocks.{layer}.act"), x, Activation::Silu)?;
        }
    }
    l.conv3x3("conv_out", x, config.unet.block_out_channels[0])
}

/// Adds the network to a graph. `condition` is what [`condition`] gave, for each image or for all, `scale` how much of the
/// result is added, f32 `[1]`.
///
/// # Errors
/// If the configuration is refused or the inputs do not fit it.
pub fn controlnet(
    g: &mut GraphBuilder,
    config: &ControlNetConfig,
    dtype: DType,
    inputs: &Unet2dInputs,
    (condition, scale): (ValueId, ValueId),
) -> Result<Residuals, NetworkError> {
    config.check()?;
    let conditions = Conditions::new(g, &config.unet, inputs)?;
    let shape = config.unet.shape()?;
    let l = &mut Layers { g, dtype };
    let scale = l.g.cast("scale", scale, dtype)?;
    let x = l.conv3x3("conv_in", inputs.sample, shape.in_width)?;
    let x = l.g.add("conditioned", x, condition)?;
    let (mid, skips) = shape.contract(l, x, &conditions)?;
    let mut residual = |name: &str, x: ValueId| {
        let x = l.conv(name, x, l.channels(x), Conv::spatial([1, 1], 1, 0))?;
        l.g.mul(&format!("{name}.scaled"), x, scale)
    };
    let down =
        skips.iter().enumerate().map(|(i, &skip)| residual(&format!("controlnet_down_blocks.{i}"), skip));
    let down = down.collect::<Result<_, _>>()?;
    Ok(Residuals { down, mid: residual("controlnet_mid_block", mid)? })
}
