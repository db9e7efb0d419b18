"""Measures of generated clips. All take frames `[clips, frames, 3, height, width]` from 0 to 1."""

import torch
import torch.nn.functional as F

from ..data.colours import luminance
from ..stages.losses import bands


def sharpness(frames):
    """Mean slope of brightness, and mean absolute Laplacian, for each clip."""
    grey = luminance(frames)[:, :, 0]
    right = grey[..., 1:-1, 2:] - grey[..., 1:-1, :-2]
    down = grey[..., 2:, 1:-1] - grey[..., :-2, 1:-1]
    middle, across, along = grey[..., 1:-1, 1:-1], grey[..., 1:-1, :], grey[..., :, 1:-1]
    fine = across[..., 2:] + across[..., :-2] + along[..., 2:, :] + along[..., :-2, :] - 4 * middle
    return (torch.hypot(right, down) / 2).mean((1, 2, 3)), fine.abs().mean((1, 2, 3))


def flicker(frames):
    """Mean absolute second difference in time: what changes and changes back."""
    return (frames[:, 2:] - 2 * frames[:, 1:-1] + frames[:, :-2]).abs().mean((1, 2, 3, 4))


def hatching(frames):
    """The strength of patterns that alternate from pixel to pixel, for each clip: how much curvature between
    neighbouring pixels exceeds change across two pixels."""
    energy = F.avg_pool2d(bands(frames.flatten(0, 1)).square(), 4)
    change, curvature = energy.chunk(2, dim=1)
    return (curvature - change).clamp(min=0).mean((1, 2, 3)).unflatten(0, frames.shape[:2]).mean(1).sqrt()


def colour_statistics(frames):
    """Mean and deviation of each colour, and mean saturation, over all clips."""
    highest, lowest = frames.amax(2), frames.amin(2)
    saturation = (highest - lowest).mean()
    flat = frames.transpose(1, 2).flatten(2)
    mean, deviation = flat.mean((0, 2)), flat.std(2).mean(0)
    return dict(
        mean_red=mean[0],
        mean_green=mean[1],
        mean_blue=mean[2],
        deviation_red=deviation[0],
        deviation_green=deviation[1],
        deviation_blue=deviation[2],
        saturation=saturation,
    )


def colour_drift(frames):
    """The distance between the mean colours of the first and the last frame, for each clip."""
    mean = frames.mean((-2, -1))
    return (mean[:, -1] - mean[:, 0]).abs().mean(1)


def hue(frames):
    """Hue from 0 to 1, and chroma, of images with colours along the third axis from the end."""
    red, green, blue = frames.unbind(-3)
    highest, lowest = frames.amax(-3), frames.amin(-3)
    chroma = highest - lowest
    safe = chroma.clamp(min=1e-4)
    angle = torch.where(
        highest == red,
        ((green - blue) / safe) % 6,
        torch.where(highest == green, (blue - red) / safe + 2, (red - green) / safe + 4),
    )
    return angle / 6, chroma


def sprite_areas(frames, colours, present):
    """Pixels of each sprite's hue in every frame, `[clips, frames, sprites]`. Sprites have hues of their own over muted
    backgrounds, and keep them in light and shade."""
    hues, chroma = hue(frames)
    own, _ = hue(colours[..., None, None])
    own = own[..., 0, 0]
    distance = (hues[..., None] - own[:, None, None, None]).abs()
    distance = torch.minimum(distance, 1 - distance)
    distance = distance.masked_fill(~present[:, None, None, None], 9.0)
    nearest = distance.argmin(-1, keepdim=True)
    near = (distance < 0.06) & (chroma[..., None] > 0.28)
    mine = near & (nearest == torch.arange(colours.shape[1], device=frames.device))
    return mine.float().sum((2, 3))


def sprites_kept(frames, still, colours, radius):
    """For each clip, whether every sprite of the still keeps its presence and size; and whether that could be judged.

    Sprites hide each other for a while, so: in seven frames of ten a sprite shows 30 % of its first area or more, and
    the area that it reaches in the best quarter of frames is within 0.67 and 1.5 of the first.
    """
    present = radius > 0
    first = sprite_areas(still[:, None], colours, present)[:, 0]
    # A sprite that is half hidden at the start, or shows little of its colour, cannot be followed.
    followed = present & (first > 0.35 * radius.square()) & (first > 40)
    ratio = sprite_areas(frames, colours, present) / first.clamp(min=1)[:, None]
    there = (ratio > 0.3).float().mean(1) >= 0.7
    seen = ratio.quantile(0.75, dim=1)
    whole = there & (seen > 0.67) & (seen < 1.5)
    return (whole | ~followed).all(1), followed.any(1)
