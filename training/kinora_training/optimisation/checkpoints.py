"""The state of a stage, kept in a folder, so that the same command resumes where it was stopped."""

import json
import math
import time

import torch


def save(path, state):
    """Writes the whole file or nothing: a run may be ended at any moment."""
    beside = path.with_suffix(".partial")
    torch.save(state, beside)
    beside.replace(path)


def load(path, device):
    return torch.load(path, map_location=device, weights_only=True) if path.exists() else None


def belong(folder, origin):
    """Refuses a folder whose checkpoints belong to another model or another set of clips."""
    path = folder / "origin.json"
    if path.exists():
        other = json.loads(path.read_text(encoding="utf-8"))
        if other != origin:
            raise SystemExit(
                f"{folder} has checkpoints of another run, {other}, but this run is {origin}: "
                "name another folder, or empty this one"
            )
    path.write_text(json.dumps(origin) + "\n", encoding="utf-8")


class Clock:
    """The time of a stage over all runs, and of this run. With `finish` the stage ends with this run."""

    def __init__(self, stage_seconds, elapsed, deadline, steps=None, finish=False):
        self.budget, self.before, self.start = stage_seconds, elapsed, time.perf_counter()
        self.deadline, self.step_limit, self.steps = deadline, steps, 0
        if finish:
            self.budget = elapsed + max(1.0, deadline - self.start)

    @property
    def elapsed(self):
        return self.before + time.perf_counter() - self.start

    @property
    def fraction(self):
        """How much of the stage is done: by its steps if they are limited, otherwise by time."""
        if self.step_limit is not None:
            return min(1.0, self.steps / self.step_limit)
        return min(1.0, self.elapsed / self.budget)

    @property
    def done(self):
        return self.fraction >= 1.0

    @property
    def must_stop(self):
        return time.perf_counter() >= self.deadline


class Log:
    """Lines to read, and the same as JSON, one object per line."""

    def __init__(self, path, stage):
        self.path, self.stage = path, stage

    def write(self, **values):
        values = {name: value.item() if torch.is_tensor(value) else value for name, value in values.items()}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dict(stage=self.stage, **values)) + "\n")
        words = [
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()
        ]
        print(f"{self.stage}: " + ", ".join(words), flush=True)


def learning_rate(peak, fraction, steps, warm_up):
    """Linear warm-up over the first steps, then a cosine to zero over the stage's time."""
    return peak * min(1.0, steps / warm_up) * (0.5 + 0.5 * math.cos(math.pi * min(1.0, fraction)))
