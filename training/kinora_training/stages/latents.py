"""The pool's clips, encoded once: latents are far smaller than frames, and the UNet reads them several times.

Kept on the device, and on disk for a run that resumes later.
"""

import dataclasses
import time

import torch

from ..optimisation.checkpoints import Log, save
from .autoencoder import encode

# The noise in the first frame that the UNet sees: about the 0.02 that the pipeline adds, sometimes several times that.
NOISE_MEAN, NOISE_DEVIATION = -3.6, 0.6
# Noisy versions of a first frame.
VERSIONS = 2


@dataclasses.dataclass
class Latents:
    """For all clips: what the UNet learns to predict, and its conditions."""

    clips: torch.Tensor
    """`[n, frames, channels, height, width]` in f16."""
    images: torch.Tensor
    """The latents of first frames with noise, `[n, versions, channels, height, width]`."""
    strengths: torch.Tensor
    """Of that noise, `[n, versions]`."""
    pictures: torch.Tensor
    """First frames as bytes, for the image encoder."""
    conditions: torch.Tensor
    """Frame rate − 1 and motion bucket, `[n, 2]`."""

    @property
    def count(self):
        return len(self.clips)

    def batch(self, rows, version):
        ids = torch.cat([self.conditions[rows], self.strengths[rows, version, None]], dim=1)
        return dict(latents=self.clips[rows], image=self.images[rows, version], picture=self.pictures[rows], ids=ids)


@torch.no_grad()
def encoded(vae, pictures, generator):
    """What `Latents` keeps of clips given as bytes, except for their conditions."""
    frames = pictures.float() / 127.5 - 1
    clips, count = frames.shape[:2]
    latents = encode(vae, frames.flatten(0, 1)).unflatten(0, (clips, count))
    shape = (clips, VERSIONS)
    strengths = (NOISE_MEAN + NOISE_DEVIATION * torch.randn(shape, generator=generator, device=frames.device)).exp()
    noise = torch.randn(*shape, *frames.shape[2:], generator=generator, device=frames.device)
    noisy = frames[:, :1] + strengths[..., None, None, None] * noise
    images = encode(vae, noisy.flatten(0, 1)).unflatten(0, shape)
    return dict(clips=latents.half(), images=images.half(), strengths=strengths)


def read(work, first, count, device, out):
    """What an earlier run encoded, or `None`."""
    path, start = path_of(work, first, count), time.perf_counter()
    if not path.exists():
        return None
    latents = Latents(**torch.load(path, map_location=device, weights_only=True))
    Log(out / "log.jsonl", "latents").write(event="read", clips=count, seconds=time.perf_counter() - start)
    return latents


def path_of(work, first, count):
    return work / f"latents-{first}-{count}.pt"


def make(vae, pool, work, out, batch_size):
    """Encodes all clips of the pool, and keeps the result for a run that resumes later."""
    log, start = Log(out / "log.jsonl", "latents"), time.perf_counter()
    device = pool.frames.device
    generator = torch.Generator(device).manual_seed(7)
    # First frames are copied, so that the pool can be freed.
    parts = dict(pictures=pool.frames[:, 0].clone(), conditions=pool.conditions)
    for first in range(0, pool.count, batch_size):
        piece = encoded(vae, pool.frames[first : first + batch_size], generator)
        for name, value in piece.items():
            if name not in parts:
                parts[name] = torch.empty(pool.count, *value.shape[1:], dtype=value.dtype, device=device)
            parts[name][first : first + len(value)] = value
    deviations = [round(value, 2) for value in parts["clips"][:1024].float().std((0, 1, 3, 4)).tolist()]
    seconds = time.perf_counter() - start
    log.write(
        event="made", clips=pool.count, seconds=seconds, clips_per_second=pool.count / seconds, deviations=deviations
    )
    before = time.perf_counter()
    save(path_of(work, pool.first, pool.count), parts)
    log.write(event="saved", seconds=time.perf_counter() - before)
    return Latents(**parts)
