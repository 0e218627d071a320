"""x[mask] with boolean mask. Source: https://github.com/apache/tvm/issues/15588"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, m):
        return x * m + torch.where(m, x, -x)


def build():
    torch.manual_seed(0)
    return M().eval(), (
        torch.randn(3, 4),
        torch.rand(3, 4) > 0.5,
    )
