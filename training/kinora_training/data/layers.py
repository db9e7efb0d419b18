"""Painting a clip: textures placed by position, angle and size, lit from one side, casting soft shadows.

Images are `[clips, colours, frames, height, width]`; positions are pixels from the upper left corner.
"""

import torch
import torch.nn.functional as F

from .noise import each

SIDE = 128


def pixel_places(device, oversampling=1):
    """x and y of every pixel's centre."""
    axis = (torch.arange(SIDE * oversampling, device=device) + 0.5) / oversampling
    return axis[None, :], axis[:, None]


def sample(texture, x, y, padding="zeros"):
    """A texture at places from −1 to 1, `[clips, frames, height, width]` each."""
    clips, frames, height, width = x.shape
    grid = torch.stack([x, y], dim=-1).reshape(clips, frames * height, width, 2)
    sampled = F.grid_sample(texture, grid, padding_mode=padding, align_corners=False)
    return sampled.reshape(clips, texture.shape[1], frames, height, width)


def spread(values):
    """A number for every frame of every clip, shaped to multiply images."""
    return values[:, :, None, None]


def look(canvas, centre, angle, texels_per_pixel):
    """What a camera over a canvas sees around `centre`, in texels. Four samples per pixel prevent flicker."""
    height, width = canvas.shape[2:]
    px, py = pixel_places(canvas.device, 2)
    px, py = (px - SIDE / 2), (py - SIDE / 2)
    cosine, sine = spread(angle.cos() * texels_per_pixel), spread(angle.sin() * texels_per_pixel)
    x = spread(centre[..., 0]) + px * cosine - py * sine
    y = spread(centre[..., 1]) + px * sine + py * cosine
    seen = sample(canvas, x * (2 / width) - 1, y * (2 / height) - 1, "reflection")
    return F.avg_pool3d(seen, (1, 2, 2))


def cover(image, layer):
    """Puts a layer of colour and coverage over an image."""
    return torch.lerp(image, layer[:, :3], layer[:, 3:4])


class Light:
    """Where light comes from, for a batch of clips."""

    def __init__(self, draw):
        # From above, to the left or the right.
        self.angle = draw.uniform(-2.6, -0.54)
        self.strength = draw.uniform(0.3, 0.6)
        self.gloss = draw.uniform(0.0, 0.5)
        self.shadow = draw.uniform(0.2, 0.5)
        self.reach = draw.uniform(2.0, 6.0)
        self.x, self.y = self.angle.cos(), self.angle.sin()

    def of(self, rows):
        part = object.__new__(Light)
        part.__dict__.update({name: value[rows] for name, value in self.__dict__.items()})
        return part


class Placement:
    """Where a texture is in every frame: its middle, its angle, and its half sides in pixels, negative to mirror it."""

    def __init__(self, centre, angle, size):
        self.centre, self.angle, self.size = centre, angle, size

    def of(self, rows):
        return Placement(self.centre[rows], self.angle[rows], self.size[rows])

    def local(self, shift=None):
        """The texture's places of all pixels, moved by a shift in pixels."""
        px, py = pixel_places(self.centre.device)
        centre = self.centre if shift is None else self.centre + shift
        dx, dy = px - spread(centre[..., 0]), py - spread(centre[..., 1])
        cosine, sine = spread(self.angle.cos()), spread(self.angle.sin())
        x = (dx * cosine + dy * sine) / spread(self.size[..., 0])
        y = (dy * cosine - dx * sine) / spread(self.size[..., 1])
        return x, y


def paint(image, visible, texture, shadow, placement, light):
    """Paints a texture of `[clips, 6, texels, texels]` where it is visible: colours times coverage, coverage, and the
    surface's direction times coverage. The shadow is a texture of one channel."""
    rows = visible.nonzero()[:, 0]
    if rows.numel() == 0:
        return image
    placement, light, below = placement.of(rows), light.of(rows), image[rows]
    away = torch.stack([-light.x * light.reach, -light.y * light.reach], dim=-1)[:, None]
    dark = sample(shadow[rows], *placement.local(away))
    below = below * (1 - light.shadow.reshape(-1, 1, 1, 1, 1) * dark)
    layer = sample(texture[rows], *placement.local())
    coverage = layer[:, 3:4]
    # The surface turns with the sprite, the light does not.
    cosine, sine = spread(placement.angle.cos()), spread(placement.angle.sin())
    tilt_x = layer[:, 4] * spread(placement.size[..., 0].sign())
    tilt_y = layer[:, 5] * spread(placement.size[..., 1].sign())
    x, y = tilt_x * cosine - tilt_y * sine, tilt_x * sine + tilt_y * cosine
    toward = x * light.x.reshape(-1, 1, 1, 1) + y * light.y.reshape(-1, 1, 1, 1)
    bright = 1 + light.strength.reshape(-1, 1, 1, 1) * toward
    gloss = light.gloss.reshape(-1, 1, 1, 1) * ((toward - 0.55) / 0.4).clamp(0, 1) ** 2
    painted = layer[:, :3] * bright[:, None] + (gloss[:, None] * coverage)
    image[rows] = below * (1 - coverage) + painted
    return image


def through_a_lens(image, share=0.125):
    """A slight blur of `[..., height, width]`, like a lens's. Painted images are sharper, down to the pixel, which
    latents with an eighth of the numbers cannot keep, and nobody would see."""
    shape = image.shape
    image = image.flatten(0, -4)
    for axis, padding in ((-1, (1, 1, 0, 0)), (-2, (0, 0, 1, 1))):
        length = image.shape[axis]
        padded = F.pad(image, padding, mode="replicate")
        sides = padded.narrow(axis, 0, length) + padded.narrow(axis, 2, length)
        image = (1 - 2 * share) * image + share * sides
    return image.reshape(shape)


def vignette(image, draw):
    """Corners a little darker, and one side of the picture a little brighter."""
    px, py = pixel_places(image.device)
    x, y = (px / SIDE - 0.5)[None], (py / SIDE - 0.5)[None]
    angle = each(draw.uniform(0, 6.2832))
    fall = 1 - each(draw.uniform(0, 0.3)) * 2 * (x * x + y * y)
    side = 1 + each(draw.uniform(0, 0.2)) * (x * angle.cos() + y * angle.sin())
    return image * (fall * side)[:, None, None]
