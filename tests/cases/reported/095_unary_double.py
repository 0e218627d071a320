"""Accuracy of unary functions. Source: https://github.com/apache/tvm/issues/19562"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return (
            torch.exp(x),
            torch.sin(x),
            torch.cos(x),
            torch.tan(x),
            torch.tanh(x),
            torch.sigmoid(x),
            torch.erf(x),
            torch.sinh(x),
            torch.cosh(x),
            torch.asinh(x),
            torch.atan(x),
            functional.silu(x),
            functional.mish(x),
            functional.gelu(x),
        )


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.linspace(-4, 4, 41).reshape(1, 41),)
