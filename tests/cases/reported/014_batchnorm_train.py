"""BatchNorm2d in training mode (batch statistics). Source: https://github.com/apache/tvm/pull/18518"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(3, 4, 3)
        self.bn = nn.BatchNorm2d(4)

    def forward(self, x):
        return self.bn(self.c(x))


def build():
    torch.manual_seed(0)
    m = M()
    nn.init.normal_(m.bn.weight)
    nn.init.normal_(m.bn.bias)
    return m, (torch.randn(2, 3, 6, 6) * 2 + 1,)
