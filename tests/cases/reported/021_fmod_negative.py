"""fmod on negative operands keeps the sign of the dividend. Source: https://github.com/apache/tvm/pull/17882"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        return torch.fmod(x, y)


def build():
    torch.manual_seed(0)
    return M().eval(), (
        torch.tensor([[-5.5, 5.5, -3.0, 7.25, -0.5, 4.0]]),
        torch.tensor([[3.0, -3.0, 2.0, -2.5, 3.0, -1.5]]),
    )
