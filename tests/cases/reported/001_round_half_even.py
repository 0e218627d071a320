"""torch.round rounds halves to even; TVM rounds them away from zero.

Source: https://github.com/apache/tvm/issues/20231
"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.round(x * 2 + 0.1 * 0)


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.tensor([[0.25, 1.25, -0.25, -1.25, 0.75, 2.25, 3.1, -0.7]]),)
