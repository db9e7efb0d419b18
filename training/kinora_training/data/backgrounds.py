"""Detailed still canvases for a camera to move over: clouds, marble, stones, bricks, fabric, maps, lights, leaves.

A canvas is larger than a frame. Its finest details are about two pixels of a frame wide: finer ones would flicker as
they move, and no autoencoder of this size could keep them.
"""

import math

import torch

from . import shapes
from .colours import palette, ramp, rgb
from .noise import cells, each, layered, places, step

# Texels per side, and how many of them a pixel of a frame covers at rest.
SIDE, TEXELS_PER_PIXEL = 320, 1.3
# Ranges of saturation and of value.
VIVID = ((0.2, 0.8), (0.12, 0.95))


def grain(draw, image, amount=0.05):
    """Uneven brightness, as every real surface has."""
    texture = layered(draw, 10, 3, SIDE, SIDE, gain=0.7)
    return image * (1 + amount * texture)[:, None]


def turned(draw):
    """Axes of a canvas at any angle, in texels from the middle."""
    x, y = places(SIDE, SIDE, draw.device)
    angle = each(draw.uniform(0, 2 * math.pi))
    x, y = x - SIDE / 2, y - SIDE / 2
    return x * angle.cos() + y * angle.sin(), y * angle.cos() - x * angle.sin()


def clouds(draw):
    level = layered(draw, 4, 5, SIDE, SIDE, gain=0.6)
    return ramp(0.5 + 0.6 * level, palette(draw, 4, *VIVID))


def marble(draw):
    along, _ = turned(draw)
    bend = layered(draw, 3, 4, SIDE, SIDE)
    waves = torch.sin(along * each(draw.uniform(0.04, 0.12)) + bend * each(draw.uniform(2.0, 5.0)))
    return ramp(0.5 + 0.5 * waves, palette(draw, 4, *VIVID))


def stones(draw):
    """The cells of scattered points, with a joint between them."""
    bumps = 9
    x, y = places(SIDE, SIDE, draw.device)
    size = SIDE / bumps
    x = (x + 5 * cells(draw, 12, 12, SIDE, SIDE)) / size
    y = (y + 5 * cells(draw, 12, 12, SIDE, SIDE)) / size
    # Also points beyond the edges, so that the cells there are complete.
    side = bumps + 4
    jitter = draw.uniform(0.12, 0.88, 2, side * side)
    shade = draw.uniform(0, 1, side * side)
    column, row = x.floor(), y.floor()
    nearest = torch.full_like(x, 9.0)
    second = torch.full_like(x, 9.0)
    tone = torch.zeros_like(x)
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            place = ((row + down + 2).clamp(0, side - 1) * side + (column + right + 2).clamp(0, side - 1)).long()
            flat = place.flatten(1)
            px = jitter[:, 0].gather(1, flat).reshape(x.shape) + column + right
            py = jitter[:, 1].gather(1, flat).reshape(x.shape) + row + down
            distance = torch.hypot(px - x, py - y)
            closer = distance < nearest
            second = torch.where(closer, nearest, torch.minimum(second, distance))
            nearest = torch.where(closer, distance, nearest)
            tone = torch.where(closer, shade.gather(1, flat).reshape(x.shape), tone)
    stops = palette(draw, 4, *VIVID)
    joint = step(second - nearest - 0.08, 0.12)
    rounded = 1.0 - 0.35 * nearest
    image = ramp(tone, stops) * rounded[:, None]
    return grain(draw, image * (0.45 + 0.55 * joint)[:, None], 0.12)


def bricks(draw):
    along, across = turned(draw)
    width, height = each(draw.uniform(34, 64)), each(draw.uniform(18, 30))
    row = (across / height).floor()
    shift = along / width + 0.5 * (row % 2)
    column = shift.floor()
    inside = torch.minimum(
        torch.minimum(shift - column, column + 1 - shift) * width,
        torch.minimum(across / height - row, row + 1 - across / height) * height,
    )
    tone = torch.sin(row * 12.9898 + column * 78.233 + each(draw.uniform(0, 9))) * 43758.547
    tone = tone - tone.floor()
    stops = palette(draw, 3, *VIVID)
    image = ramp(0.25 + 0.75 * tone, stops)
    joint = step(inside - 2.2, 2.5)
    bevel = 0.85 + 0.15 * step(inside - 5.0, 6.0)
    image = image * bevel[:, None]
    mortar = stops.mean(1)[:, :, None, None] * 0.55 + 0.1
    return grain(draw, image * joint[:, None] + mortar * (1 - joint[:, None]), 0.13)


def fabric(draw):
    """Stripes, checks or dots, printed on something a little uneven."""
    along, across = turned(draw)
    bend = each(draw.uniform(0, 7)) * cells(draw, 4, 4, SIDE, SIDE)
    along, across = along + bend, across + bend
    length = each(draw.uniform(18, 46))
    a, b = torch.sin(2 * math.pi * along / length), torch.sin(2 * math.pi * across / length)
    kind = each(draw.integer(5))
    sharp = length / 7
    stripes = torch.tanh(a * sharp)
    checks = torch.tanh(a * b * sharp * 1.5)
    dots = torch.tanh((a + b - 0.9) * sharp)
    plaid = 0.6 * torch.tanh(a * sharp) + 0.6 * torch.tanh(b * sharp)
    waves = torch.tanh(torch.sin(2 * math.pi * (across + 0.25 * length * a) / length) * sharp)
    pattern = stripes
    for other, image in ((1, checks), (2, dots), (3, plaid), (4, waves)):
        pattern = torch.where(kind == other, image, pattern)
    return grain(draw, ramp(0.5 + 0.42 * pattern, palette(draw, 3, *VIVID)), 0.1)


