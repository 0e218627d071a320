"""x[:, rows, cols] read (zipped advanced indices after a slice).

Source: https://github.com/apache/tvm/pull/19732 (its comment says outer product is not equivalent; fixed only without
slices)
"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x[:, torch.tensor([0, 2, 1]), torch.tensor([1, 1, 3])]


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(2, 4, 5),)
