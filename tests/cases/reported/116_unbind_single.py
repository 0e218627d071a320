"""unbind producing one element. Source: https://github.com/apache/tvm/issues/18338"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.unbind(x, 0)[0] + 1


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(1, 3),)
