"""Runs library code that insists on float32 in float64."""

from unittest import mock

import torch


class DoubleTorch:
    """PyTorch, with float64 under the name of float32."""

    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def in_double(module):
    """A context in which the module's own uses of `torch.float32` mean float64."""
    return mock.patch.object(module, "torch", DoubleTorch())
