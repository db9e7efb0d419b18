//! The parts of a frame in a profile.

use std::collections::HashSet;

use kinora_graph::Phase;
use kinora_models::networks::frame::VAE;
use kinora_profile::Profile;
use kinora_runtime::work::phase_name;

use super::frames::PART;

const CONDITIONS: &str = "conditions";
const ENCODE: &str = "encode";
const STEPS: &str = "steps";
const DECODE: &str = "decode";

/// What the names of the autoencoder's layers behind the latents begin with.
const BEHIND: [&str; 5] = ["decoder", "post_quant_conv", "latents.unscaled", "latents.cast", "frames"];

/// Names layers after the part of a frame that they belong to, instead of the network, which has all of them: `encode`, `steps`
/// and `decode`, and `conditions` for what is computed when prompts or timesteps change.
pub fn name_parts(profile: &mut Profile) {
    let of_a_change = |parent: usize| {
        profile.spans.get(parent).is_some_and(|parent| parent.name == phase_name(Phase::Clip))
    };
    let changes = profile.spans.iter().filter(|span| span.parent.is_some_and(of_a_change));
    let once: HashSet<usize> = changes.filter_map(|span| span.work).collect();
    for (number, work) in profile.works.iter_mut().enumerate().filter(|(_, work)| work.program == PART) {
        let part = if once.contains(&number) { CONDITIONS } else { part(&work.layer) };
        part.clone_into(&mut work.program);
    }
}

fn part(layer: &str) -> &'static str {
    match layer.split_once('.') {
        Some((VAE, layer)) if BEHIND.iter().any(|begin| layer.starts_with(begin)) => DECODE,
        Some((VAE, _)) => ENCODE,
        _ => STEPS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_belong_to_parts_by_their_names() {
        for (layer, expected) in [
            ("vae.frame.cast", ENCODE),
            ("vae.encoder.layers.0", ENCODE),
            ("vae.quant_conv", ENCODE),
            ("start", STEPS),
            ("unet.conv_in", STEPS),
            ("controlnet.conv_in", STEPS),
            ("blended", STEPS),
            ("vae.post_quant_conv", DECODE),
            ("vae.decoder.layers.0", DECODE),
            ("vae.frames.bytes", DECODE),
        ] {
            assert_eq!(part(layer), expected, "{layer}");
        }
    }
}
