"""Writes the trained networks as an ordinary diffusers folder, in f16, and loads it again as anyone would."""

import json

import torch

from ..networks import configurations as sizes
from ..stages import autoencoder, diffusion

# All weights together, in bytes.
MOST_BYTES = 24 * 2**20


def write(work, folder):
    """Writes the folder that `StableVideoDiffusionPipeline.from_pretrained` reads. Returns the bytes of its weights."""
    from diffusers import StableVideoDiffusionPipeline

    unet, encoder = diffusion.trained(work)
    vae = autoencoder.trained(work, "cpu", torch.float32)
    # Without the layers that were replaced for speed.
    plain = sizes.autoencoder()
    plain.load_state_dict(vae.state_dict())
    networks = {"unet": unet, "vae": plain, "image_encoder": encoder}
    for name, network in networks.items():
        for parameter, value in network.state_dict().items():
            if not value.half().isfinite().all():
                raise SystemExit(f"{name}: {parameter} does not fit f16")
        network.half().eval()
    pipeline = StableVideoDiffusionPipeline(
        **networks, scheduler=sizes.scheduler(), feature_extractor=sizes.feature_extractor()
    )
    pipeline.save_pretrained(folder)
    index = folder / "model_index.json"
    contents = json.loads(index.read_text(encoding="utf-8"))
    # By the name that the class is published under, whichever variant of it wrote the numbers.
    contents["feature_extractor"] = ["transformers", "CLIPImageProcessor"]
    index.write_text(json.dumps(contents, indent=2) + "\n", encoding="utf-8")
    # transformers would load it in the type of its file, unlike diffusers: a plain from_pretrained should give
    # f32.
    config = folder / "image_encoder" / "config.json"
    contents = json.loads(config.read_text(encoding="utf-8"))
    contents["dtype"] = "float32"
    config.write_text(json.dumps(contents, indent=2) + "\n", encoding="utf-8")
    defaults = dict(
        steps=sizes.STEPS,
        frames=sizes.FRAMES,
        height=sizes.SIDE,
        width=sizes.SIDE,
        fps=sizes.FPS,
        motion_bucket=sizes.MOTION_BUCKET,
        noise_augmentation=sizes.NOISE_AUGMENTATION,
        min_guidance=sizes.MIN_GUIDANCE,
        max_guidance=sizes.MAX_GUIDANCE,
    )
    # Not read by diffusers: the defaults of a clip.
    (folder / "defaults.json").write_text(json.dumps(defaults, indent=2) + "\n", encoding="utf-8")
    weights = sum(path.stat().st_size for path in folder.rglob("*.safetensors"))
    if weights > MOST_BYTES:
        raise SystemExit(f"{weights} bytes of weights are more than {MOST_BYTES}")
    return weights


def load(folder, device, dtype):
    """The pipeline from the folder."""
    from diffusers import StableVideoDiffusionPipeline

    pipeline = StableVideoDiffusionPipeline.from_pretrained(folder, feature_extractor=sizes.feature_extractor())
    pipeline.set_progress_bar_config(disable=True)
    return pipeline.to(device, dtype)
