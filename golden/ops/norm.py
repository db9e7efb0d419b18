"""Norms."""

import torch.nn.functional as F

from .fixture import F32, STORAGES, Family, f32
from .fused import ACTIVATIONS, group, norm, norm_operands, run_norm
from .layouts import images_first, images_last


def case(family, name, x, kind, storages=F32, keep_f32=(), **attributes):
    op = norm(kind, **attributes)
    inputs = {"x": x, **norm_operands(op, (x if isinstance(x, tuple) else x.shape)[-1])}
    family.case(name, {"norm": op}, inputs, lambda x, *learned: run_norm(x, op, learned), storages, keep_f32)


def batch_norm(family, name, x, epsilon=1e-5, storages=F32):
    channels = (x[-1],)
    epsilon = f32(epsilon)
    inputs = {"x": x, "mean": channels, "variance": None, "scale": channels, "shift": channels}
    inputs["variance"] = family.normal(name, "variance", shape=channels).square() + 0.1

    def compute(x, mean, variance, scale, shift):
        y = F.batch_norm(images_first(x), mean, variance, scale, shift, training=False, eps=epsilon)
        return images_last(y)

    family.case(name, {"batch_norm": {"epsilon": epsilon}}, inputs, compute, storages)


def build():
    family = Family("norm")
    case(family, "group", (2, 4, 5, 6), group(3), storages=STORAGES)
    case(family, "group_odd", (2, 3, 5, 35), group(5))
    case(family, "group_one_group", (2, 3, 3, 5), group(1))
    case(family, "group_of_one_channel", (2, 3, 4, 5), group(5))
    case(family, "group_of_tokens", (2, 7, 8), group(4), epsilon=1e-6)
    case(family, "group_of_vectors", (3, 12), group(3))
    case(family, "group_one_pixel", (2, 1, 1, 8), group(2))
    case(family, "group_plain", (2, 3, 4, 6), group(2), affine="none")
    case(family, "group_scale_only", (2, 3, 4, 6), group(2), affine="scale")
    case(family, "group_silu", (2, 4, 3, 6), group(3), activation="silu", storages=STORAGES)
    case(family, "group_of_an_image", (1, 16, 17, 40), group(4), activation="silu", storages=("f16",))
    case(family, "group_f32_affine", (2, 3, 3, 6), group(3), storages=("f16",), keep_f32=("scale", "shift"))
    case(family, "group_over_frames", (6, 3, 2, 4), group(2, frames=3), storages=STORAGES)
    case(family, "group_over_frames_silu", (4, 2, 3, 6), group(3, frames=4), epsilon=1e-6, activation="silu")
    case(family, "group_over_frames_tokens", (4, 5, 6), group(3, frames=2))
    # A mean far from zero: a variance taken as the difference of two large sums loses its digits.
    far = family.normal("group_far_mean", "x", shape=(2, 4, 4, 4)) + 20.0
    case(family, "group_far_mean", far, group(2))
    far = family.normal("layer_far_mean", "x", shape=(3, 64)) + 20.0
    case(family, "layer_far_mean", far, "layer")
    for kind in ("layer", "rms"):
        case(family, kind, (3, 5, 7), kind, storages=STORAGES)
        case(family, f"{kind}_plain", (4, 33), kind, affine="none", epsilon=1e-6)
        case(family, f"{kind}_scale_only", (2, 3, 4, 8), kind, affine="scale", epsilon=1e-6)
        case(family, f"{kind}_one_channel", (3, 1), kind)
        case(family, f"{kind}_vector", (19,), kind)
        case(family, f"{kind}_wide", (2, 131), kind)
    for name in ACTIVATIONS:
        case(family, f"layer_{name}", (2, 3, 9), "layer", activation=name)
    tiny = family.normal("rms_tiny", "x", shape=(2, 8)) * 1e-3
    case(family, "rms_tiny", tiny, "rms", affine="none", epsilon=1e-6)
    batch_norm(family, "batch", (2, 3, 4, 5), storages=STORAGES)
    batch_norm(family, "batch_33_channels", (1, 2, 3, 33), epsilon=1e-3)
    return family
