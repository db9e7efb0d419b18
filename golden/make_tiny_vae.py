"""Makes the golden tensors of the tiny autoencoder: encoder, decoder and their parts, with diffusers. See networks.py.

Images are bytes too: read as diffusers preprocesses them, and made by its postprocessing of the f32 frames.
"""

import json

import numpy as np
import torch
from diffusers import AutoencoderTiny
from diffusers.image_processor import VaeImageProcessor

import networks
import synthetic
from ops.layouts import images_first, images_last


def case(name, widths, encoder_blocks, decoder_blocks, image, latents, parts=(), **config):
    """A configuration with the size of its images and of its latents, `[images, height, width]`."""
    config |= {
        "encoder_block_out_channels": [widths[0]] * len(encoder_blocks),
        "decoder_block_out_channels": [widths[1]] * len(decoder_blocks),
        "num_encoder_blocks": encoder_blocks,
        "num_decoder_blocks": decoder_blocks,
    }
    return {"name": name, "config": config, "image": image, "latents": latents, "parts": list(parts)}


CASES = [
    case("one_level", [8, 8], [1], [1], [1, 5, 7], [1, 3, 5]),
    # Sizes that halve to a fraction, other channels, and a level without blocks.
    case(
        "uneven",
        [12, 20],
        [1, 0, 2],
        [2, 1, 0],
        [2, 9, 14],
        [2, 3, 2],
        parts=["encoder.layers.1", "encoder.layers.2", "decoder.layers.2", "decoder.layers.4", "decoder.layers.5"],
        in_channels=2,
        out_channels=5,
        latent_channels=6,
    ),
    # As published, with fewer channels.
    case("published", [16, 16], [1, 3, 3, 3], [3, 3, 3, 1], [1, 16, 24], [2, 2, 3]),
]


def run(case, results):
    name = case["name"]
    vae = networks.synthetic_model(AutoencoderTiny(**case["config"]))
    networks.keep_parts(vae, case, results)

    def images(of, channels):
        return images_first(networks.given(name, of, *case[of], channels)).contiguous()

    results[f"{name}/latents"] = images_last(vae.encode(images("image", vae.config.in_channels)).latents)
    # As far outside as latents come.
    latents = 4 * images("latents", vae.config.latent_channels)
    frames = vae.decode(latents).sample
    results[f"{name}/frames"] = images_last(frames)
    if vae.config.in_channels == 3 and vae.config.out_channels == 3:
        pictures = VaeImageProcessor().postprocess(frames.float(), output_type="pil")
        results[f"{name}/bytes"] = torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures]))
        count, height, width = case["image"]
        photo = torch.from_numpy(synthetic.photo(width, height)).double()
        photo = photo.expand(count, -1, -1, -1) / 127.5 - 1
        results[f"{name}/latents_of_photo"] = images_last(vae.encode(images_first(photo)).latents)
    case["config"] = json.loads(vae.to_json_string())


if __name__ == "__main__":
    networks.main(__doc__, "tiny_vae", lambda: networks.each(CASES, run))
