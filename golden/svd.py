"""Stable Video Diffusion as it is published."""

import json
import pathlib

PRESET = pathlib.Path(__file__).resolve().parents[1] / "crates/models/presets/svd.json"

# The UNet's kinds of blocks, as diffusers calls them.
CROSS_DOWN, DOWN = "CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"
CROSS_UP, UP = "CrossAttnUpBlockSpatioTemporal", "UpBlockSpatioTemporal"

# The published settings that Euler's method does not know.
OTHERS = ("_class_name", "clip_sample", "set_alpha_to_one", "skip_prk_steps", "trained_betas")
# Those of its EulerDiscreteScheduler.
SCHEDULER = {
    name: value
    for name, value in json.loads(PRESET.read_text(encoding="utf-8"))["scheduler"].items()
    if name not in OTHERS
}
