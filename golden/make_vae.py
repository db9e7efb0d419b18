"""Makes the golden tensors of the autoencoder: encoder, temporal decoder and their parts, with diffusers. See
networks.py.

Bytes are made by diffusers' own postprocessing of the f32 frames.
"""

import numpy as np
import torch
from diffusers import AutoencoderKLTemporalDecoder
from diffusers.image_processor import VaeImageProcessor

import networks
from ops.layouts import images_first, images_last


def case(name, widths, layers, image, latents, parts=(), **config):
    """A configuration with the size of its images `[images, height, width]` and latents `[frames, height, width]`."""
    config |= {
        "block_out_channels": widths,
        "down_block_types": ["DownEncoderBlock2D"] * len(widths),
        "layers_per_block": layers,
    }
    return {"name": name, "config": config, "image": image, "latents": latents, "parts": list(parts)}


CASES = [
    # One layer a block: the decoder's attention exists but never runs.
    case("one_level", [32], 1, [1, 5, 7], [1, 3, 5]),
    case(
        "two_levels",
        [32, 64],
        2,
        [2, 6, 10],
        [3, 3, 4],
        parts=[
            "encoder.down_blocks.0",
            "encoder.mid_block.attentions.0",
            "encoder.mid_block",
            "decoder.mid_block.resnets.0",
            "decoder.mid_block.attentions.0",
            "decoder.up_blocks.0",
        ],
    ),
    # The shape of Stable Video Diffusion's.
    case("four_levels", [32, 64, 96, 96], 2, [1, 16, 24], [5, 2, 3]),
    # Three layers: the decoder's third residual block in the middle exists but never runs.
    case("narrowing", [96, 32], 3, [1, 7, 4], [2, 4, 3], latent_channels=5, scaling_factor=0.5),
]


def run(case, results):
    name = case["name"]
    vae = networks.synthetic_model(AutoencoderKLTemporalDecoder(**case["config"]))
    networks.keep_parts(vae, case, results)
    if case["parts"]:
        norms = ((norm, module) for norm, module in vae.named_modules() if isinstance(module, torch.nn.GroupNorm))
        case["epsilons"] = {norm: module.eps for norm, module in norms}

    def images(of, channels):
        return images_first(networks.given(name, of, *case[of], channels)).contiguous()

    image = images("image", vae.config.in_channels)
    results[f"{name}/latents"] = images_last(vae.encode(image).latent_dist.mode())
    latents = images("latents", vae.config.latent_channels)
    frames = vae.decode(latents / vae.config.scaling_factor, num_frames=len(latents)).sample
    pictures = VaeImageProcessor().postprocess(frames.float(), output_type="pil")
    results[f"{name}/bytes"] = torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures]))
    # Last, so that the parts' results are those of this run.
    results[f"{name}/frames"] = images_last(vae.decode(latents, num_frames=len(latents)).sample)


if __name__ == "__main__":
    networks.main(__doc__, "vae", lambda: networks.each(CASES, run))
