"""The clips that the UNet is trained on, encoded once: latents are far smaller than frames, and are read several times.

Kept on the device, and on disk for a run that goes on later.
"""

import dataclasses
import time

import torch

from autoencoder import encode
from checkpoints import Log, save
from motion import bucket

# How noisy the first frame is that the UNet is shown: about what the pipeline adds, 0.02, at times several times as much.
NOISE_MEAN, NOISE_DEVIATION = -3.6, 0.6
# Noisy versions of a first frame.
VERSIONS = 2


@dataclasses.dataclass
class Latents:
    """Of all clips: what the UNet learns to make, and what it is told."""

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
def encoded(vae, batch, generator):
    """What `Latents` keeps of a batch of clips."""
    frames = batch.frames * 2 - 1
    clips, count = frames.shape[:2]
    latents = encode(vae, frames.flatten(0, 1)).unflatten(0, (clips, count))
    shape = (clips, VERSIONS)
    strengths = (NOISE_MEAN + NOISE_DEVIATION * torch.randn(shape, generator=generator, device=frames.device)).exp()
    noise = torch.randn(*shape, *frames.shape[2:], generator=generator, device=frames.device)
    noisy = frames[:, :1] + strengths[..., None, None, None] * noise
    images = encode(vae, noisy.flatten(0, 1)).unflatten(0, shape)
    pictures = (batch.frames[:, 0] * 255).round().to(torch.uint8)
    conditions = torch.stack([batch.fps - 1, bucket(batch.motion, batch.fps)], dim=1)
    return dict(
        clips=latents.half(), images=images.half(), strengths=strengths, pictures=pictures, conditions=conditions
    )


def make(vae, clips, count, work, out, batch_size):
    """Encodes clips 0 to `count`, or reads them where an earlier run has."""
    log = Log(out / "log.jsonl", "latents")
    path = work / f"latents-{count}.pt"
    start = time.perf_counter()
    if path.exists():
        parts = torch.load(path, map_location=clips.device, weights_only=True)
        log.write(event="read", clips=count, seconds=time.perf_counter() - start)
        return Latents(**parts)
    generator = torch.Generator(clips.device).manual_seed(7)
    parts, painting = None, 0.0
    for first in range(0, count, batch_size):
        before = time.perf_counter()
        batch = clips.make(range(first, min(first + batch_size, count)))
        if first // batch_size == 2 and clips.device.type == "cuda":
            torch.cuda.synchronize()
            painting = time.perf_counter() - before
        piece = encoded(vae, batch, generator)
        if parts is None:
            parts = {name: torch.empty(count, *value.shape[1:], dtype=value.dtype, device=value.device) for name, value in piece.items()}
        for name, value in piece.items():
            parts[name][first : first + len(value)] = value
    if clips.device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    deviation = parts["clips"][:2048].float().std().item()
    log.write(
        event="made", clips=count, seconds=seconds, clips_per_second=count / seconds, deviation=deviation,
        painted_per_second=batch_size / painting if painting else 0.0,
        buckets=[round(q) for q in parts["conditions"][:, 1].quantile(torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95], device=clips.device)).tolist()],
    )  # fmt: skip
    before = time.perf_counter()
    save(path, parts)
    log.write(event="saved", seconds=time.perf_counter() - before)
    return Latents(**parts)
