"""Clips painted once and kept as bytes on the device: 0.7 MB each, from which both stages take what they need.

A training step then never waits for painting. If a stage has to start again, the same clips are painted again.
"""

import time

import torch

from ..optimisation.checkpoints import Log
from .clips import FRAMES
from .layers import SIDE
from .motion import bucket


class Pool:
    """A number of clips, starting at number `first`."""

    def __init__(self, clips, first, count, painted_at_once, out):
        log, start = Log(out / "log.jsonl", "pool"), time.perf_counter()
        device = clips.device
        self.first = first
        self.frames = torch.empty(count, FRAMES, 3, SIDE, SIDE, dtype=torch.uint8, device=device)
        self.conditions = torch.empty(count, 2, device=device)
        for begin in range(0, count, painted_at_once):
            rows = slice(begin, min(begin + painted_at_once, count))
            batch = clips.make(range(first + rows.start, first + rows.stop))
            self.frames[rows] = (batch.frames * 255).round().to(torch.uint8)
            self.conditions[rows] = torch.stack([batch.fps - 1, bucket(batch.motion, batch.fps)], dim=1)
            if begin // painted_at_once % 16 == 8:
                log.write(event="painting", clips=rows.stop, clips_per_second=rows.stop / (time.perf_counter() - start))
        if device.type == "cuda":
            torch.cuda.synchronize()
            # Painting holds more memory than training needs.
            torch.cuda.empty_cache()
        seconds = time.perf_counter() - start
        places = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95], device=device)
        buckets = [round(value) for value in self.conditions[:, 1].quantile(places).tolist()]
        log.write(
            event="painted",
            first=first,
            clips=count,
            seconds=seconds,
            clips_per_second=count / seconds,
            buckets=buckets,
        )

    @property
    def count(self):
        return len(self.frames)

    def pieces(self, count, frames, generator):
        """Consecutive frames, from −1 to 1, of clips drawn at random."""
        device = self.frames.device
        rows = torch.randint(self.count, (count, 1), generator=generator, device=device)
        first = torch.randint(FRAMES - frames + 1, (count, 1), generator=generator, device=device)
        times = first + torch.arange(frames, device=device)
        return self.frames[rows, times].float() / 127.5 - 1
