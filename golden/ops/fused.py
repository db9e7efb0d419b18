"""What convolutions and products do on the way in and out: activations, norms, epilogue stages."""

import torch
import torch.nn.functional as F

from .fixture import f32

ACTIVATIONS = {
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


def activate(x, name):
    return x if name is None else ACTIVATIONS[name](x)


def group(groups, frames=1):
    return {"group": {"groups": groups, "frames": frames}}


def norm(kind, epsilon=1e-5, affine="scale_shift", activation=None):
    """The norm's attributes, as the op has them."""
    return {"kind": kind, "epsilon": f32(epsilon), "affine": affine, "activation": activation}


def norm_operands(attributes, channels):
    names = {"none": (), "scale": ("scale",), "scale_shift": ("scale", "shift")}[attributes["affine"]]
    return dict.fromkeys(names, (channels,))


def run_norm(x, attributes, operands):
    """A norm of `[images, .., C]`."""
    scale, shift = (*operands, None, None)[:2]
    kind, epsilon, channels = attributes["kind"], attributes["epsilon"], x.shape[-1]
    if kind == "layer":
        y = F.layer_norm(x, (channels,), scale, shift, epsilon)
    elif kind == "rms":
        y = F.rms_norm(x, (channels,), scale, epsilon)
        y = y if shift is None else y + shift
    else:
        clips = x.unflatten(0, (-1, kind["group"]["frames"])).movedim(-1, 1)
        y = F.group_norm(clips, kind["group"]["groups"], scale, shift, epsilon)
        y = y.movedim(1, -1).flatten(0, 1)
    return activate(y, attributes["activation"])


def stage_name(stage):
    return stage if isinstance(stage, str) else next(iter(stage))


def stage_operands(stages, output, channel_operand=None):
    """The shapes of an epilogue's operands, by name."""
    per_image = (output[0], *(1 for _ in output[1:-1]), output[-1])
    shapes = {}
    for i, stage in enumerate(stages):
        name = stage_name(stage)
        if name == "add_channels":
            shapes[f"{i}_channels"] = channel_operand or per_image
        elif name in ("add", "mul", "blend"):
            shapes[f"{i}_{name}"] = output
        if name == "blend":
            shapes[f"{i}_alpha"] = torch.tensor([0.3], dtype=torch.float64)
    return shapes


def run_stages(y, stages, operands):
    operands = iter(operands)
    for stage in stages:
        match stage_name(stage):
            case "activate":
                y = activate(y, stage["activate"])
            case "scale":
                y = y * stage["scale"]
            case "add_channels" | "add":
                y = y + next(operands)
            case "mul":
                y = y * next(operands)
            case "blend":
                other, alpha = next(operands), next(operands)
                first, second = (y, other) if stage["blend"]["accumulator_first"] else (other, y)
                y = torch.lerp(second, first, alpha)
            case unknown:
                raise ValueError(unknown)
    return y


EVERY_STAGE = {
    "activate": ({"activate": "silu"},),
    "scale": ({"scale": 0.75},),
    "add_channels": ("add_channels",),
    "add": ("add",),
    "mul": ("mul",),
    "blend_first": ({"blend": {"accumulator_first": True}},),
    "blend_second": ({"blend": {"accumulator_first": False}},),
}
RESNET_CHAIN = ("add_channels", {"activate": "silu"}, "add")
