"""The gradients of attention, by PyTorch's automatic differentiation of the attention of `attention.py`."""

import torch

from . import attention
from .fixture import DTYPES, F32, STORAGES, Family, f32, storage_name

causal, sliding_window = attention.causal, attention.sliding_window


class Recorder:
    """Takes the place of a family, to get at an attention's operands and what computes it."""

    def __init__(self, family):
        self.normal = family.normal

    def case(self, name, op, inputs, compute, storages, keep_f32):
        self.recorded = name, op, inputs, compute, storages, keep_f32


def backward(family, *arguments, storages=F32, **settings):
    """As `attention.attention`, which makes the operands, its results and the gradient of the first."""
    recorder = Recorder(family)
    attention.attention(recorder, *arguments, log_sum_exp=True, storages=storages, **settings)
    name, op, inputs, compute, storages, keep_f32 = recorder.recorded
    values = {
        key: value if isinstance(value, torch.Tensor) else family.normal(name, key, shape=value)
        for key, value in inputs.items()
    }
    for storage in storages:
        dtype = DTYPES[storage]
        stored = {
            key: value.to(DTYPES["f32"] if key in keep_f32 else dtype) if value.is_floating_point() else value
            for key, value in values.items()
        }
        operands = [x.double() if x.is_floating_point() else x for x in stored.values()]
        differentiated = [operand.requires_grad_() for operand in operands[:3]]
        y, sums = compute(*differentiated, *operands[3:])
        dy = family.normal(name, "dy", shape=y.shape).to(dtype)
        gradients = torch.autograd.grad((y * dy.double()).sum(), differentiated)
        # Of a row of packed operands, the channels of the heads.
        forward = op["attention"]
        width = forward["heads"] * forward["head_dim"]
        results = [
            gradient[..., offset : offset + width]
            for gradient, offset in zip(gradients, forward["offsets"], strict=True)
        ]
        stored |= {"y": y.detach().to(dtype), "log_sum_exp": sums.detach().to(torch.float32), "dy": dy}
        family.add(storage_name(name, storage), {"attention_backward": {"forward": forward}}, stored, results)


def build():
    family = Family("attention_backward")
    backward(family, "self", (2, 6), (2, 6), 2, 8, storages=STORAGES)
    backward(family, "cross", (2, 5), (2, 7), 3, 8)
    for head_dim in (1, 7, 16, 40, 64, 80, 96, 128, 160):
        storages = STORAGES if head_dim == 64 else F32
        backward(family, f"head_size_{head_dim}", (1, 2), (1, 3), 1, head_dim, storages=storages)
    backward(family, "one_query", (2, 1), (2, 9), 2, 4)
    backward(family, "context_shared_by_frames", (6, 4), (2, 5), 2, 8)
    backward(family, "context_shared_by_all", (3, 4), (1, 77), 1, 4)
    backward(family, "scale", (1, 4), (1, 5), 2, 4, scale=f32(0.9))
    backward(family, "packed", (2, 5), (2, 5), 2, 4, offsets=(0, 8, 16), channels=(24, 24, 24), storages=("f32", "f16"))
    backward(family, "packed_key_value", (2, 4), (2, 6), 2, 4, offsets=(0, 3, 11), channels=(8, 20, 20))
    backward(family, "long", (1, 40), (1, 70), 1, 8, storages=("f32", "f16"))
    masked(family)
    over_frames(family)
    between_boundaries(family)
    return family


def masked(family):
    backward(family, "causal", (2, 7), (2, 7), 2, 8, mask=causal(0), storages=("f32", "f16"))
    backward(family, "causal_ends_aligned", (1, 3), (1, 8), 2, 4, mask=causal(5))
    # The first query sees no key.
    backward(family, "causal_negative", (1, 5), (1, 5), 1, 4, mask=causal(-1))
    backward(family, "causal_long", (1, 66), (1, 70), 1, 4, mask=causal(64))
    backward(family, "window", (2, 9), (2, 9), 2, 8, mask=sliding_window(0, 3))
    backward(family, "window_long", (1, 66), (1, 90), 1, 4, mask=sliding_window(20, 9))

    def boolean(name, *shape):
        return (family.normal(name, "mask", shape=shape) > 0.0).to(torch.uint8)

    mask = boolean("boolean", 2, 1, 4, 6)
    mask[0, 0, 1] = 0
    mask[1, 0, 3] = 0
    backward(family, "boolean", (2, 4), (2, 6), 2, 8, mask="boolean", mask_tensor=mask)
    per_head = boolean("boolean_per_head", 2, 3, 3, 5)
    backward(family, "boolean_per_head", (2, 3), (2, 5), 3, 4, mask="boolean", mask_tensor=per_head)

    def additive(name, *shape):
        return family.normal(name, "mask", shape=shape) * 2.0

    bias = additive("additive", 2, 1, 4, 6)
    backward(family, "additive", (2, 4), (2, 6), 2, 8, mask="additive", mask_tensor=bias, storages=("f32", "bf16"))
    hidden = additive("additive_hidden", 1, 2, 4, 6)
    hidden[0, 0, 0, 2:] = -torch.inf
    hidden[0, 1, 1, 0] = -torch.inf
    hidden[0, 0, 3] = -torch.inf
    backward(family, "additive_hidden", (2, 4), (1, 6), 2, 8, mask="additive", mask_tensor=hidden)

    backward(family, "key_lengths", (3, 4), (3, 6), 2, 8, key_lengths=[6, 2, 3])
    backward(family, "key_lengths_zero", (2, 3), (2, 5), 2, 4, key_lengths=[0, 5])
    backward(family, "key_lengths_shared_context", (4, 3), (2, 7), 1, 4, key_lengths=[2, 5])
    backward(family, "key_lengths_causal", (2, 5), (2, 5), 1, 4, mask=causal(0), key_lengths=[5, 2])


def over_frames(family):
    backward(family, "frames", (6, 2), (6, 2), 2, 8, frames=3, storages=("f32", "f16"))
    backward(family, "frames_more_keys", (4, 3), (10, 3), 2, 4, frames=2)
    backward(family, "frames_causal", (8, 3), (8, 3), 2, 4, mask=causal(0), frames=4)
    backward(family, "frames_key_lengths", (6, 2), (8, 2), 2, 4, frames=3, key_lengths=[4, 2])
    mask = (family.normal("frames_boolean", "mask", shape=(2, 1, 3, 4)) > 0.0).to(torch.uint8)
    mask[1, 0, 2] = 0
    backward(family, "frames_boolean", (6, 3), (8, 3), 2, 4, mask="boolean", mask_tensor=mask, frames=3)


def between_boundaries(family):
    even = ((0, 3, 4, 9), (0, 3, 4, 9))
    # A sequence without keys, one without queries, and queries and keys that belong to none.
    uneven = ((1, 4, 5, 5, 8), (0, 2, 2, 6, 9))
    backward(family, "sequences", (1, 9), (1, 9), 2, 8, boundaries=even, storages=("f32", "f16"))
    backward(family, "sequences_uneven", (2, 9), (2, 11), 1, 4, boundaries=uneven)
    backward(family, "sequences_causal", (1, 9), (1, 9), 1, 8, mask=causal(0), boundaries=even)
    long = ((0, 30, 70), (3, 40, 80))
    backward(family, "sequences_long", (1, 70), (1, 80), 1, 4, mask=causal(5), boundaries=long)
