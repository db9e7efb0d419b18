"""Weights and photos made from their names alone, so that a fixture need not hold them.

`crates/models/src/synthetic/mod.rs` computes the very same numbers; a test compares the two.
"""

import numpy as np

GOLDEN_RATIO = 0x9E3779B97F4A7C15


def fnv1a(name: str) -> int:
    """The 64-bit FNV-1a hash of a name."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def uniform(name: str, count: int) -> np.ndarray:
    """`count` numbers in [-1, 1) with 24 random bits each: SplitMix64 from the name's hash."""
    with np.errstate(over="ignore"):
        z = np.uint64(fnv1a(name)) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GOLDEN_RATIO)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.float64) / (1 << 23) - 1.0


def tensor(name: str, shape) -> np.ndarray:
    """The tensor of a weights file: products keep the variance, norms scale by about one."""
    shape = tuple(shape)
    u = uniform(name, int(np.prod(shape)))
    if len(shape) >= 2:
        u = u * np.sqrt(3.0 / np.prod(shape[1:]))
    elif name.endswith(".weight"):
        u = 1.0 + 0.2 * u
    else:
        u = 0.2 * u
    return u.astype(np.float32).reshape(shape)


def photo(width: int, height: int) -> np.ndarray:
    """A photo of noise, `[height, width, 3]`: its bytes are the leading bits of the numbers."""
    numbers = uniform(f"photo {width}×{height}", width * height * 3)
    return np.floor((numbers + 1.0) * 128.0).astype(np.uint8).reshape(height, width, 3)


def fill(module, prefix: str = "") -> None:
    """Gives every weight and buffer of a torch module that its state dict holds its synthetic value."""
    import torch

    state = module.state_dict()
    for name, value in state.items():
        if value.dtype.is_floating_point:
            state[name] = torch.from_numpy(tensor(prefix + name, value.shape)).to(value.dtype)
    module.load_state_dict(state)
