"""Sinusoidal embeddings."""

import torch
from diffusers.models import embeddings

from .double import in_double
from .fixture import F32, STORAGES, Family, f32


def case(family, name, t, width, cosine_first=False, shift=0.0, max_period=10000.0, scale=1.0, storages=F32):
    shift, max_period, scale = f32(shift), f32(max_period), f32(scale)

    def compute(t):
        # diffusers takes `timesteps.float()`, which holds every timestep stored here exactly.
        with in_double(embeddings):
            y = embeddings.get_timestep_embedding(t, width, cosine_first, shift, scale, max_period)
        assert y.dtype == torch.float64
        return y

    op = {
        "width": width,
        "cosine_first": cosine_first,
        "frequency_shift": shift,
        "max_period": max_period,
        "scale": scale,
    }
    inputs = {"t": torch.tensor(t, dtype=torch.float64)}
    family.case(name, {"timestep_embedding": op}, inputs, compute, storages)


def build():
    family = Family("embedding")
    timesteps = [0.0, 1.0, 2.5, 17.0, 499.0, 999.0]
    for cosine_first in (False, True):
        for shift in (0.0, 1.0):
            order = "cosine_first" if cosine_first else "sine_first"
            case(family, f"{order}_shift_{shift:.0f}", timesteps, 32, cosine_first, shift, storages=STORAGES)
    case(family, "odd_width", timesteps, 11, cosine_first=True)
    case(family, "odd_width_sine_first", timesteps, 7, shift=1.0)
    case(family, "narrowest", [0.5, 3.0], 2)
    case(family, "three", [0.5, 3.0], 3, cosine_first=True)
    case(family, "scaled", [0.25, 1.0, -0.5], 16, scale=1000.0)
    case(family, "short_period", [0.25, 1.0, 6.0], 16, max_period=100.0, cosine_first=True)
    case(family, "log_sigma", [-1.55, 0.0, 1.64], 32, cosine_first=True)
    case(family, "real_width", [981.0], 320, cosine_first=True)
    return family
