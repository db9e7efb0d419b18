"""Sprites: shapes, letters and small creatures, each with its own colour, a pattern, and a surface that is lit."""

import math

import torch
import torch.nn.functional as F

from . import shapes
from .colours import rgb
from .layers import Placement, paint
from .noise import step
from .shapes import EXTENT, INDEX, TEXELS

MOST = 5
CREATURES = ("walker", "flyer", "fish", "sprout")
BODIES = ("body", "bean", "circle", "square", "tablet")

# By creature, two limbs: shape, where on the body, half length, half width, angle from hanging down, swing, and its
# phase.
LIMBS = {
    "walker": [("leg", (-0.36, 0.66), 0.42, 0.5, 0.0, 0.7, 0.0), ("leg", (0.36, 0.66), 0.42, 0.5, 0.0, 0.7, 0.5)],
    "flyer": [
        ("wing", (-0.5, -0.2), 0.62, 0.55, 1.75, 0.75, 0.0),
        ("wing", (0.5, -0.2), 0.62, 0.55, -1.75, -0.75, 0.0),
    ],
    "fish": [("tail", (-0.78, 0.0), 0.42, 0.42, 1.57, 0.45, 0.0), ("wing", (0.05, 0.42), 0.3, 0.3, 0.6, 0.4, 0.3)],
    "sprout": [("leg", (-0.3, -0.7), 0.34, 0.34, 2.75, 0.3, 0.0), ("leg", (0.3, -0.7), 0.34, 0.34, -2.75, 0.3, 0.25)],
}


def surface(distance, direction, bevel):
    """How a surface leans, from flat inside to steep at the outline: `[n, 2, texels, texels]`."""
    depth = (-distance / bevel).clamp(0, 1)
    return direction * ((1 - depth) ** 1.5)[:, None]


def pattern(draw, x, y, radius):
    """A two-tone pattern from 0 to 1 for each sprite: stripes, dots, checks, rings, patches or none."""
    angle = draw.uniform(0, 2 * math.pi, MOST).reshape(-1, 1, 1)
    u, v = x * angle.cos() + y * angle.sin(), y * angle.cos() - x * angle.sin()
    # Waves of 8 to 16 pixels, whatever the sprite's size.
    wave = 2 * math.pi * radius / draw.uniform(8, 16, MOST).reshape(-1, 1, 1)
    a, b = torch.sin(wave * u), torch.sin(wave * v)
    rings = torch.sin(wave * torch.hypot(x, y))
    lattice = draw.uniform(-1, 1, MOST, 5, 5).reshape(-1, 1, 5, 5)
    patches = F.interpolate(lattice, (TEXELS, TEXELS), mode="bicubic", align_corners=True)[:, 0]
    kinds = [torch.full_like(a, -1.0), a, a + b - 0.7, 2 * a * b, rings, 2.5 * patches, 3 * u]
    kind = draw.choice([0, 0, 1, 2, 3, 4, 5, 6], MOST).reshape(-1, 1, 1)
    chosen = kinds[0]
    for other in range(1, len(kinds)):
        chosen = torch.where(kind == other, kinds[other], chosen)
    return 0.5 + 0.5 * torch.tanh(2.0 * chosen)


def textures(distance, direction, radius, colour, bevel):
    """What `layers.paint` reads: the texture and the shadow. Colours are `[n, 3, texels, texels]`."""
    coverage = (0.5 - distance * radius / 1.3).clamp(0, 1)
    outline = 1 - 0.45 * step(distance * radius + 2.2, 2.0)
    texture = [colour * (outline * coverage)[:, None], coverage[:, None]]
    texture += [surface(distance, direction, bevel) * coverage[:, None]]
    shadow = step(2.0 - distance * radius, 7.0)
    return torch.cat(texture, dim=1), shadow[:, None]


