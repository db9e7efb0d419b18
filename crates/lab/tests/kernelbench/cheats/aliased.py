"""Computes in place: the result is the input's memory."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.copy_(torch.softmax(x, dim=1))
