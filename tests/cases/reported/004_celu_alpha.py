"""CELU formula wrong (exp(x)/alpha-1 in place of exp(x/alpha)-1). Source: https://github.com/apache/tvm/pull/14796"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return functional.celu(x, alpha=2.0)


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(4, 16) * 2,)
