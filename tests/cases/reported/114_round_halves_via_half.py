"""round(x) of exact halves at larger magnitude (half-to-even). Source: https://github.com/apache/tvm/issues/20231"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return (torch.round(x), torch.trunc(x), torch.ceil(x), torch.floor(x))


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.tensor([[0.5, 1.5, 2.5, 3.5, -0.5, -2.5, 4.5, 1e6 + 0.5]]),)
