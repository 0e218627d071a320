"""Scalar base, tensor exponent; integer powers. Source: https://github.com/apache/tvm/pull/17424"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return (2.0**x, x.abs() ** x, torch.square(x))


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(2, 5),)
