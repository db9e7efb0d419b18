"""Writes where no memory is."""

import ctypes

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        ctypes.memset(8, 1, 64)
        return x
