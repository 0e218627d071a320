"""SELU constants / decomposition.

Source: no public report of this exact defect found; related: https://github.com/apache/tvm/pull/17738 and
https://github.com/apache/tvm/pull/17797
"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return functional.selu(x)


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(4, 16) * 2,)
