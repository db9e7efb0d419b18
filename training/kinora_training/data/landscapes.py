"""Landscapes with several depths that pass at different speeds: sky, clouds, mountains, woods, towns, water."""

import torch

from .colours import ramp, rgb
from .noise import each, layered, line, places, step

# Texels of a layer; a frame is 128 pixels of 1.3 texels, which leaves room on both sides.
HEIGHT, WIDTH, TEXELS_PER_PIXEL = 180, 440, 1.3

# Zenith, middle and horizon of the sky, the far and the near ground.
TIMES_OF_DAY = torch.tensor(
    [
        [[0.20, 0.42, 0.80], [0.46, 0.68, 0.92], [0.82, 0.90, 0.96], [0.45, 0.55, 0.62], [0.20, 0.42, 0.16]],
        [[0.24, 0.20, 0.46], [0.80, 0.42, 0.42], [0.99, 0.78, 0.45], [0.48, 0.30, 0.42], [0.16, 0.13, 0.20]],
        [[0.02, 0.03, 0.12], [0.06, 0.10, 0.26], [0.18, 0.24, 0.42], [0.10, 0.14, 0.26], [0.03, 0.07, 0.09]],
        [[0.55, 0.72, 0.80], [0.82, 0.84, 0.80], [0.98, 0.90, 0.76], [0.62, 0.62, 0.60], [0.40, 0.36, 0.20]],
        [[0.36, 0.55, 0.62], [0.62, 0.75, 0.74], [0.90, 0.92, 0.86], [0.66, 0.74, 0.78], [0.78, 0.82, 0.86]],
        [[0.10, 0.30, 0.36], [0.30, 0.62, 0.58], [0.86, 0.92, 0.62], [0.28, 0.50, 0.42], [0.10, 0.28, 0.14]],
        [[0.42, 0.24, 0.50], [0.92, 0.56, 0.60], [1.00, 0.86, 0.72], [0.56, 0.42, 0.60], [0.34, 0.22, 0.36]],
    ]
)
NIGHT = 2


class Palette:
    """The colours of a clip's time of day."""

    def __init__(self, draw):
        self.kind = draw.integer(len(TIMES_OF_DAY))
        stops = TIMES_OF_DAY.to(draw.device)[self.kind]
        stops = stops * (1 + 0.12 * draw.uniform(-1, 1, 5, 3)) + 0.04 * draw.uniform(-1, 1, 1, 3)
        self.sky, self.far, self.near = stops[:, :3].clamp(0, 1), stops[:, 3].clamp(0, 1), stops[:, 4].clamp(0, 1)
        self.horizon = self.sky[:, 2]
        self.night = self.kind == NIGHT

    def depth(self, nearness):
        """The ground's colour: distant ground is as pale as the horizon."""
        near = torch.lerp(self.far, self.near, nearness)
        return torch.lerp(self.horizon, near, 0.45 + 0.55 * nearness)[:, :, None, None]


def sky(draw, colours):
    """Opaque: a gradient with the sun or the moon, and stars at night."""
    x, y = places(HEIGHT, WIDTH, draw.device)
    level = y / HEIGHT * 1.35 + 0.06 * layered(draw, 2, 2, HEIGHT, WIDTH)
    image = ramp(level, colours.sky)
    night = each(colours.night.float())
    dots = draw.uniform(0, 1, 60, 3)
    rows = colours.night.nonzero()[:, 0]
    if len(rows):
        image[rows] += stars(dots[rows])[:, None]
    px, py = each(draw.uniform(0.3, 0.7)) * WIDTH, each(draw.uniform(0.1, 0.45)) * HEIGHT
    radius = each(draw.uniform(7, 17))
    distance = torch.hypot(x - px, y - py)
    disc = step(radius - distance, 2.5)[:, None]
    glow = (0.55 * torch.exp(-distance / (radius * 2.2)))[:, None] * (1 - 0.6 * night[:, None])
    warm = rgb(draw.uniform(0.06, 0.15), draw.uniform(0.1, 0.5), torch.ones(draw.count, device=draw.device))
    warm = warm[:, :, None, None]
    image = image + glow * warm
    return torch.lerp(image.clamp(0, 1), warm.expand_as(image), disc)


def stars(dots):
    """Points of light, `[clips, height, width]`, by their places and strengths from 0 to 1."""
    x, y = places(HEIGHT, WIDTH, dots.device)
    total = 0.0
    for across, down, strength in (dot.unbind(1) for dot in dots.unbind(1)):
        distance = torch.hypot(x - each(across) * WIDTH, y - each(down) * 0.6 * HEIGHT)
        total = total + (0.4 + 0.6 * each(strength)) * step(2.4 - distance, 2.4)
    return total


def clouds(draw, colours):
    """White to grey, with a lit upper edge: colour and coverage, `[clips, 4, height, width]`."""
    _, y = places(HEIGHT, WIDTH, draw.device)
    level = layered(draw, 4, 4, HEIGHT, WIDTH, gain=0.55)
    fades = 1 - step(y / HEIGHT - 0.45, 0.4)
    cover = step(level - each(draw.uniform(0.0, 0.5)), 0.5) * fades * each(draw.uniform(0.4, 0.95))
    white = torch.lerp(colours.horizon, torch.ones_like(colours.horizon), 0.55)[:, :, None, None]
    white = white * (1 - 0.6 * each(colours.night.float())[:, None])
    light = 0.86 + 0.2 * (level - torch.roll(level, -5, dims=1)).clamp(-0.6, 0.6)
    return torch.cat([(white * light[:, None]).clamp(0, 1), cover[:, None]], dim=1)


