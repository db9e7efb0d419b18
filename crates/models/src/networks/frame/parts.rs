//! The weights of several networks in one graph.

use kinora_graph::{ParameterError, Parameters, Tensor, TensorType};

/// What the names of the UNet's weights begin with.
pub const UNET: &str = "unet";
/// What the names of the autoencoder's weights begin with.
pub const VAE: &str = "vae";

/// What the names of the ControlNet's weights begin with.
pub const CONTROLNET: &str = "controlnet";

/// The weights of several networks, each under the name that its weights begin with in the graph.
pub struct Parts<'a>(pub Vec<(&'static str, &'a dyn Parameters)>);

impl Parameters for Parts<'_> {
    fn parameter(&self, name: &str, ty: &TensorType) -> Result<Option<Tensor>, ParameterError> {
        let Some((network, name)) = name.split_once('.') else { return Ok(None) };
        match self.0.iter().find(|(part, _)| *part == network) {
            Some((_, parameters)) => parameters.parameter(name, ty),
            None => Ok(None),
        }
    }
}
