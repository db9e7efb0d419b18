"""Resizing, pooling, means."""

import torch.nn.functional as F

from .fixture import F32, STORAGES, Family
from .layouts import images_first, images_last


def upsample(family, name, x, size, interpolation, storages=F32):
    def compute(x):
        options = {"align_corners": False} if interpolation == "bilinear" else {}
        return images_last(F.interpolate(images_first(x), size=size, mode=interpolation, **options))

    op = {"upsample": {"interpolation": interpolation, "size": size}}
    name = f"{interpolation}_{name}"
    family.case(name, op, {"x": x}, compute, storages, exact=interpolation == "nearest")


def pool(family, name, x, kind, kernel, stride, padding=(0, 0), storages=F32):
    function = {"average": F.avg_pool2d, "max": F.max_pool2d}[kind]

    def compute(x):
        return images_last(function(images_first(x), kernel, stride, padding))

    op = {"pool": {"kind": kind, "kernel": kernel, "stride": stride, "padding": padding}}
    family.case(f"{kind}_pool_{name}", op, {"x": x}, compute, storages, exact=kind == "max")


def mean(family, name, x, axes, storages=F32):
    op = {"mean": {"axes": axes}}
    # PyTorch takes no axes to mean all of them.
    family.case(f"mean_{name}", op, {"x": x}, lambda x: x.mean(axes, keepdim=True) if axes else x, storages)


def build():
    family = Family("resample")
    for interpolation in ("nearest", "bilinear"):
        for name, x, size in (
            ("twice", (2, 3, 4, 5), (6, 8)),
            ("odd", (1, 3, 4, 3), (7, 5)),
            ("one_axis", (1, 3, 4, 3), (3, 9)),
            ("same_size", (1, 3, 4, 3), (3, 4)),
            ("from_one_pixel", (2, 1, 1, 5), (3, 4)),
            ("from_one_row", (1, 1, 5, 3), (2, 10)),
            ("half", (1, 6, 8, 3), (3, 4)),
            ("smaller_odd", (1, 7, 9, 3), (3, 5)),
            ("to_one_pixel", (1, 5, 6, 3), (1, 1)),
            ("mixed", (1, 3, 9, 3), (5, 4)),
            ("33_channels", (1, 2, 3, 33), (4, 6)),
        ):
            upsample(family, name, x, size, interpolation, STORAGES if name in ("twice", "odd") else F32)
    for kind in ("average", "max"):
        pool(family, "2x2", (2, 4, 6, 5), kind, (2, 2), (2, 2), storages=STORAGES)
        pool(family, "2x2_odd", (1, 5, 7, 3), kind, (2, 2), (2, 2))
        pool(family, "3x3_padded", (1, 5, 6, 3), kind, (3, 3), (2, 2), (1, 1))
        pool(family, "3x3_overlapping", (1, 4, 5, 3), kind, (3, 3), (1, 1), (1, 1))
        pool(family, "3x2_mixed", (1, 7, 6, 3), kind, (3, 2), (1, 3), (1, 0))
        pool(family, "whole", (2, 3, 4, 5), kind, (3, 4), (1, 1))
        pool(family, "1x1_stride_2", (1, 4, 5, 3), kind, (1, 1), (2, 2))
    mean(family, "positions", (2, 3, 4, 5), (1, 2), STORAGES)
    mean(family, "channels", (2, 3, 7), (2,), STORAGES)
    mean(family, "images", (5, 3, 4), (0,))
    mean(family, "middle", (2, 9, 4), (1,))
    mean(family, "apart", (2, 3, 4, 5), (0, 2))
    mean(family, "all", (2, 3, 4, 5), (0, 1, 2, 3))
    mean(family, "none", (2, 3), ())
    mean(family, "vector", (33,), (0,))
    return family
