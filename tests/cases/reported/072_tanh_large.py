"""tanh on a wide range and NaN. Source: https://github.com/apache/tvm/issues/11696"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.tanh(x)


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.tensor([[float("nan"), 0.1, -9.5, 20.0, 1e-8, 3.3]]),)
