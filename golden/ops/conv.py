"""Convolutions."""

import torch
import torch.nn.functional as F

from .fixture import F32, STORAGES, Family
from .fused import (
    ACTIVATIONS,
    EVERY_STAGE,
    RESNET_CHAIN,
    group,
    norm,
    norm_operands,
    run_norm,
    run_stages,
    stage_operands,
)
from .layouts import clips_first, clips_last


def same(kernel):
    """The symmetric padding that keeps the extents of an odd window."""
    return tuple((k // 2, k // 2) for k in kernel)


def conv(
    family,
    name,
    x,
    out,
    kernel,
    stride=(1, 1, 1),
    padding=((0, 0), (0, 0), (0, 0)),
    dilation=(1, 1, 1),
    groups=1,
    frames=1,
    subpixel=False,
    bias=False,
    prologue=None,
    epilogue=(),
    channel_operand=None,
    storages=F32,
    keep_f32=(),
):
    extents = [
        (extent + sum(pad) - d * (k - 1) - 1) // s + 1
        for extent, k, s, pad, d in zip((frames, *x[1:3]), kernel, stride, padding, dilation, strict=True)
    ]
    output = (x[0] // frames * extents[0], *extents[1:], out)
    if subpixel:
        output = (x[0], 2 * x[1], 2 * x[2], out)
    norm_shapes = norm_operands(prologue, x[-1]) if prologue else {}
    inputs = {
        "x": x,
        "weight": (4 * out if subpixel else out, *kernel, x[-1] // groups),
        **({"bias": (out,)} if bias else {}),
        **norm_shapes,
        **stage_operands(epilogue, output, channel_operand),
    }

    def compute(x, weight, *rest):
        rest = list(rest)
        offset = rest.pop(0) if bias else None
        learned, rest = rest[: len(norm_shapes)], rest[len(norm_shapes) :]
        if prologue:
            x = run_norm(x, prologue, learned)
        pads = [amount for pad in reversed(padding) for amount in pad]
        y = F.conv3d(
            F.pad(clips_first(x, frames), pads),
            weight.permute(0, 4, 1, 2, 3),
            offset.repeat(4) if subpixel and bias else offset,
            stride=stride,
            dilation=dilation,
            groups=groups,
        )
        y = clips_last(shuffled(y, out) if subpixel else y)
        assert y.shape == output
        return run_stages(y, epilogue, rest)

    op = {
        "kernel": kernel,
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "frames": frames,
        "bias": bias,
        "prologue": prologue,
        "epilogue": epilogue,
        **({"subpixel": True} if subpixel else {}),
    }
    family.case(name, {"conv": op}, inputs, compute, storages, keep_f32)


def shuffled(y, out):
    """The pixels of a sub-pixel convolution in their places. Its channels are those of the upper left pixels, the lower
    left ones, and so on. A window more than there are pixels belongs to the squares' first or last pixels."""
    height, width = y.shape[-2] - 1, y.shape[-1] - 1
    blocks = y.squeeze(2).unflatten(1, (4, out))
    corner = {
        (line, column): blocks[:, 2 * column + line, :, line : line + height, column : column + width]
        for line in range(2)
        for column in range(2)
    }
    # `pixel_shuffle` takes a channel's four pixels one after another, line by line.
    pixels = torch.stack([corner[0, 0], corner[0, 1], corner[1, 0], corner[1, 1]], dim=2)
    return F.pixel_shuffle(pixels.flatten(1, 2), 2).unsqueeze(2)


def build():
    family = Family("conv")
    spatial(family)
    subpixels(family)
    temporal(family)
    fused(family)
    return family


def spatial(family):
    one, three = (1, 1, 1), (1, 3, 3)
    pad = same(three)
    conv(family, "1x1", (2, 3, 5, 7), 5, one, bias=True, storages=STORAGES)
    conv(family, "1x1_no_bias", (1, 4, 3, 8), 16, one)
    conv(family, "1x1_stride_2", (2, 5, 4, 3), 4, one, stride=(1, 2, 2))
    conv(family, "1x1_many_channels", (1, 3, 3, 70), 33, one, bias=True)
    conv(family, "3x3", (2, 5, 7, 5), 7, three, padding=pad, bias=True, storages=STORAGES)
    conv(family, "3x3_no_bias", (1, 6, 6, 4), 8, three, padding=pad)
    conv(family, "3x3_no_padding", (1, 5, 6, 3), 4, three, bias=True)
    conv(family, "3x3_33_channels", (1, 4, 5, 33), 17, three, padding=pad, bias=True)
    conv(family, "3x3_wide", (1, 3, 35, 3), 5, three, padding=pad)
    conv(
        family,
        "3x3_stride_2",
        (2, 7, 5, 4),
        6,
        three,
        stride=(1, 2, 2),
        padding=pad,
        bias=True,
        storages=STORAGES,
    )
    conv(family, "3x3_stride_2_even", (1, 6, 8, 4), 5, three, stride=(1, 2, 2), padding=pad)
    # The autoencoder's downsampling pads on the far sides only.
    far = ((0, 0), (0, 1), (0, 1))
    conv(family, "3x3_stride_2_padded_far", (1, 6, 8, 5), 4, three, stride=(1, 2, 2), padding=far, bias=True)
    conv(family, "3x3_padded_unevenly", (1, 4, 5, 3), 4, three, padding=((0, 0), (2, 0), (1, 3)), bias=True)
    conv(
        family,
        "3x3_dilation_2",
        (1, 7, 6, 3),
        4,
        three,
        padding=((0, 0), (2, 2), (2, 2)),
        dilation=(1, 2, 2),
        bias=True,
    )
    conv(family, "3x3_dilation_2_stride_2", (1, 7, 8, 3), 4, three, stride=(1, 2, 2), dilation=(1, 2, 2))
    conv(family, "3x3_groups_2", (2, 4, 5, 6), 10, three, padding=pad, groups=2, bias=True, storages=STORAGES)
    conv(family, "1x1_groups_3", (1, 3, 4, 9), 6, one, groups=3)
    conv(
        family,
        "3x3_depthwise",
        (1, 5, 6, 33),
        33,
        three,
        padding=pad,
        groups=33,
        bias=True,
        storages=STORAGES,
    )
    conv(family, "3x3_depthwise_multiplier", (1, 4, 4, 5), 10, three, padding=pad, groups=5)
    conv(family, "3x3_on_one_pixel", (2, 1, 1, 5), 7, three, padding=pad, bias=True)
    conv(family, "1x1_on_one_pixel", (1, 1, 1, 1), 1, one)
    conv(family, "1x7", (1, 3, 9, 3), 4, (1, 1, 7), padding=same((1, 1, 7)), bias=True)
    conv(family, "7x5_strides_differ", (1, 9, 8, 3), 4, (1, 7, 5), stride=(1, 3, 2), padding=same((1, 7, 5)))
    conv(family, "2x2_stride_2", (1, 6, 5, 4), 5, (1, 2, 2), stride=(1, 2, 2), bias=True)
    conv(
        family,
        "3x3_f32_weights",
        (1, 4, 4, 5),
        7,
        three,
        padding=pad,
        bias=True,
        storages=("f16",),
        keep_f32=("weight", "bias"),
    )
    # The first and the last convolution of an autoencoder, and those between.
    half = ("f16", "bf16")
    conv(family, "3x3_of_an_image", (1, 5, 21, 3), 70, three, padding=pad, bias=True, storages=half)
    conv(family, "3x3_of_a_latent", (2, 9, 7, 4), 72, three, stride=(1, 2, 2), padding=pad, storages=("f16",))
    relu = ("add", {"activate": "relu"})
    conv(family, "3x3_64_channels", (1, 17, 9, 64), 64, three, padding=pad, bias=True, epilogue=relu, storages=("f16",))
    conv(family, "3x3_to_an_image", (1, 18, 11, 72), 3, three, padding=pad, bias=True, epilogue=relu, storages=half)
    conv(family, "3x3_many_images", (300, 1, 2, 8), 16, three, padding=pad, storages=half)


def subpixels(family):
    two, one = (1, 2, 2), ((0, 0), (1, 1), (1, 1))
    conv(family, "subpixel", (2, 4, 5, 6), 7, two, padding=one, subpixel=True, bias=True, storages=STORAGES)
    conv(family, "subpixel_no_bias", (1, 1, 3, 9), 16, two, padding=one, subpixel=True)
    conv(family, "subpixel_stages", (2, 3, 4, 8), 10, two, padding=one, subpixel=True, bias=True, epilogue=RESNET_CHAIN)


def temporal(family):
    three = (3, 1, 1)
    conv(
        family,
        "temporal",
        (6, 2, 3, 5),
        7,
        three,
        padding=same(three),
        frames=3,
        bias=True,
        storages=STORAGES,
    )
    conv(family, "temporal_one_clip", (5, 3, 2, 4), 4, three, padding=same(three), frames=5)
    conv(family, "temporal_one_frame", (3, 2, 2, 4), 5, three, padding=same(three), frames=1, bias=True)
    conv(family, "temporal_no_padding", (8, 2, 2, 3), 4, three, frames=4, bias=True)
    causal = ((2, 0), (0, 0), (0, 0))
    conv(
        family,
        "temporal_causal",
        (8, 2, 2, 5),
        3,
        three,
        padding=causal,
        frames=4,
        bias=True,
        storages=STORAGES,
    )
    conv(family, "temporal_stride_2", (10, 2, 2, 3), 4, three, stride=(2, 1, 1), padding=same(three), frames=5)
    conv(
        family,
        "temporal_dilation_2",
        (6, 1, 2, 3),
        4,
        three,
        padding=((2, 2), (0, 0), (0, 0)),
        dilation=(2, 1, 1),
        frames=6,
    )
    cube = (3, 3, 3)
    conv(family, "3x3x3", (6, 4, 3, 5), 4, cube, padding=same(cube), frames=3, bias=True, storages=STORAGES)
    conv(
        family,
        "3x3x3_strides",
        (8, 5, 6, 3),
        4,
        cube,
        stride=(2, 2, 3),
        padding=same(cube),
        frames=4,
        bias=True,
    )
    conv(family, "3x3x3_causal", (6, 3, 4, 3), 2, cube, padding=((2, 0), (1, 1), (1, 1)), frames=3)
    conv(family, "3x3x3_groups", (4, 3, 3, 4), 6, cube, padding=same(cube), groups=2, frames=2, bias=True)


def fused(family):
    three = (1, 3, 3)
    pad = same(three)
    for name, stages in EVERY_STAGE.items():
        conv(family, f"epilogue_{name}", (2, 4, 3, 5), 7, three, padding=pad, bias=True, epilogue=stages)
    for name in ACTIVATIONS:
        conv(family, f"epilogue_{name}", (1, 3, 3, 3), 5, (1, 1, 1), epilogue=({"activate": name},))
    shared = (1, 1, 1, 7)
    conv(
        family,
        "epilogue_shared_channels",
        (2, 3, 3, 5),
        7,
        three,
        padding=pad,
        epilogue=("add_channels",),
        channel_operand=shared,
    )
    conv(
        family,
        "epilogue_channel_vector",
        (2, 3, 3, 5),
        7,
        three,
        padding=pad,
        epilogue=("add_channels",),
        channel_operand=(7,),
    )
    conv(
        family,
        "epilogue_chain",
        (2, 5, 4, 5),
        7,
        three,
        padding=pad,
        bias=True,
        epilogue=RESNET_CHAIN,
        storages=STORAGES,
    )
    conv(family, "epilogue_chain_pointwise", (2, 3, 4, 5), 33, (1, 1, 1), bias=True, epilogue=RESNET_CHAIN)
    conv(
        family,
        "epilogue_chain_temporal",
        (6, 2, 3, 5),
        7,
        (3, 1, 1),
        padding=same((3, 1, 1)),
        frames=3,
        bias=True,
        epilogue=RESNET_CHAIN,
    )
    every = ("add", {"scale": 0.5}, "mul", {"activate": "gelu"}, {"blend": {"accumulator_first": True}})
    conv(family, "epilogue_long_chain", (1, 3, 4, 4), 5, three, padding=pad, bias=True, epilogue=every)

    silu = norm(group(2), activation="silu")
    conv(family, "prologue", (2, 4, 5, 6), 5, three, padding=pad, bias=True, prologue=silu, storages=STORAGES)
    conv(family, "prologue_pointwise", (2, 3, 4, 6), 5, (1, 1, 1), bias=True, prologue=norm(group(3)))
    conv(
        family,
        "prologue_stride_2",
        (1, 5, 5, 4),
        3,
        three,
        stride=(1, 2, 2),
        padding=pad,
        prologue=norm(group(4), activation="silu"),
    )
    over_frames = norm(group(2, frames=3), epsilon=1e-6, activation="silu")
    conv(
        family,
        "prologue_over_frames",
        (6, 2, 3, 4),
        5,
        (3, 1, 1),
        padding=same((3, 1, 1)),
        frames=3,
        bias=True,
        prologue=over_frames,
    )
    conv(
        family,
        "prologue_no_affine",
        (1, 3, 4, 4),
        5,
        three,
        padding=pad,
        prologue=norm(group(2), affine="none", activation="silu"),
    )
    conv(family, "prologue_layer_norm", (1, 3, 4, 7), 5, three, padding=pad, prologue=norm("layer"))
    conv(
        family,
        "resnet_half",
        (2, 4, 4, 6),
        6,
        three,
        padding=pad,
        bias=True,
        prologue=silu,
        epilogue=RESNET_CHAIN,
        storages=STORAGES,
    )
