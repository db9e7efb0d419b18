"""Matrix products."""

import torch
import torch.nn.functional as F

from .fixture import F32, STORAGES, Family
from .fused import (
    ACTIVATIONS,
    EVERY_STAGE,
    RESNET_CHAIN,
    activate,
    group,
    norm,
    norm_operands,
    run_norm,
    run_stages,
    stage_operands,
)


def linear(family, name, x, out, bias=False, gate=None, prologue=None, epilogue=(), storages=F32, keep_f32=()):
    output = (*x[:-1], out // 2 if gate else out)
    norm_shapes = norm_operands(prologue, x[-1]) if prologue else {}
    inputs = {
        "x": x,
        "weight": (out, x[-1]),
        **({"bias": (out,)} if bias else {}),
        **norm_shapes,
        **stage_operands(epilogue, output),
    }

    def compute(x, weight, *rest):
        rest = list(rest)
        offset = rest.pop(0) if bias else None
        learned, rest = rest[: len(norm_shapes)], rest[len(norm_shapes) :]
        if prologue:
            x = run_norm(x, prologue, learned)
        y = F.linear(x, weight, offset)
        if gate:
            value, gated = y.chunk(2, dim=-1)
            y = value * activate(gated, gate)
        return run_stages(y, epilogue, rest)

    op = {"bias": bias, "gate": gate, "prologue": prologue, "epilogue": epilogue}
    family.case(name, {"linear": op}, inputs, compute, storages, keep_f32)


def matmul(family, name, a, b, transpose_a=False, transpose_b=False, storages=F32):
    def compute(a, b):
        return torch.matmul(a.mT if transpose_a else a, b.mT if transpose_b else b)

    op = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    family.case(name, {"mat_mul": op}, {"a": a, "b": b}, compute, storages)


def build():
    family = Family("linear")
    linear(family, "bias", (3, 5, 7), 9, bias=True, storages=STORAGES)
    linear(family, "no_bias", (2, 3, 33), 17)
    linear(family, "one_row", (1, 70), 35, bias=True)
    linear(family, "vector", (5,), 4, bias=True)
    linear(family, "one_by_one", (1, 1), 1, bias=True)
    linear(family, "many_rows", (67, 16), 24, bias=True)
    linear(family, "images", (2, 3, 4, 5), 6, bias=True)
    linear(family, "f32_weights", (3, 8), 6, bias=True, storages=("bf16",), keep_f32=("weight", "bias"))
    for name in ACTIVATIONS:
        storages = STORAGES if name == "gelu" else F32
        linear(family, f"gate_{name}", (2, 3, 6), 10, bias=True, gate=name, storages=storages)
    linear(family, "gate_no_bias", (5, 7), 66, gate="gelu")
    linear(family, "prologue_layer_norm", (2, 5, 12), 7, bias=True, prologue=norm("layer"), storages=STORAGES)
    linear(family, "prologue_layer_norm_plain", (2, 3, 9), 5, prologue=norm("layer", epsilon=1e-6, affine="none"))
    linear(family, "prologue_rms_norm", (2, 3, 9), 5, prologue=norm("rms", epsilon=1e-6, affine="scale"))
    linear(family, "prologue_group_norm", (2, 5, 8), 6, bias=True, prologue=norm(group(4), epsilon=1e-6))
    linear(
        family,
        "prologue_and_gate",
        (2, 4, 10),
        12,
        bias=True,
        gate="gelu",
        prologue=norm("layer"),
        storages=STORAGES,
    )
    for name, stages in EVERY_STAGE.items():
        storages = STORAGES if name.startswith("blend") else F32
        linear(family, f"epilogue_{name}", (2, 3, 5), 7, bias=True, epilogue=stages, storages=storages)
    linear(family, "epilogue_chain", (2, 5, 6), 9, bias=True, epilogue=RESNET_CHAIN, storages=STORAGES)
    linear(family, "epilogue_channels_of_rows", (4, 5), 7, bias=True, epilogue=("add_channels",))
    residual_blend = ("add", {"blend": {"accumulator_first": False}})
    linear(family, "gate_and_epilogue", (2, 3, 6), 10, bias=True, gate="gelu", epilogue=residual_blend)
    linear(
        family,
        "everything",
        (2, 4, 8),
        12,
        bias=True,
        gate="silu",
        prologue=norm("layer"),
        epilogue=RESNET_CHAIN,
        storages=STORAGES,
    )

    for transpose_a in (False, True):
        for transpose_b in (False, True):
            for batch in ((), (3,), (2, 3)):
                a = (*batch, 7, 5) if transpose_a else (*batch, 5, 7)
                b = (*batch, 9, 7) if transpose_b else (*batch, 7, 9)
                name = f"matmul_{'t' if transpose_a else 'n'}{'t' if transpose_b else 'n'}_batch_{len(batch)}"
                storages = STORAGES if batch == (3,) else F32
                matmul(family, name, a, b, transpose_a, transpose_b, storages)
    matmul(family, "matmul_shared_b", (2, 3, 5, 7), (7, 4))
    matmul(family, "matmul_shared_b_transposed", (3, 7, 5), (4, 7), transpose_a=True, transpose_b=True)
    matmul(family, "matmul_long_inner", (2, 3, 133), (2, 133, 5))
    matmul(family, "matmul_one_element", (1, 1), (1, 1))
    return family
