"""Smooth noise on a canvas, from which textures and landscapes are made."""

import torch
import torch.nn.functional as F


def cells(draw, rows, columns, height, width):
    """Noise from −1 to 1 with about this many bumps along each axis, `[clips, height, width]`."""
    lattice = draw.uniform(-1, 1, 1, rows + 1, columns + 1)
    return F.interpolate(lattice, (height, width), mode="bicubic", align_corners=True)[:, 0]


def layered(draw, bumps, octaves, height, width, gain=0.5):
    """Noise of several sizes, each twice as fine as the one before: from about −1 to 1."""
    total, weight, weights = 0.0, 1.0, 0.0
    for octave in range(octaves):
        rows = max(2, round(bumps * 2**octave))
        columns = max(2, round(rows * width / height))
        total = total + weight * cells(draw, rows, columns, height, width)
        weights += weight
        weight *= gain
    return total / weights**0.5


def line(draw, bumps, octaves, width, gain=0.5):
    """The same along one axis, `[clips, width]`."""
    total, weight = 0.0, 1.0
    for octave in range(octaves):
        lattice = draw.uniform(-1, 1, 1, round(bumps * 2**octave) + 1, 1)
        total = total + weight * F.interpolate(lattice, (width, 1), mode="bicubic", align_corners=True)[:, 0, :, 0]
        weight *= gain
    return total


def places(height, width, device):
    """x and y of a canvas in texels, `[1, height, width]` each."""
    x = torch.arange(width, device=device, dtype=torch.float32) + 0.5
    y = torch.arange(height, device=device, dtype=torch.float32) + 0.5
    return x.reshape(1, 1, -1).expand(1, height, width), y.reshape(1, -1, 1).expand(1, height, width)


def step(value, width):
    """0 below, 1 above, and a smooth edge of about the given width."""
    at = (value / width + 0.5).clamp(0, 1)
    return at * at * (3 - 2 * at)


def each(values):
    """One number per clip, shaped to multiply images."""
    return values.reshape(-1, 1, 1)
