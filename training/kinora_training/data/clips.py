"""The training data: a clip of 14 frames for every number, painted in batches on any device.

    clips = Clips("cuda")
    batch = clips.make(range(64))      # batch.frames is [64, 14, 3, 128, 128], from 0 to 1

Three kinds of scenes: sprites over textures; a camera over textures; landscapes, with or without sprites.
"""

import dataclasses

import torch

from . import backgrounds, landscapes, motion, shapes
from .colours import luminance
from .layers import SIDE, Light, cover, look, through_a_lens, vignette
from .noise import each
from .randomness import Draw
from .sprites import MOST, Sprites
from .trajectories import CameraPath, SpritePaths

FRAMES = 14
# Numbers from here on are never trained on.
HELD_OUT = 1 << 40
SPRITES, CAMERA, LANDSCAPE = range(3)
SCENES = ("sprites", "camera", "landscape")
# How often each kind of scene occurs, out of 20.
SHARES = [SPRITES] * 10 + [CAMERA] * 4 + [LANDSCAPE] * 6
CANVASES = [
    "clouds",
    "clouds",
    "marble",
    "marble",
    "stones",
    "stones",
    "bricks",
    "bricks",
    "fabric",
    "fabric",
    "terrain",
    "terrain",
    "lights",
    "leaves",
    "leaves",
    "leaves",
]


@dataclasses.dataclass
class Batch:
    frames: torch.Tensor
    """`[clips, frames, 3, height, width]` from 0 to 1."""
    fps: torch.Tensor
    motion: torch.Tensor
    """Measured, in pixels per frame."""
    scene: torch.Tensor
    colours: torch.Tensor
    """The sprites' own, `[clips, 5, 3]`."""
    radius: torch.Tensor
    """The sprites', in pixels; 0 for no sprite."""

    @property
    def bucket(self):
        return motion.bucket(self.motion, self.fps)


