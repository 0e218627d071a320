"""clip-based activations. Source: https://github.com/apache/tvm/issues/15008"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return (
            functional.hardswish(x),
            functional.hardsigmoid(x),
            functional.relu6(x),
            functional.hardtanh(x, -0.3, 0.7),
            functional.leaky_relu(x, 0.3),
        )


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(3, 16) * 3,)
