//! The UNet alone: the prediction for clips beside each other, without scaling, guidance and sampler.

use kinora_graph::{DType, Graph, GraphBuilder, Phase, Tensor, TensorType};
use kinora_models::networks::unet::{UnetConfig, UnetInputs, time_embedding, unet};

use crate::Failure;

/// The clips that the UNet sees.
pub struct Clips {
    /// How many there are.
    pub count: usize,
    /// Frames of each.
    pub frames: usize,
    /// Height of the latents.
    pub height: usize,
    /// Width of the latents.
    pub width: usize,
}

/// The UNet as a graph, with inputs and result of the stage `unet`.
pub fn prediction(config: &UnetConfig, dtype: DType, clips: &Clips) -> Result<Graph, Failure> {
    let &Clips { count, frames, height, width } = clips;
    let images = count * frames;
    let mut g = GraphBuilder::new("unet");
    let sample = TensorType::new(dtype, [images, height, width, config.in_channels]);
    let sample = g.input("sample", sample, Phase::Step)?;
    let context = TensorType::new(dtype, [count, 1, config.context_channels()?]);
    let context = g.input("context", context, Phase::Clip)?;
    let timesteps = g.input("timesteps", TensorType::new(DType::F32, [count]), Phase::Clip)?;
    let ids = TensorType::new(DType::F32, [count, config.added_time_ids()?]);
    let ids = g.input("added_time_ids", ids, Phase::Clip)?;
    let time = time_embedding(&mut g, config, dtype, timesteps, ids)?;
    // Every image reads the row of its clip.
    let rows = (0..images).map(|image| i32::try_from(image / frames)).collect::<Result<Vec<_>, _>>()?;
    let rows = g.constant("rows", Tensor::from_slice([images], &rows)?)?;
    let time = g.embedding("time_rows", time, rows)?;
    let prediction = unet(&mut g, config, dtype, &UnetInputs { sample, time, context, frames })?;
    g.output("prediction", prediction)?;
    Ok(g.finish())
}
