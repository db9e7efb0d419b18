//! The names that programs give the tensors of a LoRA file.

use std::fmt;

/// A part of a model that a LoRA changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LoraPart {
    /// The UNet.
    Unet,
    /// The text encoder.
    TextEncoder,
    /// Stable Diffusion XL's second one.
    TextEncoder2,
}

impl LoraPart {
    /// All of them.
    pub const ALL: [LoraPart; 3] = [LoraPart::Unet, LoraPart::TextEncoder, LoraPart::TextEncoder2];

    /// Its name in a model's folder.
    pub fn name(self) -> &'static str {
        match self {
            LoraPart::Unet => "unet",
            LoraPart::TextEncoder => "text_encoder",
            LoraPart::TextEncoder2 => "text_encoder_2",
        }
    }
}

/// The name of a changed layer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ModuleName {
    /// As the model has it: `down_blocks.0.resnets.0.conv1`.
    Dotted(String),
    /// With underscores for the dots: `down_blocks_0_resnets_0_conv1`.
    Flat(String),
}

impl fmt::Display for ModuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ModuleName::Dotted(name) | ModuleName::Flat(name)) = self;
        f.write_str(name)
    }
}

/// What a tensor is to its module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// From the module's inputs to the rank.
    Down,
    /// From the rank to its outputs.
    Up,
    /// A number that scales both.
    Alpha,
}

/// A tensor's name, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub part: LoraPart,
    pub module: ModuleName,
    pub role: Role,
}

/// What stands between a module's name and `weight`; diffusers and peft have had several ways to write it.
const MARKS: [(&str, Role); 10] = [
    (".lora_A.", Role::Down),
    (".lora_B.", Role::Up),
    (".lora_down.", Role::Down),
    (".lora_up.", Role::Up),
    (".lora_linear_layer.down.", Role::Down),
    (".lora_linear_layer.up.", Role::Up),
    (".lora.down.", Role::Down),
    (".lora.up.", Role::Up),
    ("_lora.down.", Role::Down),
    ("_lora.up.", Role::Up),
];
/// How names begin, with the part, and whether underscores stand for dots.
const PREFIXES: [(&str, LoraPart, bool); 7] = [
    ("unet.", LoraPart::Unet, false),
    ("text_encoder.", LoraPart::TextEncoder, false),
    ("text_encoder_2.", LoraPart::TextEncoder2, false),
    ("lora_unet_", LoraPart::Unet, true),
    ("lora_te_", LoraPart::TextEncoder, true),
    ("lora_te1_", LoraPart::TextEncoder, true),
    ("lora_te2_", LoraPart::TextEncoder2, true),
];

/// What a tensor's name says; `None` if it is no tensor of a LoRA that is known.
pub(super) fn parse(name: &str) -> Option<Key> {
    let (module, role) = match name.strip_suffix(".alpha") {
        Some(module) => (module, Role::Alpha),
        None => {
            let (at, mark, role) =
                MARKS.iter().find_map(|&(mark, role)| Some((name.find(mark)?, mark, role)))?;
            // peft may put the adapter's name in between: `lora_A.default.weight`.
            let rest = &name[at + mark.len()..];
            let plain =
                rest == "weight" || rest.strip_suffix(".weight").is_some_and(|name| !name.contains('.'));
            if !plain {
                return None;
            }
            (&name[..at], role)
        }
    };
    let module = module.strip_prefix("base_model.model.").unwrap_or(module);
    let prefixed =
        PREFIXES.iter().find_map(|&(prefix, part, flat)| Some((module.strip_prefix(prefix)?, part, flat)));
    // Files of a UNet alone begin with its blocks.
    let alone = || {
        let known = ["down_blocks.", "mid_block.", "up_blocks."];
        known.iter().any(|block| module.starts_with(block)).then_some((module, LoraPart::Unet, false))
    };
    let (module, part, flat) = prefixed.or_else(alone)?;
    let module = if flat { ModuleName::Flat(module.to_owned()) } else { ModuleName::Dotted(dotted(module)) };
    Some(Key { part, module, role })
}

/// A layer's name without what older versions of diffusers put into it: `attn1.processor.to_out` is `attn1.to_out.0`.
fn dotted(module: &str) -> String {
    let module = module.replace(".processor.", ".");
    if module.ends_with(".to_out") { format!("{module}.0") } else { module }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_name_is_read() {
        let attention = "down_blocks.0.attentions.1.transformer_blocks.0.attn1";
        let q = ModuleName::Dotted(format!("{attention}.to_q"));
        let out = ModuleName::Dotted(format!("{attention}.to_out.0"));
        let (unet, text) = (LoraPart::Unet, LoraPart::TextEncoder);
        let layer = "text_model.encoder.layers.3.mlp.fc1";
        let flat = |name: &str| ModuleName::Flat(name.replace('.', "_"));
        let dotted = |name: &str| ModuleName::Dotted(name.to_owned());
        for (name, part, module, role) in [
            (format!("unet.{attention}.to_q.lora_A.weight"), unet, q.clone(), Role::Down),
            (format!("unet.{attention}.to_q.lora_B.default.weight"), unet, q.clone(), Role::Up),
            (format!("base_model.model.unet.{attention}.to_q.lora_B.weight"), unet, q.clone(), Role::Up),
            (format!("unet.{attention}.to_q.lora.down.weight"), unet, q.clone(), Role::Down),
            (format!("unet.{attention}.processor.to_q_lora.up.weight"), unet, q.clone(), Role::Up),
            (format!("{attention}.processor.to_out_lora.down.weight"), unet, out.clone(), Role::Down),
            (format!("unet.{attention}.to_out.0.lora_A.weight"), unet, out, Role::Down),
            (format!("unet.{attention}.to_q.alpha"), unet, q, Role::Alpha),
            (
                format!("lora_unet_{}.lora_down.weight", attention.replace('.', "_")),
                unet,
                flat(attention),
                Role::Down,
            ),
            (
                "lora_unet_mid_block_resnets_0_conv1.alpha".to_owned(),
                unet,
                flat("mid_block.resnets.0.conv1"),
                Role::Alpha,
            ),
            (format!("lora_te_{}.lora_up.weight", layer.replace('.', "_")), text, flat(layer), Role::Up),
            (format!("lora_te1_{}.lora_up.weight", layer.replace('.', "_")), text, flat(layer), Role::Up),
            (format!("text_encoder.{layer}.lora_linear_layer.up.weight"), text, dotted(layer), Role::Up),
            (
                format!("text_encoder_2.{layer}.lora_A.weight"),
                LoraPart::TextEncoder2,
                dotted(layer),
                Role::Down,
            ),
        ] {
            assert_eq!(parse(&name), Some(Key { part, module, role }), "{name}");
        }
        for name in [
            "unet.conv_in.weight",
            "unet.conv_in.lora_B.bias",
            "lora_unet_conv_in.hada_w1_a",
            "lora_unet_conv_in.lora_mid.weight",
            "lora_unet_conv_in.dora_scale",
            "transformer.blocks.0.lora_A.weight",
            "lora_unet_conv_in.lora_down.a.b.weight",
            "",
            ".alpha",
        ] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