def ridge(draw, colours, nearness, kind):
    """A line of mountains, hills, woods or houses: colour and coverage. `kind` is 0 to 3 for each clip."""
    x, y = places(HEIGHT, WIDTH, draw.device)
    column = x[:, 0]
    rough = line(draw, 5, 5, WIDTH, gain=0.52)
    smooth = line(draw, 3, 2, WIDTH, gain=0.4)
    sharp = 0.35 - line(draw, 4, 4, WIDTH, gain=0.5).abs()
    # Firs of one height side by side, each a triangle; and houses, each a block.
    pitch = draw.uniform(9, 15, 1)
    place = column / pitch
    tree = 1 - ((place - place.floor()) * 2 - 1).abs()
    heights = draw.uniform(0.4, 1.0, 80)
    tall = heights.gather(1, place.floor().long().clamp(0, 79).expand(draw.count, -1))
    block_width = draw.uniform(15, 30, 1)
    block = (column / block_width).floor().long().clamp(0, 79).expand(draw.count, -1)
    houses = draw.uniform(0.1, 1.0, 80).gather(1, block)
    base = draw.uniform(0.42, 0.56, 1) - 0.34 * nearness + 0.04
    of_kind = [
        base + 0.17 * rough + 0.12 * sharp,
        base + 0.07 * smooth,
        base - 0.03 + 0.05 * smooth + 0.11 * tree * tall,
        base - 0.05 + 0.26 * houses * (1 - 0.3 * nearness),
    ]
    top = of_kind[0]
    for other in (1, 2, 3):
        top = torch.where(kind[:, None] == other, of_kind[other], top)
    line_y = (1 - top) * HEIGHT
    below = y - line_y[:, None, :]
    cover = step(below, 1.8)
    shade = 1 + 0.16 * layered(draw, 8, 3, HEIGHT, WIDTH, gain=0.6)
    # Slopes that face the light are brighter; low ground is paler, from haze.
    slope = torch.gradient(line_y, dim=1)[0][:, None, :].clamp(-1.5, 1.5)
    rocky = each((kind == 0).float())
    shade = shade + rocky * 0.22 * slope * torch.exp(-below.clamp(min=0) / 40)
    image = colours.depth(nearness) * shade[:, None]
    haze = ((below / HEIGHT).clamp(0, 1) * (1 - nearness) * 0.9)[:, None]
    image = torch.lerp(image, colours.horizon[:, :, None, None].expand_as(image), haze.clamp(0, 0.6))
    snow = rocky * step(each(draw.uniform(0.0, 22.0)) - below + 5 * (shade - 1) * 10, 5.0)
    snow = snow * step(top - base - 0.02, 0.08)[:, None, :]
    image = torch.lerp(image, image.new_tensor(0.95).expand_as(image), 0.85 * snow[:, None])
    image = torch.where(
        each(kind == 3)[:, None], windows(draw, image, below, column, block, block_width, colours), image
    )
    return torch.cat([image.clamp(0, 1), cover[:, None]], dim=1)


def windows(draw, image, below, column, block, block_width, colours):
    """Rows of windows in every house, lit at night and here and there by day."""
    inside = (column / block_width) - (column / block_width).floor()
    across = inside * 3
    rows = below / 12.0
    fraction_x, fraction_y = (across - across.floor())[:, None, :], rows - rows.floor()
    pane = step(0.27 - (fraction_x - 0.5).abs(), 0.22) * step(0.3 - (fraction_y - 0.5).abs(), 0.24)
    pane = pane * (below > 5).float()
    number = block[:, None, :] * 7.31 + across.floor()[:, None, :] * 3.77 + rows.floor() * 1.93
    noise = torch.sin(number * 12.9898 + each(draw.uniform(0, 6))) * 43758.547
    noise = noise - noise.floor()
    night = each(colours.night.float())
    lit = (noise < 0.25 + 0.4 * night).float() * pane
    dark = pane - lit
    warm = image.new_tensor([1.0, 0.82, 0.45])[None, :, None, None]
    image = image * (1 - 0.35 * dark[:, None])
    walls = 1 + 0.25 * torch.sin(block * 5.1)[:, None, None, :]
    return torch.lerp(image * walls, warm.expand_as(image), (0.85 * lit)[:, None])


def water(draw, colours):
    """A lake in front that mirrors the sky, with bright ripples."""
    _, y = places(HEIGHT, WIDTH, draw.device)
    shore = each(draw.uniform(0.66, 0.8)) * HEIGHT
    below = (y - shore) / (HEIGHT - shore)
    ripple = layered(draw, 16, 2, HEIGHT, WIDTH // 6, gain=0.8)
    ripple = torch.nn.functional.interpolate(ripple[:, None], (HEIGHT, WIDTH), mode="bicubic")[:, 0]
    image = ramp(1 - 0.8 * below.clamp(0, 1) + 0.12 * ripple, colours.sky)
    image = image * (0.72 + 0.16 * ripple)[:, None]
    return torch.cat([image.clamp(0, 1), step(y - shore, 2.0)[:, None]], dim=1)
