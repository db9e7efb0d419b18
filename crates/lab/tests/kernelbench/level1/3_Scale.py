"""A factor, for kernels."""

import torch
from torch import nn

count = 1000


class Model(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


def get_inputs():
    return [torch.rand(count)]


def get_init_inputs():
    return [3.0]
