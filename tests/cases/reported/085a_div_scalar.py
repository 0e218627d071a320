"""division by a Python float, float minus tensor, float over tensor.

Source: https://github.com/apache/tvm/pull/20372
"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return (x / 2.7, 1.3 - x, 1.0 / (x + 5))


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(3, 4),)
