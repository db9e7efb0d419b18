"""Makes the golden tensors of the autoencoder: encoder, temporal decoder and their parts, with diffusers.

Weights and inputs are those of synthetic.py under their names, so that a fixture holds results alone. They are computed
in f64 and stored as f32, channels last; bytes are made by diffusers' own postprocessing of the f32 frames.
"""

import json
import pathlib

import numpy as np
import torch
from diffusers import AutoencoderKLTemporalDecoder
from diffusers.image_processor import VaeImageProcessor
from safetensors.numpy import save_file

import synthetic

FIXTURES = pathlib.Path(__file__).parent.parent / "crates/models/tests/fixtures"


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


def values(name, shape):
    """An input, channels last."""
    return synthetic.uniform(name, int(np.prod(shape))).reshape(shape)


def channels_first(array):
    return torch.from_numpy(np.ascontiguousarray(array.transpose(0, 3, 1, 2)))


def channels_last(tensor):
    return np.ascontiguousarray(tensor.detach().numpy().astype(np.float32).transpose(0, 2, 3, 1))


def run(case, tensors):
    config, name = case["config"], case["name"]
    vae = AutoencoderKLTemporalDecoder(**config).eval()
    synthetic.fill(vae)
    vae = vae.double()
    for part in case["parts"]:
        keep = lambda _module, _inputs, result, part=part: tensors.update({f"{name}/{part}": channels_last(result)})
        vae.get_submodule(part).register_forward_hook(keep)
    if case["parts"]:
        norms = ((norm, module) for norm, module in vae.named_modules() if isinstance(module, torch.nn.GroupNorm))
        case["epsilons"] = {norm: module.eps for norm, module in norms}
    image = channels_first(values(f"{name}/image", case["image"] + [vae.config.in_channels]))
    tensors[f"{name}/latents"] = channels_last(vae.encode(image).latent_dist.mode())
    latents = channels_first(values(f"{name}/latents", case["latents"] + [vae.config.latent_channels]))
    frames = vae.decode(latents / vae.config.scaling_factor, num_frames=len(latents)).sample
    pictures = VaeImageProcessor().postprocess(frames.float(), output_type="pil")
    tensors[f"{name}/bytes"] = np.stack([np.asarray(picture) for picture in pictures])
    # Last, so that the parts' results are those of this run.
    tensors[f"{name}/frames"] = channels_last(vae.decode(latents, num_frames=len(latents)).sample)


def main():
    # Sums must not depend on how many cores share them.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    tensors = {}
    with torch.no_grad():
        for case in CASES:
            run(case, tensors)
    FIXTURES.mkdir(parents=True, exist_ok=True)
    save_file(tensors, FIXTURES / "vae.safetensors")
    (FIXTURES / "vae.json").write_text(json.dumps(CASES, indent=1) + "\n", encoding="utf-8")
    print(f"vae: {len(CASES)} cases, {sum(t.nbytes for t in tensors.values()) / 1024:.1f} KiB")


if __name__ == "__main__":
    main()
