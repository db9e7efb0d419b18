"""Resizing, filters, pooling, means."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from .fixture import F32, STORAGES, Family
from .layouts import images_first, images_last


def upsample(family, name, x, size, interpolation, storages=F32):
    def compute(x):
        options = {"align_corners": False} if interpolation == "bilinear" else {}
        return images_last(F.interpolate(images_first(x), size=size, mode=interpolation, **options))

    op = {"upsample": {"interpolation": interpolation, "size": size}}
    name = f"{interpolation}_{name}"
    family.case(name, op, {"x": x}, compute, storages, exact=interpolation == "nearest")


def lanczos(x):
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)


def filter_tables(start, seen, to):
    """The neighbours of each result and their weights, as Pillow's source says; Pillow does not show them."""
    scale = seen / to
    stretch = max(scale, 1.0)
    runs = []
    for i in range(to):
        centre = (i + 0.5) * scale
        begin = max(int(centre - 3 * stretch + 0.5), 0)
        weights = lanczos((np.arange(begin, min(int(centre + 3 * stretch + 0.5), seen)) - centre + 0.5) / stretch)
        weights = weights / weights.sum() * (1 << 22)
        runs.append((start + begin, [int(math.floor(abs(w) + 0.5) * math.copysign(1, w)) for w in weights]))
    taps = max(len(weights) for _, weights in runs)
    first = torch.tensor([begin for begin, _ in runs], dtype=torch.int32)
    return first, torch.tensor([w + [0] * (taps - len(w)) for _, w in runs], dtype=torch.int32)


def resample(family, name, shape, axis, to, start=0, seen=None):
    """Bytes of images, of which `seen` rows or columns from `start` on are resized, by Pillow."""
    mode = {1: "L", 3: "RGB", 4: "CMYK"}[shape[3]]
    seen = seen or shape[axis]
    # Noise with hard edges, where the filter overshoots a byte.
    bytes = (family.normal(name, "x", shape=shape) * 90 + 128).clamp(0, 255).to(torch.uint8)
    bytes[:, : shape[1] // 2] = bytes[:, : shape[1] // 2] // 128 * 255
    results = []
    for picture in bytes.numpy():
        part = picture[start : start + seen] if axis == 1 else picture[:, start : start + seen]
        size = (shape[2], to) if axis == 1 else (to, shape[1])
        image = Image.fromarray(part.squeeze(-1) if mode == "L" else part, mode)
        results.append(torch.from_numpy(np.array(image.resize(size, Image.Resampling.LANCZOS))))
    first, weights = filter_tables(start, seen, to)
    inputs = {"x": bytes, "first": first, "weights": weights}
    result = torch.stack(results).reshape([*shape[:axis], to, *shape[axis + 1 :]])
    family.add(f"resample_{name}", {"resample": {"axis": axis}}, inputs, (result,), exact=True)


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
    for axis, name in ((1, "height"), (2, "width")):
        resample(family, f"{name}_larger", (2, 5, 6, 3), axis, 11)
        resample(family, f"{name}_smaller", (1, 23, 19, 3), axis, 7)
        resample(family, f"{name}_from_one", (1, 1, 1, 3), axis, 5)
        resample(family, f"{name}_to_one", (1, 9, 8, 1), axis, 1)
        resample(family, f"{name}_four_channels", (1, 7, 9, 4), axis, 8)
        resample(family, f"{name}_cropped", (1, 12, 13, 3), axis, 9, start=3, seen=7)
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
