"""max_pool2d with explicit stride, padding, dilation, ceil_mode. Source: https://github.com/apache/tvm/issues/15281"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return functional.max_pool2d(x, 3, 2, 1, 1, True)


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(1, 2, 8, 7),)
