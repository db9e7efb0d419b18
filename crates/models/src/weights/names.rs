//! The names that other versions of diffusers and transformers give a tensor.

/// An attention's layers in autoencoders that older versions of diffusers saved, Stable Diffusion 1.5's among them.
const OLD_ATTENTION: [(&str, &str); 4] =
    [(".to_q.", ".query."), (".to_k.", ".key."), (".to_v.", ".value."), (".to_out.0.", ".proj_attn.")];
/// What transformers 5 leaves out of the names of a `CLIPTextModel`.
const TEXT_MODEL: &str = "text_model.";

/// Another name that a file may have the tensor under.
pub(super) fn other_name(name: &str) -> Option<String> {
    let old = OLD_ATTENTION.iter().find(|(new, _)| name.contains(".attentions.") && name.contains(new));
    match old {
        Some((new, old)) => Some(name.replacen(new, old, 1)),
        None => name.strip_prefix(TEXT_MODEL).map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_has_the_names_of_other_versions() {
        let attention = "decoder.mid_block.attentions.0";
        for (new, old) in [("to_q", "query"), ("to_k", "key"), ("to_v", "value"), ("to_out.0", "proj_attn")] {
            for kind in ["weight", "bias"] {
                let name = format!("{attention}.{new}.{kind}");
                assert_eq!(other_name(&name), Some(format!("{attention}.{old}.{kind}")));
            }
        }
        assert_eq!(other_name(&format!("{attention}.group_norm.weight")), None);
        assert_eq!(other_name("text_model.final_layer_norm.bias").as_deref(), Some("final_layer_norm.bias"));
        assert_eq!(other_name("text_projection.weight"), None);
    }
}
