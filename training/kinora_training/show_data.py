"""Shows clips as a picture: a row for each, or several beside each other.

Usage:

    python -m kinora_training.show_data --out clips.png --count 12 --scene landscape
"""

import argparse
import pathlib

import torch

from .data.clips import SCENES, Clips
from .evaluation import strips


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=pathlib.Path, required=True)
    arguments.add_argument("--first", type=int, default=0, help="the number of the first clip")
    arguments.add_argument("--count", type=int, default=16)
    arguments.add_argument("--scene", choices=SCENES)
    arguments.add_argument("--frames", type=int, nargs="+", default=[0, 4, 9, 13])
    arguments.add_argument("--beside", type=int, default=2, help="clips in a row")
    arguments.add_argument("--enlarge", type=int, default=1)
    arguments.add_argument("--device", default="cpu")
    arguments = arguments.parse_args()
    numbers = range(arguments.first, arguments.first + arguments.count)
    frames = Clips(arguments.device).make(numbers, frames=arguments.frames, scene=arguments.scene).frames
    rows = [torch.cat(list(part)) for part in frames.split(arguments.beside)]
    strips.write(arguments.out, [row for row in rows if len(row) == len(rows[0])], arguments.enlarge)


if __name__ == "__main__":
    main()
