"""avg_pool2d divisor_override ignored. Source: https://github.com/apache/tvm/issues/14795"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return functional.avg_pool2d(x, 2, divisor_override=3)


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(1, 2, 6, 6),)
