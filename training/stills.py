"""Paints the example stills: first frames of clips that training never sees.

    python training/stills.py --out assets/stills
"""

import argparse
import pathlib

from PIL import Image

from clips import HELD_OUT, Clips

# By name: the kind of scene, and which of the held-out clips.
STILLS = {
    "fish": ("landscape", 2028),
    "flyer": ("landscape", 2032),
    "mountains": ("landscape", 2000),
    "town": ("landscape", 2029),
    "letters": ("sprites", 1005),
    "stones": ("sprites", 1022),
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
