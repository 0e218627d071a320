"""torch.var_mean with default correction. Source: https://github.com/apache/tvm/pull/19512"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.var_mean(x, dim=1)


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(3, 5),)
