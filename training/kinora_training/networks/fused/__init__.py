"""Layers in the layout `[..., channels]`, with as few passes over memory as possible, and their gradients.

A training step of networks this narrow is memory-bound: PyTorch spent a fifth of it in matrix products and
convolutions, the rest in norms, sums of gradients, gates, short attention, and moving data between layouts. Here a
bias, a residual and a vector per frame are added where the sum is read next, and their gradients are summed where the
sum's gradient is made. On a GPU every layer is a set of Triton kernels; elsewhere it is its `plain_` function of
PyTorch operations, which defines what it computes and which check_fused.py compares the kernels with.
"""

from .add_norm import add_norm, plain_add_norm
from .frame_attention import frame_attention, plain_frame_attention
from .gate import gate, plain_gate
from .group_norm import group_norm, plain_group_norm
from .mix import mix, plain_mix

__all__ = [
    "add_norm",
    "frame_attention",
    "gate",
    "group_norm",
    "mix",
    "plain_add_norm",
    "plain_frame_attention",
    "plain_gate",
    "plain_group_norm",
    "plain_mix",
]
