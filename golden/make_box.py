"""Makes the clip that diffusers gives for the model in the box, as `kinora generate` asks for it: all frames below each
other."""

import json

import numpy as np
import torch
from diffusers import StableVideoDiffusionPipeline
from PIL import Image

import fixtures

SEED = 7
LIMIT = 512 << 10


def main():
    out = fixtures.folder(__doc__, "crates/kinora/tests/fixtures/box")
    box = fixtures.ROOT / "crates" / "box"
    pipeline = StableVideoDiffusionPipeline.from_pretrained(box / "model")
    pipeline.set_progress_bar_config(disable=True)
    defaults = json.loads((box / "model" / "defaults.json").read_text(encoding="utf-8"))
    torch.manual_seed(SEED)
    with torch.no_grad():
        frames = pipeline(
            Image.open(box / "stills" / "flyer.png"),
            height=defaults["height"],
            width=defaults["width"],
            num_frames=defaults["frames"],
            num_inference_steps=defaults["steps"],
            min_guidance_scale=defaults["min_guidance"],
            max_guidance_scale=defaults["max_guidance"],
            fps=defaults["fps"],
            motion_bucket_id=defaults["motion_bucket"],
            noise_aug_strength=defaults["noise_augmentation"],
            decode_chunk_size=defaults["frames"],
        ).frames[0]
    strip = np.concatenate([np.asarray(frame) for frame in frames])
    Image.fromarray(strip).save(out / f"seed-{SEED}.png", optimize=True)
    fixtures.check_size(out, LIMIT)


if __name__ == "__main__":
    main()
