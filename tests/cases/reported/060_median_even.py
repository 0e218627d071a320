"""median of an even count (torch: lower of the two).

Source: no public report of this exact defect found; related: https://github.com/apache/tvm/pull/18626
"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.median(x, dim=1).values


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(3, 4),)
