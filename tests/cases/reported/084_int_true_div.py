"""true division of integer tensors.

Source: https://github.com/apache/tvm/pull/20373 (also https://github.com/apache/tvm/issues/10720)
"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        return (x / y, x / 2)


def build():
    torch.manual_seed(0)
    return M().eval(), (
        torch.tensor([[5, -7, 9, 1]]),
        torch.tensor([[2, 2, 4, 3]]),
    )
