"""Rows of small numbers: every result is below the tolerances that are usual."""

import torch
from torch import nn

rows = 8
columns = 30000


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.rand(rows, columns)]


def get_init_inputs():
    return []
