"""Ops on single elements, and softmax."""

from functools import partial

import torch

from .fixture import F32, STORAGES, Family, f32
from .fused import ACTIVATIONS, activate


def build():
    family = Family("pointwise")
    activations(family)
    softmax(family)
    gates(family)
    binary(family)
    scale(family)
    blend(family)
    temporal_blend(family)
    return family


def activations(family):
    # Small, middle and huge values apart: beside a huge value a small one's error would not show.
    ranges = {
        "near_zero": torch.cat(
            [torch.linspace(-4, 4, 65, dtype=torch.float64), torch.tensor([1e-4, -1e-4, -0.0]).double()]
        ),
        "wide": torch.linspace(-30, 30, 121, dtype=torch.float64).reshape(11, 11),
        "huge": torch.tensor([-1e4, -1000.0, -100.0, 0.0, 100.0, 1000.0, 1e4], dtype=torch.float64),
    }
    for name in ACTIVATIONS:
        for label, x in ranges.items():
            storages = F32 if label == "wide" else STORAGES
            family.case(f"{name}_{label}", {"activate": name}, {"x": x}, partial(activate, name=name), storages)


def softmax(family):
    def case(name, x, storages=F32):
        family.case(name, "softmax", {"x": x}, lambda x: torch.softmax(x, dim=-1), storages)

    case("softmax", (3, 5, 7), STORAGES)
    case("softmax_long", (2, 131))
    case("softmax_one", (3, 1))
    case("softmax_vector", (9,))
    case("softmax_large", family.normal("softmax_large", shape=(4, 6)) * 100.0, STORAGES)
    case("softmax_shifted", family.normal("softmax_shifted", shape=(4, 6)) + 1000.0)
    hidden = family.normal("softmax_hidden", shape=(2, 5))
    hidden[0, 1] = hidden[1, 3:] = -torch.inf
    case("softmax_hidden", hidden)


def gate(x, name):
    value, gated = x.chunk(2, dim=-1)
    return value * activate(gated, name)


def gates(family):
    for name in ACTIVATIONS:
        storages = STORAGES if name == "gelu" else F32
        family.case(
            f"gate_{name}",
            {"gate": {"activation": name}},
            {"x": (2, 3, 10)},
            partial(gate, name=name),
            storages,
        )
    geglu = {"gate": {"activation": "gelu"}}
    family.case("gate_two_channels", geglu, {"x": (5, 2)}, partial(gate, name="gelu"))
    family.case("gate_odd_half", geglu, {"x": (2, 66)}, partial(gate, name="gelu"))


def binary(family):
    shapes = {
        "same": ((2, 3, 4, 5), (2, 3, 4, 5)),
        "channels": ((2, 3, 4, 5), (5,)),
        "channels_of_images": ((2, 3, 4, 5), (2, 1, 1, 5)),
        "one": ((2, 3, 5), (1,)),
        "scalar": ((2, 3, 5), ()),
        "scalars": ((), ()),
        "images": ((3, 4, 5), (3, 1, 1)),
        "positions": ((2, 3, 4, 5), (1, 3, 4, 1)),
        "inner": ((2, 3, 4, 5), (3, 1, 5)),
        "smaller_first": ((5,), (2, 3, 5)),
        "both_grow": ((3, 1, 5), (1, 4, 1)),
        "odd": ((37,), (37,)),
    }
    for op, function in (("add", torch.add), ("mul", torch.mul)):
        for name, (a, b) in shapes.items():
            storages = STORAGES if name in ("same", "channels_of_images") else F32
            family.case(f"{op}_{name}", op, {"a": a, "b": b}, function, storages)
        family.case(f"{op}_mixed", op, {"a": (2, 3, 5), "b": (5,)}, function, ("f16",), keep_f32=("b",))
        family.case(f"{op}_mixed_wide_first", op, {"a": (2, 3, 5), "b": (5,)}, function, ("bf16",), keep_f32=("a",))


def scale(family):
    def case(name, x, factor, offset, storages=F32):
        factor, offset = f32(factor), f32(offset)
        op = {"scale": {"factor": factor, "offset": offset}}
        family.case(name, op, {"x": x}, lambda x: torch.add(torch.tensor(offset).double(), x, alpha=factor), storages)

    case("scale", (2, 3, 5), 0.18215, 0.0)
    case("scale_with_offset", (3, 4, 7), 127.5, 127.5, STORAGES)
    case("scale_negative", (33,), -1.5, 0.25)
    case("scale_zero", (4,), 0.0, 3.0)
    case("scale_scalar", (), 2.0, -1.0)


def blend(family):
    def case(name, shape, alpha, storages=F32, keep_f32=()):
        def compute(a, b, alpha):
            return torch.lerp(b, a, alpha.reshape(-1, *(1 for _ in shape[1:])))

        inputs = {"a": shape, "b": shape, "alpha": torch.tensor(alpha, dtype=torch.float64)}
        family.case(name, "blend", inputs, compute, storages, keep_f32)

    case("blend", (2, 3, 4, 5), [0.3], STORAGES)
    case("blend_per_image", (3, 2, 3, 5), [0.1, 0.5, 0.9], STORAGES)
    case("blend_ends", (2, 7), [0.0, 1.0])
    case("blend_beyond", (2, 7), [1.5])
    case("blend_vector", (5,), [0.25])
    case("blend_f32_alpha", (2, 3, 5), [0.7], ("f16",), keep_f32=("alpha",))


def temporal_blend(family):
    def case(name, shape, strength, threshold=None, spread=0.1, storages=F32):
        current = family.normal(name, "current", shape=shape)
        previous = current + spread * family.normal(name, "difference", shape=shape)
        if threshold is not None:
            threshold = f32(threshold)

        def compute(current, previous, strength):
            weight = strength
            if threshold is not None:
                difference = (current - previous).abs().mean(dim=-1, keepdim=True)
                weight = strength * (1.0 - difference / threshold).clamp(min=0.0)
            return torch.lerp(current, previous, weight.expand_as(current))

        inputs = {
            "current": current,
            "previous": previous,
            "strength": torch.tensor([strength], dtype=torch.float64),
        }
        op = {"temporal_blend": {"threshold": threshold}}
        family.case(name, op, inputs, compute, storages, keep_f32=("strength",))

    case("temporal_blend", (2, 3, 4, 3), 0.6, storages=STORAGES)
    # The spread straddles the threshold: some pixels move, some do not.
    case("temporal_blend_threshold", (2, 4, 5, 3), 0.8, threshold=0.1, spread=0.12, storages=STORAGES)
    case("temporal_blend_all_moved", (1, 2, 3, 4), 0.9, threshold=1e-4)
    case("temporal_blend_off", (1, 2, 3, 3), 0.0, threshold=0.5)
    case("temporal_blend_full", (1, 2, 3, 3), 1.0)
