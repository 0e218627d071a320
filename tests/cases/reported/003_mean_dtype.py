"""Tensor.mean(dtype=float64) ignored: result keeps the input type.

Source: https://github.com/apache/tvm/issues/20230
"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x.mean(dim=1, dtype=torch.float64)


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(3, 64) * 100 + 1e4,)
