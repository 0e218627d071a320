"""avg_pool2d count_include_pad lost (PyTorch default True, Relax False).

Source: https://github.com/apache/tvm/pull/18487
"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return functional.avg_pool2d(x, 3, 2, 1)


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(1, 3, 9, 9),)
