"""Bare LayerNorm through from_fx: weight, bias and eps passed by keyword are dropped.

Source: no public report of this exact defect found; related: https://github.com/apache/tvm/pull/17841
"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(8))
        self.b = nn.Parameter(torch.randn(8))

    def forward(self, x):
        return functional.layer_norm(x, (8,), weight=self.w, bias=self.b, eps=0.1)


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(3, 8),)
