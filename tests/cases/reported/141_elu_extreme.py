"""ELU with a huge alpha. Source: https://github.com/apache/tvm/issues/15396"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return functional.elu(x, alpha=-1.8574e30)


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(2, 12),)
