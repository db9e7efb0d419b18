"""Makes the golden tensors of the autoencoder of Stable Diffusion, with diffusers. See networks.py."""

import json

import torch
from diffusers import AutoencoderKL

import networks
from ops.layouts import images_first, images_last


def case(name, widths, layers, image, latents, parts=(), **config):
    """A configuration with the size of its images and of its latents, `[images, height, width]`."""
    config |= {
        "block_out_channels": widths,
        "down_block_types": ["DownEncoderBlock2D"] * len(widths),
        "up_block_types": ["UpDecoderBlock2D"] * len(widths),
        "layers_per_block": layers,
    }
    return {"name": name, "config": config, "image": image, "latents": latents, "parts": list(parts)}


CASES = [
    # One layer a block, which has an attention in its middle even so.
    case("one_level", [32], 1, [1, 5, 7], [1, 3, 5]),
    case(
        "two_levels",
        [32, 64],
        2,
        [2, 6, 10],
        [3, 3, 4],
        parts=["decoder.mid_block.resnets.0", "decoder.mid_block", "decoder.up_blocks.0"],
        in_channels=4,
        out_channels=2,
        latent_channels=5,
        scaling_factor=0.5,
    ),
    # The shape of Stable Diffusion's.
    case("four_levels", [32, 64, 96, 96], 2, [1, 16, 24], [2, 2, 3]),
]


def run(case, results):
    name = case["name"]
    vae = networks.synthetic_model(AutoencoderKL(**case["config"]))
    networks.keep_parts(vae, case, results)
    if case["parts"]:
        norms = ((norm, module) for norm, module in vae.named_modules() if isinstance(module, torch.nn.GroupNorm))
        case["epsilons"] = {norm: module.eps for norm, module in norms}

    def images(of, channels):
        return images_first(networks.given(name, of, *case[of], channels)).contiguous()

    image = images("image", vae.config.in_channels)
    results[f"{name}/latents"] = images_last(vae.encode(image).latent_dist.mode())
    latents = images("latents", vae.config.latent_channels)
    results[f"{name}/frames"] = images_last(vae.decode(latents / vae.config.scaling_factor).sample)
    case["config"] = json.loads(vae.to_json_string())


if __name__ == "__main__":
    networks.main(__doc__, "image_vae", lambda: networks.each(CASES, run))
