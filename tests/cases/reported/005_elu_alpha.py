"""ELU with alpha != 1 (sibling of the CELU report). Source: https://github.com/apache/tvm/pull/14796"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return functional.elu(x, alpha=0.7)


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(4, 16) * 2,)
