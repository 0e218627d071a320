"""sqrt of an integer tensor. Source: https://github.com/apache/tvm/issues/18443"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, i):
        return x / torch.sqrt(i)


def build():
    torch.manual_seed(0)
    return M().eval(), (
        torch.randn(2, 4),
        torch.tensor([[2, 3, 5, 7]]),
    )
