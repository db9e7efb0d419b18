"""Paints the example stills: first frames of clips that training never sees.

Usage:

    python -m kinora_training.stills --out ../crates/box/stills
"""

import argparse
import pathlib

from PIL import Image

from .data.clips import HELD_OUT, Clips

# By name: the kind of scene, and which of the held-out clips.
STILLS = {
    "flyer": ("landscape", 2019),
    "creature": ("landscape", 2003),
    "trio": ("landscape", 2031),
    "night": ("landscape", 2034),
    "walker": ("sprites", 1024),
    "pair": ("sprites", 1011),
}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=pathlib.Path, required=True)
    out = arguments.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    clips = Clips("cpu")
    for name, (scene, number) in STILLS.items():
        frame = clips.make([HELD_OUT + number], frames=[0], scene=scene).frames[0, 0]
        bytes_ = (frame * 255).round().byte().permute(1, 2, 0).contiguous().numpy()
        Image.fromarray(bytes_).save(out / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
