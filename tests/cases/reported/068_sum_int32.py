"""sum of int32 promotes to int64 (overflow otherwise). Source: https://github.com/apache/tvm/pull/17809"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x.sum(1)


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.full((2, 5), 2**30, dtype=torch.int32),)
