"""Checks the clips: a number gives the same bytes in any batch, all values are finite, and measured motion is correct.

Usage:

    python -m kinora_training.check_data [--device cuda]
"""

import argparse
import math

import torch

from .data import motion
from .data.clips import HELD_OUT, Clips
from .data.layers import SIDE


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cpu")
    arguments = arguments.parse_args()
    clips = Clips(arguments.device)
    numbers = [*range(12), HELD_OUT, HELD_OUT + 1]
    together = clips.make(numbers).frames
    assert together.shape == (len(numbers), 14, 3, SIDE, SIDE)
    assert together.isfinite().all() and together.min() >= 0 and together.max() <= 1
    again = clips.make(numbers).frames
    assert torch.equal(together, again), "the same numbers give other clips"
    alone = torch.cat([clips.make([number]).frames for number in numbers])
    furthest = (alone - together).abs().max().item()
    assert furthest < 1 / 255, f"a clip depends on its batch, by {furthest}"
    some = clips.make(numbers, frames=[0, 5, 13]).frames
    assert (some - together[:, [0, 5, 13]]).abs().max() < 1 / 255, "a frame depends on which others are made"

    # A texture that is moved by a known distance, in all directions.
    canvas = clips.make(range(40, 48), frames=[0], scene="camera").frames[:, 0]
    for distance in (0.5, 1.0, 2.0):
        measured = []
        for turn in range(8):
            angle = turn * math.pi / 4
            shift = torch.tensor([math.cos(angle), math.sin(angle)]) * distance * 2 / SIDE
            still = torch.eye(2, 3, device=canvas.device).repeat(len(canvas), 1, 1)
            moved = []
            for frame in range(4):
                still[:, :, 2] = shift.to(canvas.device) * frame
                grid = torch.nn.functional.affine_grid(0.8 * still, canvas.shape, align_corners=False)
                moved.append(torch.nn.functional.grid_sample(canvas, grid, align_corners=False))
            # Only 0.8 of the canvas is visible, so a pixel is larger by as much.
            measured.append(motion.displacement(torch.stack(moved, dim=1)).mean().item())
        mean = sum(measured) / len(measured)
        print(f"moved by {distance} pixels a frame, measured {mean:.2f}")
        assert 0.75 < mean / distance < 1.25, "the measure of motion is off"
    print("The data is as it should be.")


if __name__ == "__main__":
    main()
