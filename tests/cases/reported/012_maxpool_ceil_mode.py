"""max_pool2d(3, padding=1, ceil_mode=True) on 5x3. Source: https://github.com/apache/tvm/issues/15281"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return functional.max_pool2d(x, kernel_size=3, padding=1, ceil_mode=True)


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(2, 5, 5, 3),)
