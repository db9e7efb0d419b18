"""Ops that move or convert elements: every result is exact."""

import torch
import torch.nn.functional as F

from .fixture import DTYPES, F32, STORAGES, Family


def build():
    family = Family("arrange")
    concat(family)
    slices(family)
    reshape(family)
    lookup(family)
    casts(family)
    return family


def integers(dtype, *shape):
    return torch.arange(torch.Size(shape).numel()).reshape(shape).mul(7).remainder(251).to(DTYPES[dtype])


def concat(family):
    def case(name, axis, inputs, storages=F32):
        def function(*parts):
            return torch.cat(parts, dim=axis)

        family.case(name, {"concat": {"axis": axis}}, inputs, function, storages, exact=True)

    for axis in range(4):
        a, b = [2, 3, 4, 5], [2, 3, 4, 5]
        b[axis] = 3
        case(f"concat_axis_{axis}", axis, {"a": tuple(a), "b": tuple(b)}, STORAGES if axis == 3 else F32)
    case("concat_three", 1, {"a": (2, 1, 5), "b": (2, 3, 5), "c": (2, 2, 5)})
    case("concat_vectors", 0, {"a": (3,), "b": (2,)})
    case("concat_empty", 1, {"a": (2, 3), "b": (2, 0)})
    case("concat_u8", 1, {"a": integers("u8", 2, 3), "b": integers("u8", 2, 2)})
    case("concat_i32", 0, {"a": integers("i32", 2, 3), "b": integers("i32", 1, 3)})


def slices(family):
    def case(name, axis, start, length, x, storages=F32):
        op = {"slice": {"axis": axis, "start": start, "len": length}}
        family.case(name, op, {"x": x}, lambda x: x.narrow(axis, start, length), storages, exact=True)

    for axis in range(4):
        case(f"slice_axis_{axis}", axis, 1, 2, (3, 4, 5, 7), STORAGES if axis == 3 else F32)
    case("slice_whole", 1, 0, 5, (2, 5))
    case("slice_last", 0, 4, 1, (5, 3))
    case("slice_nothing", 1, 2, 0, (2, 5))
    case("slice_u8", 1, 1, 3, integers("u8", 3, 5))
    case("slice_i32", 0, 1, 2, integers("i32", 4))


def reshape(family):
    def case(name, x, shape, storages=F32):
        op = {"reshape": {"shape": shape}}
        family.case(name, op, {"x": x}, lambda x: x.reshape(shape), storages, exact=True)

    case("reshape_tokens", (2, 3, 4, 5), (2, 12, 5), STORAGES)
    case("reshape_flat", (2, 3, 4), (24,))
    case("reshape_scalar", (1, 1), ())
    case("reshape_u8", integers("u8", 2, 6), (3, 4))
    case("reshape_i32", integers("i32", 6), (1, 6, 1))


def lookup(family):
    def case(name, table, ids, storages=F32):
        inputs = {"table": table, "ids": torch.tensor(ids, dtype=torch.int32)}
        family.case(name, "embedding", inputs, lambda table, ids: F.embedding(ids, table), storages, exact=True)

    case("embedding", (9, 5), [[0, 8, 3], [3, 1, 0]], STORAGES)
    case("embedding_one", (4, 7), [2])
    case("embedding_scalar_id", (4, 3), 1)
    case("embedding_clips", (5, 2), [[[4], [0]], [[2], [2]]])


FLOATS = [
    0.0,
    -0.0,
    0.5,
    1.5,
    2.5,
    -0.5,
    -1.5,
    -3.0,
    0.1,
    1 / 3,
    127.49,
    254.5,
    254.6,
    255.4,
    255.5,
    256.0,
    300.0,
    -300.0,
]
FLOATS += [
    2049.0,
    4097.0,
    16777217.0,
    65504.0,
    65519.0,
    65520.0,
    1e9,
    -1e9,
    3e9,
    -3e9,
    2147483520.0,
    1e20,
    -1e20,
]
# f16's subnormals and what rounds to nothing; ties of f16 and of bf16.
FLOATS += [6e-8, 2.9e-8, -1e-5, 6.1e-5, 1e-40, 1.00048828125, 1.00146484375, 1.00390625, 1.01171875]
FLOATS += [float("inf"), float("-inf"), float("nan")]
CAST_INPUTS = {
    "u8": [0, 1, 2, 127, 128, 254, 255],
    "i32": [
        0,
        1,
        -1,
        255,
        256,
        -300,
        2049,
        4097,
        65519,
        65520,
        70000,
        16777217,
        16777219,
        -16777217,
        2**31 - 1,
        -(2**31),
    ],
}


def cast(x, target):
    dtype = DTYPES[target]
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        # PyTorch leaves a float outside the integers undefined, so rounding and saturation are spelt out, in f64.
        x = x.double().nan_to_num(nan=0.0) if x.is_floating_point() else x.long()
        x = x.round() if x.is_floating_point() else x
        return x.clamp(limits.min, limits.max).to(dtype)
    return x.to(dtype)


def casts(family):
    for source in DTYPES:
        x = torch.tensor(CAST_INPUTS.get(source, FLOATS), dtype=torch.float64).to(DTYPES[source])
        for target in DTYPES:
            family.add(f"cast_{source}_{target}", {"cast": target}, {"x": x}, [cast(x, target)], exact=True)
