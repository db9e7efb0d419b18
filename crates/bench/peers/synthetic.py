"""Weights, inputs and photos that are made from their names alone, on any device.

`crates/models/src/synthetic/mod.rs` computes the same numbers, and so does `golden/synthetic.py` with NumPy.
"""

import torch

GOLDEN_RATIO = 0x9E3779B97F4A7C15


def fnv1a(name):
    """The 64-bit FNV-1a hash of a name."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def signed(value):
    """The signed 64-bit number with the same bits: torch computes with signed numbers, whose products wrap alike."""
    return value - (1 << 64) if value >= 1 << 63 else value


def shifted(z, bits):
    """A shift to the right that brings in zeros; torch's brings in the sign."""
    return (z >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def uniform(name, count, device):
    """`count` numbers in [-1, 1) with 24 random bits each: SplitMix64, seeded with the name's hash."""
    z = torch.arange(1, count + 1, dtype=torch.int64, device=device)
    z = z.mul_(signed(GOLDEN_RATIO)).add_(signed(fnv1a(name)))
    z = z.bitwise_xor_(shifted(z, 30)).mul_(signed(0xBF58476D1CE4E5B9))
    z = z.bitwise_xor_(shifted(z, 27)).mul_(signed(0x94D049BB133111EB))
    z = z.bitwise_xor_(shifted(z, 31))
    return shifted(z, 40).double().div_(1 << 23).sub_(1.0)


def tensor(name, shape, device):
    """A tensor of a weights file: products keep the variance, norms scale by about one."""
    u = uniform(name, torch.Size(shape).numel(), device)
    if len(shape) >= 2:
        u.mul_((3.0 / torch.Size(shape[1:]).numel()) ** 0.5)
    elif name.endswith(".weight"):
        u.mul_(0.2).add_(1.0)
    else:
        u.mul_(0.2)
    return u.float().reshape(shape)


def photo(width, height):
    """A photo of noise, bytes `[height, width, 3]`."""
    numbers = uniform(f"photo {width}×{height}", width * height * 3, "cpu")
    return numbers.add_(1.0).mul_(128.0).floor_().to(torch.uint8).reshape(height, width, 3)


def fill(network, device):
    """Gives every weight of a network its synthetic value."""
    with torch.no_grad():
        for name, value in network.state_dict().items():
            if value.dtype.is_floating_point:
                value.copy_(tensor(name, value.shape, device))
    return network.eval()
