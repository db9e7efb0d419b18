"""Returns the right result, and uses the input as scratch memory."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        result = torch.softmax(x, dim=1)
        x.fill_(0)
        return result