def terrain(draw):
    """A country from above: water, sand, grass, woods, rock and snow, lit from the side."""
    height = layered(draw, 3, 5, SIDE, SIDE, gain=0.52) + each(draw.uniform(-0.25, 0.25))
    stops = torch.tensor(
        [
            [0.05, 0.18, 0.38],
            [0.10, 0.36, 0.55],
            [0.20, 0.55, 0.66],
            [0.80, 0.72, 0.50],
            [0.36, 0.56, 0.24],
            [0.18, 0.40, 0.18],
            [0.42, 0.38, 0.32],
            [0.60, 0.58, 0.56],
            [0.94, 0.95, 0.97],
        ],
        device=draw.device,
    )
    stops = stops.expand(draw.count, -1, -1) * (1 + 0.25 * (draw.uniform(-1, 1, 1, 3)))
    image = ramp(0.5 + 0.5 * height, stops.clamp(0, 1))
    down, right = torch.gradient(height, dim=(1, 2))
    land = step(height + 0.23, 0.05)
    light = 1 + land * (9.0 * (right * each(draw.sign()) - down)).clamp(-0.4, 0.45)
    return image * light[:, None]


def lights(draw):
    """Lamps far out of focus on a dark evening."""
    x, y = places(SIDE, SIDE, draw.device)
    dark = palette(draw, 3, (0.3, 0.7), (0.04, 0.3))
    image = ramp(0.5 + 0.5 * layered(draw, 2, 2, SIDE, SIDE), dark)
    for _ in range(26):
        radius = each(draw.uniform(9, 30))
        px, py = each(draw.uniform(0, SIDE)), each(draw.uniform(0, SIDE))
        distance = torch.hypot(x - px, y - py)
        disc = step(radius - distance, 5.0) * (0.7 + 0.5 * step(distance - 0.75 * radius, 0.5 * radius))
        colour = rgb(draw.uniform(-0.08, 0.2) % 1.0, draw.uniform(0.2, 0.8), draw.uniform(0.2, 0.6))
        image = 1 - (1 - image) * (1 - disc[:, None] * colour[:, :, None, None]).clamp(0, 1)
    return image


def leaves(draw, atlas, pieces=34):
    """Overlapping pieces of every size: the statistics of photographs (Lee, Mumford and Huang 2001)."""
    x, y = places(SIDE, SIDE, draw.device)
    stops = palette(draw, 6, (0.15, 0.75), (0.12, 0.95))
    # Half of the piles have colours that do not match.
    mixed = rgb(draw.uniform(0, 1, 6), draw.uniform(0.1, 0.8, 6), draw.uniform(0.15, 0.95, 6))
    stops = torch.where(draw.chance(0.5, 1, 1), mixed, stops)
    image = ramp(0.5 + 0.4 * layered(draw, 3, 3, SIDE, SIDE), stops[:, 1:4])
    clip = torch.arange(draw.count, device=draw.device)
    outlines = torch.tensor(shapes.PLAIN, device=draw.device)
    texture = layered(draw, 5, 4, SIDE, SIDE, gain=0.6)
    for piece in range(pieces):
        # The large ones lie below.
        radius = each(draw.uniform(0.7, 1.3)) * (110 - 88 * (piece / pieces) ** 0.5)
        angle = each(draw.uniform(0, 2 * math.pi))
        stretch = each(draw.uniform(0.55, 1.0))
        dx, dy = x - each(draw.uniform(0, SIDE)), y - each(draw.uniform(0, SIDE))
        u = (dx * angle.cos() + dy * angle.sin()) / radius
        v = (dy * angle.cos() - dx * angle.sin()) / (radius * stretch)
        grid = torch.stack([u, v], dim=-1) / shapes.EXTENT
        outline = atlas[outlines[draw.integer(len(shapes.PLAIN))], :1]
        distance = torch.nn.functional.grid_sample(outline, grid, padding_mode="border", align_corners=False)[:, 0]
        # Beyond the texture its border repeats, which is outside every shape.
        distance = distance * radius * stretch
        cover = step(-distance, 2.2)
        shadow = step(6.0 - distance, 14.0) * (1 - cover)
        image = image * (1 - 0.35 * shadow[:, None])
        colour = stops[clip, draw.integer(6)]
        waves = 0.14 * torch.sin(each(draw.uniform(0.1, 0.45)) * (u * radius)) * each(draw.chance(0.4).float())
        bump = 1 + waves + 0.22 * texture * each(draw.sign()) + 0.25 * v * each(draw.uniform(-1, 1))
        image = torch.lerp(image, (colour[:, :, None, None] * bump[:, None]).clamp(0, 1), cover[:, None])
    return image


KINDS = ("clouds", "marble", "stones", "bricks", "fabric", "terrain", "lights", "leaves")


def canvas(kind, draw, atlas):
    """A canvas of a kind for every clip, `[clips, 3, SIDE, SIDE]` from 0 to 1."""
    image = leaves(draw, atlas) if kind == "leaves" else globals()[kind](draw)
    return image.clamp(0, 1)
