//! From an image to the embedding that a text about it would have.

use kinora_graph::{
    DType, Graph, GraphBuilder, GraphError, Phase, TensorType, ValueId,
    op::{Conv, Mask},
};

use super::{ClipVisionConfig, config::SETTINGS};
use crate::networks::{
    NetworkError,
    clip_layer::{ClipLayer, Queries},
    layers::Layers,
};

/// More images at a time than anyone embeds: the class token is laid before each one's patches.
const MAX_IMAGES: usize = 1 << 10;

/// The image encoder as a graph.
///
/// Input: `pixels [images, image_size, image_size, channels]`, normalised as the model's preprocessor says. Result:
/// `embedding [images, projection_dim]`.
///
/// # Errors
/// If no network can be built from the configuration and the number of images.
pub fn encoder(config: &ClipVisionConfig, images: usize, dtype: DType) -> Result<Graph, NetworkError> {
    config.check()?;
    SETTINGS.within("the number of images", images, 1..=MAX_IMAGES)?;
    let mut g = GraphBuilder::new("clip_vision");
    let size = config.image_size;
    let ty = TensorType::new(dtype, [images, size, size, config.num_channels]);
    let pixels = g.input("pixels", ty, Phase::Step)?;
    let mut l = Layers { g: &mut g, dtype };
    let class = l.scope("vision_model", |l| class_token(l, pixels, config))?;
    let class = l.g.reshape("visual_projection.input", class, [images, config.hidden_size])?;
    let embedding = l.linear("visual_projection", class, config.projection_dim, false)?;
    g.output("embedding", embedding)?;
    SETTINGS.sized(g.finish(), "hidden_size")
}

/// What the class token has become, `[images, 1, width]`.
fn class_token(
    l: &mut Layers<'_>,
    pixels: ValueId,
    config: &ClipVisionConfig,
) -> Result<ValueId, GraphError> {
    let mut x = l.scope("embeddings", |l| embeddings(l, pixels, config))?;
    x = l.layer_norm("pre_layrnorm", x, config.layer_norm_eps)?;
    let encoder_layer = ClipLayer {
        heads: config.num_attention_heads,
        intermediate_size: config.intermediate_size,
        activation: config.hidden_act,
        epsilon: config.layer_norm_eps,
        mask: Mask::None,
    };
    for layer in 0..config.num_hidden_layers {
        // After the last layer nothing reads the patches.
        let queries = if layer + 1 == config.num_hidden_layers { Queries::ClassToken } else { Queries::All };
        x = l.scope(format!("encoder.layers.{layer}"), |l| encoder_layer.build(l, x, queries))?;
    }
    l.layer_norm("post_layernorm", x, config.layer_norm_eps)
}

/// The class token and the patches, each with the embedding of its position: `[images, 1 + patches, width]`.
fn embeddings(l: &mut Layers<'_>, pixels: ValueId, config: &ClipVisionConfig) -> Result<ValueId, GraphError> {
    let (images, width) = (l.g.shape(pixels)[0], config.hidden_size);
    let (side, size) = (config.patches(), config.patch_size);
    let patches = side * side;
    let positions = l.parameter("position_embedding.weight", &[1 + patches, width])?;

    let patch = Conv::spatial([size, size], size, 0);
    let x = l.conv_without_bias("patch_embedding", pixels, width, patch)?;
    let places = l.g.slice("position_embedding.patches", positions, 0, 1, patches)?;
    let places = l.g.reshape("position_embedding.image", places, [1, side, side, width])?;
    let x = l.g.add("patches", x, places)?;
    let x = l.g.reshape("patches.tokens", x, [images, patches, width])?;

    // The class token and its place depend on weights alone.
    let class = l.parameter("class_embedding", &[width])?;
    let place = l.g.slice("position_embedding.class", positions, 0, 0, 1)?;
    let class = l.g.add("class", place, class)?;
    let class = l.g.reshape("class.token", class, [1, 1, width])?;
    let class = match images {
        1 => class,
        _ => l.g.concat("class.images", &vec![class; images], 0)?,
    };
    l.g.concat("tokens", &[class, x], 1)
}
