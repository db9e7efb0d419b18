//! The names that the original code of Stable Diffusion has for the UNet's layers, which LoRAs for XL are often written with.
//!
//! They number the blocks through: `input_blocks_4_1` is the attention of the fifth block on the way down. diffusers has stages of
//! a fixed number of layers instead, which end with a change of size. See `convert_ldm_unet_checkpoint` of diffusers.

/// The layers that a residual block has under other names.
const RESIDUAL: [(&str, &str); 4] = [
    ("in_layers_2", "conv1"),
    ("emb_layers_1", "time_emb_proj"),
    ("out_layers_3", "conv2"),
    ("skip_connection", "conv_shortcut"),
];
/// The layers outside of the blocks.
const OTHERS: [(&str, &str); 6] = [
    ("input_blocks_0_0", "conv_in"),
    ("time_embed_0", "time_embedding_linear_1"),
    ("time_embed_2", "time_embedding_linear_2"),
    ("label_emb_0_0", "add_embedding_linear_1"),
    ("label_emb_0_2", "add_embedding_linear_2"),
    ("out_2", "conv_out"),
];

/// The name that diffusers has for a layer, underscores for dots in both, of a UNet with this many layers in a stage of the way
/// down. `None` if it is not one of the original names.
pub(super) fn in_diffusers(name: &str, layers: usize) -> Option<String> {
    if let Some((_, other)) = OTHERS.iter().find(|(original, _)| *original == name) {
        return Some((*other).to_owned());
    }
    // A stage of the way up has a layer more, for what comes from the side.
    let stage = layers.checked_add(1)?;
    if let Some(rest) = name.strip_prefix("middle_block_") {
        let (part, rest) = number(rest)?;
        return match part {
            1 => Some(format!("mid_block_attentions_0_{rest}")),
            0 | 2 => Some(format!("mid_block_resnets_{}_{}", part / 2, residual(rest)?)),
            _ => None,
        };
    }
    let (way, block, rest) = match (name.strip_prefix("input_blocks_"), name.strip_prefix("output_blocks_")) {
        (Some(rest), _) => {
            let (block, rest) = number(rest)?;
            // The first one is `conv_in`.
            ("down", block.checked_sub(1)?, rest)
        }
        (_, Some(rest)) => {
            let (block, rest) = number(rest)?;
            ("up", block, rest)
        }
        (None, None) => return None,
    };
    let (part, rest) = number(rest)?;
    let (of, layer) = (block / stage, block % stage);
    match (way, part, rest) {
        ("down", 0, "op") if layer == layers => Some(format!("down_blocks_{of}_downsamplers_0_conv")),
        // After the attention, if the stage has any.
        ("up", 1 | 2, "conv") if layer == layers => Some(format!("up_blocks_{of}_upsamplers_0_conv")),
        ("down", ..) if layer == layers => None,
        (_, 0, _) => Some(format!("{way}_blocks_{of}_resnets_{layer}_{}", residual(rest)?)),
        (_, 1, _) => Some(format!("{way}_blocks_{of}_attentions_{layer}_{rest}")),
        _ => None,
    }
}

/// The number that a name begins with, and what follows its underscore.
fn number(name: &str) -> Option<(usize, &str)> {
    let (number, rest) = name.split_once('_')?;
    Some((number.parse().ok()?, rest))
}

fn residual(name: &str) -> Option<&'static str> {
    RESIDUAL.iter().find(|(original, _)| *original == name).map(|(_, layer)| *layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of Stable Diffusion XL, as diffusers' conversion has them: three stages of two layers.
    #[test]
    fn the_original_names_are_those_of_diffusers() {
        let q = "transformer_blocks_0_attn1_to_q";
        for (original, diffusers) in [
            ("input_blocks_0_0", "conv_in".to_owned()),
            ("input_blocks_1_0_in_layers_2", "down_blocks_0_resnets_0_conv1".to_owned()),
            ("input_blocks_3_0_op", "down_blocks_0_downsamplers_0_conv".to_owned()),
            ("input_blocks_4_0_skip_connection", "down_blocks_1_resnets_0_conv_shortcut".to_owned()),
            ("input_blocks_4_1_transformer_blocks_0_attn1_to_q", format!("down_blocks_1_attentions_0_{q}")),
            ("input_blocks_5_1_proj_in", "down_blocks_1_attentions_1_proj_in".to_owned()),
            ("input_blocks_6_0_op", "down_blocks_1_downsamplers_0_conv".to_owned()),
            ("input_blocks_7_1_transformer_blocks_0_attn1_to_q", format!("down_blocks_2_attentions_0_{q}")),
            ("input_blocks_8_1_transformer_blocks_0_attn1_to_q", format!("down_blocks_2_attentions_1_{q}")),
            ("middle_block_0_out_layers_3", "mid_block_resnets_0_conv2".to_owned()),
            ("middle_block_1_transformer_blocks_0_attn1_to_q", format!("mid_block_attentions_0_{q}")),
            ("middle_block_2_emb_layers_1", "mid_block_resnets_1_time_emb_proj".to_owned()),
            ("output_blocks_0_1_transformer_blocks_0_attn1_to_q", format!("up_blocks_0_attentions_0_{q}")),
            ("output_blocks_2_1_transformer_blocks_0_attn1_to_q", format!("up_blocks_0_attentions_2_{q}")),
            ("output_blocks_2_2_conv", "up_blocks_0_upsamplers_0_conv".to_owned()),
            ("output_blocks_5_1_transformer_blocks_0_attn1_to_q", format!("up_blocks_1_attentions_2_{q}")),
            ("output_blocks_5_2_conv", "up_blocks_1_upsamplers_0_conv".to_owned()),
            ("output_blocks_8_0_in_layers_2", "up_blocks_2_resnets_2_conv1".to_owned()),
            ("time_embed_2", "time_embedding_linear_2".to_owned()),
            ("label_emb_0_0", "add_embedding_linear_1".to_owned()),
            ("out_2", "conv_out".to_owned()),
        ] {
            assert_eq!(in_diffusers(original, 2).as_deref(), Some(&*diffusers), "{original}");
        }
        // Stable Diffusion 1.x: four stages, the first of the way up without attention.
        assert_eq!(in_diffusers("input_blocks_9_0_op", 2).unwrap(), "down_blocks_2_downsamplers_0_conv");
        assert_eq!(in_diffusers("output_blocks_2_1_conv", 2).unwrap(), "up_blocks_0_upsamplers_0_conv");
        assert_eq!(
            in_diffusers("output_blocks_11_1_proj_out", 2).unwrap(),
            "up_blocks_3_attentions_2_proj_out"
        );
    }

    #[test]
    fn other_names_are_left() {
        for name in [
            "down_blocks_0_resnets_0_conv1",
            "input_blocks_0_1_proj_in",
            "input_blocks_3_1_proj_in",
            "input_blocks_1_0_op",
            "input_blocks_1_0_in_layers_7",
            "input_blocks_x_0_op",
            "input_blocks_1",
            "middle_block_3_proj_in",
            "output_blocks_1_2_conv",
            "output_blocks_99999999999999999999_0_op",
            "",
        ] {
            assert_eq!(in_diffusers(name, 2), None, "{name}");
        }
        assert_eq!(in_diffusers("input_blocks_4_1_proj_in", usize::MAX), None);
    }
}
