"""nearest-exact. Source: https://github.com/apache/tvm/issues/19500"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return functional.interpolate(x, size=(7, 5), mode="nearest-exact")


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.arange(16.0).reshape(1, 1, 4, 4),)
