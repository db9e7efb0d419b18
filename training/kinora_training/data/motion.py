"""How much a clip moves, measured from its frames, and the motion bucket that stands for it.

A surface that moves by d pixels changes a pixel by the slope of its brightness times the part of d along that slope,
which is 2/π of it on average over all directions. So the mean displacement in pixels per frame, wherever there is
any contrast, is

    π/2 · Σ |frame[t+1] − frame[t]| / Σ |slope of frame[t]|

over all pixels, colours and frames, after a blur of 1.5 pixels, which keeps it accurate up to a few pixels per frame.
It needs only frames, so generated clips are measured in the same way as training clips.
"""

import math

import torch
import torch.nn.functional as F

from .layers import SIDE

BLUR = 1.5
# Model time runs in steps of a seventh of a second, the pipeline's default frame rate.
BASE_FPS = 7.0
# Pixels per frame of bucket 127, the pipeline's default, at 7 frames per second.
PIXELS_AT_127 = 0.5


def blurred(frames):
    """Weighted sums of shifted frames, along one axis and then the other; beyond its edges a frame repeats them.

    In full precision on any device: a GPU's convolutions may round, and slow motion is hardly more than rounding."""
    radius = math.ceil(3 * BLUR)
    weights = [math.exp(-0.5 * (place / BLUR) ** 2) for place in range(-radius, radius + 1)]
    for axis, padding in ((-1, (radius, radius, 0, 0)), (-2, (0, 0, radius, radius))):
        length = frames.shape[axis]
        padded = F.pad(frames.flatten(0, 2), padding, mode="replicate")
        total = torch.zeros_like(frames).flatten(0, 2)
        for shift, weight in enumerate(weights):
            total.add_(padded.narrow(axis, shift, length), alpha=weight / sum(weights))
        frames = total.reshape(frames.shape)
    return frames


def displacement(frames):
    """Pixels per frame for each clip of `[clips, frames, 3, height, width]`."""
    frames = blurred(frames.float())
    change = (frames[:, 1:] - frames[:, :-1]).abs().mean((1, 2, 3, 4))
    middle = 0.5 * (frames[:, 1:] + frames[:, :-1])
    right = (middle[..., 1:-1, 2:] - middle[..., 1:-1, :-2]) / 2
    down = (middle[..., 2:, 1:-1] - middle[..., :-2, 1:-1]) / 2
    slope = torch.hypot(right, down).mean((1, 2, 3, 4))
    # Clips of another size are measured as if they had ours.
    return math.pi / 2 * change / slope.clamp(min=1e-5) * (SIDE / frames.shape[-1])


def bucket(pixels_per_frame, fps):
    """The motion bucket, 1 to 255, of a displacement at a frame rate: in proportion to the speed in the scene."""
    speed = pixels_per_frame * fps / BASE_FPS
    return (127 * speed / PIXELS_AT_127).round().clamp(1, 255)
