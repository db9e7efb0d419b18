"""A product of matrices, in f32."""

import torch
from torch import nn

n = 96
depth = 128


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.rand(n, depth), torch.rand(depth, n)]


def get_init_inputs():
    return []