class Clips:
    """Makes clips by their numbers."""

    def __init__(self, device):
        self.device = torch.device(device)
        self.atlas = shapes.atlas(self.device)

    @torch.no_grad()
    def make(self, numbers, frames=None, scene=None):
        """The clips with these numbers; only some `frames` if given. `scene` restricts them to one kind, to look at
        it."""
        numbers = torch.as_tensor(list(numbers), dtype=torch.int64)
        # Draws that control flow depends on are made on the CPU, which draws the same numbers.
        draw = Draw(numbers, stream=1)
        scenes = draw.choice(SHARES)
        if scene is not None:
            scenes = torch.full_like(scenes, SCENES.index(scene))
        canvases = draw.integer(len(CANVASES))
        every = torch.arange(FRAMES) if frames is None else torch.as_tensor(frames)
        count = len(numbers)
        device = self.device
        parts = [
            (scenes != LANDSCAPE, self.textured),
            (scenes == LANDSCAPE, self.landscape),
        ]
        image = torch.empty(count, 3, len(every), SIDE, SIDE, device=device)
        colours = torch.zeros(count, MOST, 3, device=device)
        radius = torch.zeros(count, MOST, device=device)
        numbers_there = numbers.to(device)
        timing = Draw(numbers_there, stream=2)
        # Half of the clips at the pipeline's default rate.
        fps = torch.where(timing.chance(0.5), 7, 4 + timing.integer(11)).float()
        speed = timing.log_uniform(0.06, 0.55) * (~timing.chance(0.03)).float()
        pace = speed * motion.BASE_FPS / fps
        time = every.to(device)[None] * pace[:, None]
        middle = 0.5 * (FRAMES - 1) * pace
        for chosen, make in parts:
            rows = chosen.nonzero()[:, 0]
            if len(rows):
                there = rows.to(device)
                draw = Draw(numbers_there[there], stream=3)
                kinds = [CANVASES[i] for i in canvases[rows].tolist()]
                part, sprites = make(draw, time[there], middle[there], scenes[rows].to(device), kinds)
                image[there] = through_a_lens(vignette(part, draw)).clamp(0, 1)
                colours[there], radius[there] = sprites.colour, sprites.radius * sprites.active
        image = image.transpose(1, 2)
        moves = motion.displacement(image) if len(every) > 1 else torch.zeros(count, device=device)
        return Batch(image, fps, moves, scenes.to(device), colours, radius)

    def canvas(self, draw, kinds, vividness):
        image = torch.empty(draw.count, 3, backgrounds.SIDE, backgrounds.SIDE, device=self.device)
        for kind in backgrounds.KINDS:
            rows = torch.tensor([i for i, other in enumerate(kinds) if other == kind], device=self.device)
            if len(rows):
                image[rows] = backgrounds.canvas(kind, draw.of(rows, stream=4), self.atlas)
        grey = luminance(image)
        return torch.lerp(grey.expand_as(image), image, vividness.reshape(-1, 1, 1, 1))

    def sprites(self, draw, counts, **looks):
        crowd = counts[:, None].float()
        radius = draw.uniform(0.85, 1.2, MOST) * (29 - 3.0 * crowd)
        sprites = Sprites(draw, self.atlas, counts, radius, **looks)
        return sprites, SpritePaths(draw, radius, sprites.active)

    def textured(self, draw, time, middle, scene, kinds):
        """Sprites over a texture, or a camera over one."""
        has_sprites = scene == SPRITES
        # Muted behind sprites, which are recognised by their colours.
        vividness = torch.where(has_sprites, draw.uniform(0.1, 0.5), draw.uniform(0.6, 1.1))
        canvas = self.canvas(draw, kinds, vividness)
        drifts = draw.chance(0.35)
        camera = CameraPath(draw, ~has_sprites | drifts)
        amount = torch.where(has_sprites, 0.4, 1.0)
        camera.pan, camera.zoom, camera.turn = camera.pan * amount[:, None], camera.zoom * amount, camera.turn * amount
        shift, zoom, angle = camera.shift(time, middle), camera.magnification(time, middle), camera.angle(time, middle)
        scale = backgrounds.TEXELS_PER_PIXEL * draw.uniform(0.85, 1.1)[:, None] / zoom
        image = look(canvas, backgrounds.SIDE / 2 + shift * backgrounds.TEXELS_PER_PIXEL, angle, scale)
        counts = torch.where(has_sprites, 1 + draw.choice([0, 0, 0, 1, 1, 1, 1, 2, 2, 3]), 0)
        sprites, paths = self.sprites(draw, counts)
        return sprites.paint(image, paths, time, Light(draw)), sprites

    def landscape(self, draw, time, middle, scene, kinds):
        colours = landscapes.Palette(draw)
        heading = draw.sign() * draw.uniform(0.6, 6.0) * draw.chance(0.9).float()
        rise = draw.uniform(-0.35, 0.35)
        zoom = draw.uniform(-0.02, 0.02) * draw.chance(0.4).float()
        elapsed = time - middle[:, None]
        size = draw.uniform(0.88, 1.0)[:, None]

        def seen(layer, depth, drift=0.0):
            along = elapsed * (heading * depth + drift)[:, None]
            x = landscapes.WIDTH / 2 + along * landscapes.TEXELS_PER_PIXEL
            y = landscapes.HEIGHT / 2 + elapsed * (rise * depth)[:, None] + torch.zeros_like(x)
            scale = landscapes.TEXELS_PER_PIXEL * size / (elapsed * (zoom * depth)[:, None]).exp()
            return look(layer, torch.stack([x, y], dim=-1), torch.zeros_like(x), scale)

        ones = torch.ones_like(heading)
        image = seen(landscapes.sky(draw, colours), 0.04 * ones)
        image = cover(image, seen(landscapes.clouds(draw, colours), 0.12 * ones, draw.uniform(-1.2, 1.2)))
        far = draw.choice([0, 0, 1])
        image = cover(image, seen(landscapes.ridge(draw, colours, 0.15, far), 0.25 * ones))
        between = draw.choice([0, 1, 2, 3, 3])
        image = cover(image, seen(landscapes.ridge(draw, colours, 0.5, between), 0.5 * ones))
        near = draw.choice([1, 2, 2, 3])
        lake = draw.chance(0.35)
        front = landscapes.ridge(draw, colours, 1.0, near)
        front = torch.where(each(lake)[:, None], landscapes.water(draw, colours), front)
        image = cover(image, seen(front, ones))
        counts = draw.choice([0, 0, 0, 1, 1, 2, 3])
        sprites, paths = self.sprites(draw, counts, creatures=0.6, letters=0.05)
        return sprites.paint(image, paths, time, Light(draw)), sprites
