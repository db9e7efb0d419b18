"""The cases: kinds, and how often each comes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from room import Room
from run import Run

from . import live, models, options, outputs, photos, system, tools

Make = Callable[[Room, Random], Run]

# How many of 1000 cases.
KINDS: dict[str, tuple[int, Make]] = {
    "photo": (150, photos.damaged_photo),
    "bomb": (30, photos.bomb),
    "config": (130, models.config),
    "defaults": (50, models.defaults),
    "weights": (90, models.weights),
    "special file": (30, models.special_file),
    "name": (40, options.name),
    "option": (70, options.option),
    "output": (60, outputs.output),
    "limit": (40, system.limit),
    "signal": (50, system.signalled),
    "stream": (25, system.stream),
    "environment": (25, system.environment),
    "concurrent": (10, system.concurrent),
    "video": (60, live.video),
    "live option": (30, live.option),
    "changes": (20, live.changes),
    "live model": (30, live.model),
    "sim": (30, tools.sim),
    "saved": (30, tools.saved),
}


def by_number(seed: int, number: int, kind: str | None) -> tuple[str, Make, Random]:
    """The kind of a case, what makes it, and its random numbers: all of it a function of the seed and the number."""
    random = Random(f"{seed}/{number}")
    weights = [weight for weight, _ in KINDS.values()]
    chosen = random.choices(list(KINDS), weights)[0]
    chosen = kind or chosen
    return chosen, KINDS[chosen][1], random
