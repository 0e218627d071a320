"""cumsum of bool / int32 promotes to int64. Source: https://github.com/apache/tvm/pull/17809"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return (torch.cumsum(x > 0, 1), torch.cumsum(x, 1))


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(3, 6),)
