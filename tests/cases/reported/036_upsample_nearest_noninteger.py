"""nearest upsampling by a non-integer factor. Source: https://github.com/apache/tvm/issues/19570"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return functional.interpolate(x, scale_factor=2.5, mode="nearest")


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.arange(9.0).reshape(1, 1, 3, 3),)
