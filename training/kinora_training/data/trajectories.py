"""How sprites and cameras move. Every path is a function of time, so any frame can be painted on its own.

Time is counted in frames at full speed; a clip's speed stretches it. Nothing in a first frame shows how fast things
move, or where to.
"""

import math

import torch

from .layers import SIDE

KINDS = ("straight", "bounce", "orbit", "sway", "hover")


def reflected(place, low, high):
    """A straight path between two walls."""
    length = (high - low).clamp(min=1.0)
    along = (place - low) % (2 * length)
    return low + length - (along - length).abs()


def apart(draw, radius, active, rounds=12):
    """Places for sprites with little overlap: they repel each other, and walls push them back."""
    place = draw.uniform(0, 1, radius.shape[1], 2) * (SIDE - 2 * radius[..., None]) + radius[..., None]
    both = (active[:, :, None] & active[:, None, :]).float()
    both = both * (1 - torch.eye(radius.shape[1], device=radius.device))
    for _ in range(rounds):
        between = place[:, :, None] - place[:, None]
        distance = between.norm(dim=-1).clamp(min=1e-3)
        overlap = (1.05 * (radius[:, :, None] + radius[:, None]) - distance).clamp(min=0) * both
        place = place + (0.45 * overlap / distance)[..., None].mul(between).sum(2)
        place = torch.minimum(torch.maximum(place, radius[..., None]), SIDE - radius[..., None])
    return place


class SpritePaths:
    """The paths of all sprites of a batch of clips."""

    def __init__(self, draw, radius, active, kinds=None):
        count = radius.shape[1]
        self.radius = radius
        self.start = apart(draw, radius, active)
        self.kind = draw.choice([0, 0, 0, 1, 1, 2, 3, 4], count) if kinds is None else kinds
        heading = draw.uniform(0, 2 * math.pi, count)
        velocity = draw.uniform(2.5, 6.0, count)
        self.velocity = torch.stack([heading.cos(), heading.sin()], dim=-1) * velocity[..., None]
        self.period = draw.uniform(7, 13, count)
        self.height = draw.uniform(14, 48, count)
        self.phase = draw.uniform(0, 1, count)
        self.reach = draw.uniform(8, 26, count)
        self.squash = draw.uniform(0.6, 1.0, count)
        self.way = draw.sign(count)
        spins = draw.chance(0.4, count).float()
        self.spin = spins * draw.uniform(0.05, 0.25, count) * draw.sign(count)
        self.sway = (1 - spins) * draw.uniform(0.0, 0.35, count)
        self.first_angle = draw.uniform(-0.35, 0.35, count)
        self.pulse = draw.chance(0.2, count).float() * draw.uniform(0.05, 0.14, count)

    def place(self, time):
        """Where the sprites are, `[clips, frames, sprites, 2]`, at `[clips, frames]` times."""
        time = time[:, :, None]
        radius = self.radius[:, None]
        low, high = radius * 0.9, SIDE - radius * 0.9
        start = self.start[:, None]
        straight_x = reflected(start[..., 0] + self.velocity[:, None, :, 0] * time, low, high)
        straight_y = reflected(start[..., 1] + self.velocity[:, None, :, 1] * time, low, high)
        # Bouncing on a floor; the clip starts somewhere along the bounce.
        fall = 4 * (self.phase * (1 - self.phase))[:, None]
        height = torch.minimum(
            self.height[:, None], (start[..., 1] - low).clamp(min=0) / (1.001 - fall).clamp(min=0.15)
        )
        height = height.clamp(max=70)
        turn = (time / self.period[:, None] + self.phase[:, None]) % 1.0
        floor = torch.minimum(start[..., 1] + height * fall, high)
        bounce_y = (floor - height * 4 * turn * (1 - turn)).clamp(min=0)
        # Only the first frame determines where it starts.
        bounce_x = reflected(start[..., 0] + 0.6 * self.velocity[:, None, :, 0] * time, low, high)
        angle = 2 * math.pi * (self.phase[:, None] + self.way[:, None] * time / (1.6 * self.period[:, None]))
        first = 2 * math.pi * self.phase[:, None]
        reach = self.reach[:, None]
        orbit_x = start[..., 0] + reach * (angle.cos() - first.cos())
        orbit_y = start[..., 1] + reach * self.squash[:, None] * (angle.sin() - first.sin())
        wave = torch.sin(2 * math.pi * (time / self.period[:, None]))
        direction = self.velocity[:, None] / self.velocity[:, None].norm(dim=-1, keepdim=True)
        sway_x, sway_y = (
            start[..., 0] + reach * wave * direction[..., 0],
            start[..., 1] + reach * wave * direction[..., 1],
        )
        kind = self.kind[:, None]
        x, y = straight_x, straight_y
        for other, (ox, oy) in enumerate([(bounce_x, bounce_y), (orbit_x, orbit_y), (sway_x, sway_y)], start=1):
            x, y = torch.where(kind == other, ox, x), torch.where(kind == other, oy, y)
        hover_y = start[..., 1] + 0.25 * reach * wave
        x, y = torch.where(kind == 4, start[..., 0].expand_as(x), x), torch.where(kind == 4, hover_y, y)
        inside = [torch.minimum(torch.maximum(value, low), high) for value in (x, y)]
        return torch.stack(inside, dim=-1)

    def angle(self, time):
        time = time[:, :, None]
        swings = self.sway[:, None] * torch.sin(2 * math.pi * (time / self.period[:, None] + self.phase[:, None]))
        return self.first_angle[:, None] + self.spin[:, None] * time + swings

    def scale(self, time):
        wave = torch.sin(2 * math.pi * (time[:, :, None] / self.period[:, None] + self.phase[:, None]))
        return 1 + self.pulse[:, None] * wave


class CameraPath:
    """A camera that pans, zooms and turns over a canvas; `moves` says which clips' cameras do."""

    def __init__(self, draw, moves):
        heading = draw.uniform(0, 2 * math.pi)
        pans = draw.chance(0.8)
        speed = draw.uniform(0.8, 4.5) * pans.float()
        # A camera that does not pan zooms or turns.
        kind = torch.where(pans, draw.uniform(0, 1), draw.uniform(0.4, 1))
        moves = moves.float()
        self.pan = torch.stack([heading.cos(), heading.sin()], dim=-1) * (speed * moves)[:, None]
        self.zoom = draw.sign() * draw.uniform(0.008, 0.035) * moves * (kind > 0.4).float()
        self.turn = draw.uniform(-0.05, 0.05) * moves * (kind > 0.7).float()
        self.first_angle = draw.uniform(-0.4, 0.4)

    def shift(self, time, middle):
        """How far it has moved, in pixels, with the middle of the clip in the middle of the canvas."""
        return self.pan[:, None] * (time - middle[:, None])[..., None]

    def magnification(self, time, middle):
        return (self.zoom[:, None] * (time - middle[:, None])).exp()

    def angle(self, time, middle):
        return self.first_angle[:, None] + self.turn[:, None] * (time - middle[:, None])
