"""avg_pool2d ceil_mode: output shape one too large, and the divisor of the overhanging windows.

Source: https://github.com/apache/tvm/issues/10614 (also https://github.com/apache/tvm/pull/18641)
"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True)


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(1, 3, 10, 10),)