class Sprites:
    """The sprites of a batch of clips: how they look, and how to paint them at a given time."""

    def __init__(self, draw, atlas, counts, radius, creatures=0.35, letters=0.25, vivid=1.0):
        clips, device = draw.count, draw.device
        self.radius = radius
        self.active = torch.arange(MOST, device=device)[None] < counts[:, None]
        kind = draw.uniform(0, 1, MOST)
        self.is_creature = kind < creatures
        is_letter = (kind >= creatures) & (kind < creatures + letters)
        self.creature = draw.integer(len(CREATURES), MOST)
        plain, written = draw.choice(shapes.PLAIN, MOST), draw.choice(shapes.WRITTEN, MOST)
        bodies = draw.choice([INDEX[name] for name in BODIES], MOST)
        bodies = torch.where(self.creature == CREATURES.index("fish"), INDEX["fish"], bodies)
        shape = torch.where(is_letter, written, plain)
        shape = torch.where(self.is_creature, bodies, shape)

        # Hues far from each other, so that a sprite is recognised by its colour.
        hue = draw.uniform(0, 1, 1) + torch.arange(MOST, device=device) / counts.clamp(min=3)[:, None]
        self.hue = (hue + draw.uniform(-0.03, 0.03, MOST)) % 1.0
        saturation, value = draw.uniform(0.68, 0.95, MOST) * vivid, draw.uniform(0.72, 1.0, MOST)
        self.colour = rgb(self.hue, saturation, value)
        bright = draw.chance(0.5, MOST).float()
        second = rgb(self.hue, saturation * (1 - 0.45 * bright), (value * (0.62 + 0.6 * bright)).clamp(max=1.0))

        x, y = shapes.texel_places(device)
        flat = (clips * MOST, 1, 1)
        sizes = self.radius.reshape(flat)
        field = atlas[shape.flatten()]
        tone = pattern(draw, x, y, sizes)[:, None]
        colour = torch.lerp(
            self.colour.reshape(-1, 3, 1, 1).expand(-1, -1, TEXELS, TEXELS), second.reshape(-1, 3, 1, 1), tone
        )
        bevel = draw.uniform(0.15, 0.75, MOST).reshape(flat)
        self.look = draw.uniform(0, 2 * math.pi, MOST)
        colour = self.faces(draw, colour, x, y, sizes)
        texture, shadow = textures(field[:, 0], field[:, 1:], sizes, colour, bevel)
        self.texture = texture.reshape(clips, MOST, 6, TEXELS, TEXELS)
        self.shadow = shadow.reshape(clips, MOST, 1, TEXELS, TEXELS)
        self.make_limbs(draw, atlas, second)

    def faces(self, draw, colour, x, y, radius):
        """Eyes that look somewhere, and a mouth, on those that are creatures."""
        flat = (-1, 1, 1)
        is_creature = self.is_creature.reshape(flat)
        fish = (self.creature == CREATURES.index("fish")).reshape(flat)
        size = draw.uniform(0.19, 0.27, MOST).reshape(flat)
        size = torch.maximum(size, 2.9 / radius)
        spread = draw.uniform(0.26, 0.36, MOST).reshape(flat)
        height = draw.uniform(-0.3, -0.12, MOST).reshape(flat)
        look_x, look_y = 0.35 * size * self.look.cos().reshape(flat), 0.35 * size * self.look.sin().reshape(flat)
        edge = 1.4 / radius
        for side in (-1.0, 1.0):
            # A fish is seen from the side, and has one eye.
            px = torch.where(fish, 0.5 * torch.ones_like(spread), side * spread)
            py = torch.where(fish, -0.14 * torch.ones_like(height), height)
            white = step(size - torch.hypot(x - px, y - py), edge)
            pupil = step(0.56 * size - torch.hypot(x - px - look_x, y - py - look_y), edge)
            colour = torch.lerp(colour, colour.new_tensor(0.97).expand_as(colour), (white * is_creature)[:, None])
            colour = torch.lerp(colour, colour.new_tensor(0.06).expand_as(colour), (pupil * is_creature)[:, None])
        smile = (torch.hypot(x, y - 0.08) - 0.34).abs() - torch.maximum(0.05 * torch.ones_like(radius), 0.7 / radius)
        smile = step(-smile, edge) * step(y - 0.22, edge)
        smile = smile * (is_creature & ~fish)
        return torch.lerp(colour, colour.new_tensor(0.1).expand_as(colour), (0.85 * smile)[:, None])

    def make_limbs(self, draw, atlas, colour):
        """Two limbs for every sprite; only creatures show them."""
        clips, device = colour.shape[0], colour.device
        table = [[LIMBS[name][limb] for name in CREATURES] for limb in range(2)]
        self.limbs = []
        for rows in table:
            shape = torch.tensor([INDEX[row[0]] for row in rows], device=device)[self.creature]
            numbers = torch.tensor([[*row[1], *row[2:]] for row in rows], device=device)[self.creature]
            length, width = numbers[..., 2], numbers[..., 3]
            field = atlas[shape.flatten()]
            size = (self.radius * length).reshape(-1, 1, 1)
            plain = (0.9 * colour).reshape(-1, 3, 1, 1).expand(-1, -1, TEXELS, TEXELS)
            texture, shadow = textures(field[:, 0], field[:, 1:], size, plain, 0.4)
            self.limbs.append(
                dict(
                    texture=texture.reshape(clips, MOST, 6, TEXELS, TEXELS),
                    shadow=shadow.reshape(clips, MOST, 1, TEXELS, TEXELS),
                    attachment=numbers[..., :2],
                    length=length,
                    width=width / length.clamp(min=0.3),
                    angle=numbers[..., 4],
                    swing=numbers[..., 5],
                    phase=numbers[..., 6],
                )
            )
        self.beat = draw.uniform(4.5, 8.0, MOST)
        self.beat_phase = draw.uniform(0, 1, MOST)

    def paint(self, image, paths, time, light, move=None):
        """Paints all sprites, the last on top. `move` changes places by what a camera does."""
        place, angle, scale = paths.place(time), paths.angle(time), paths.scale(time)
        before, after = paths.place(time - 1.5), paths.place(time + 1.5)
        # Creatures stay upright; fish look where they swim, and turn through their narrow side.
        ahead = torch.tanh(0.8 * (after - before)[..., 0])
        ahead = torch.where(ahead.abs() < 0.12, torch.where(ahead < 0, -0.12, 0.12), ahead)
        lean = 0.25 * angle.sin()
        angle = torch.where(self.is_creature[:, None], lean, angle)
        fish = self.is_creature & (self.creature == CREATURES.index("fish"))
        mirror = torch.where(fish[:, None], ahead, torch.ones_like(ahead))
        magnification = torch.ones_like(angle[..., :1])
        if move is not None:
            place, angle, magnification = move(place, angle)
        radius = self.radius[:, None] * scale * magnification
        for sprite in range(MOST):
            visible = self.active[:, sprite]
            centre, turn = place[:, :, sprite], angle[:, :, sprite]
            size, flip = radius[:, :, sprite], mirror[:, :, sprite]
            # A hopping sprite is flatter while it is fast and taller while it is slow.
            beat = torch.sin(2 * math.pi * (time / self.beat[:, sprite, None] + self.beat_phase[:, sprite, None]))
            soft = torch.where(self.is_creature[:, sprite, None], 0.06 * beat, torch.zeros_like(beat))
            for limb in self.limbs:
                self.paint_limb(image, limb, sprite, centre, turn, size, flip, time, light, visible)
            sides = torch.stack([size * flip * (1 - soft), size * (1 + soft)], dim=-1) * EXTENT
            image = paint(
                image, visible, self.texture[:, sprite], self.shadow[:, sprite], Placement(centre, turn, sides), light
            )
        return image

    def paint_limb(self, image, limb, sprite, centre, turn, size, flip, time, light, visible):
        phase = time / self.beat[:, sprite, None] + self.beat_phase[:, sprite, None] + limb["phase"][:, sprite, None]
        swing = limb["swing"][:, sprite, None] * torch.sin(2 * math.pi * phase)
        side = flip.sign()
        own = turn + side * (limb["angle"][:, sprite, None] + swing)
        x = limb["attachment"][:, sprite, 0, None] * flip * size
        y = limb["attachment"][:, sprite, 1, None] * size
        length = limb["length"][:, sprite, None] * size
        joint_x = centre[..., 0] + x * turn.cos() - y * turn.sin()
        joint_y = centre[..., 1] + x * turn.sin() + y * turn.cos()
        middle = torch.stack([joint_x - 0.85 * length * own.sin(), joint_y + 0.85 * length * own.cos()], dim=-1)
        sides = torch.stack([length * limb["width"][:, sprite, None] * side, length], dim=-1) * EXTENT
        visible = visible & self.is_creature[:, sprite]
        return paint(
            image, visible, limb["texture"][:, sprite], limb["shadow"][:, sprite], Placement(middle, own, sides), light
        )
