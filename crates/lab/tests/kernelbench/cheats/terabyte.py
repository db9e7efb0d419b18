"""Asks for more memory than there is."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.ones(1 << 40, dtype=torch.float64)
