"""std over several axes and over everything. Source: https://github.com/apache/tvm/pull/19512"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return (torch.std(x), torch.var(x, dim=(0, 2)))


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(3, 4, 5),)
