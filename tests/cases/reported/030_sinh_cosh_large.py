"""sinh/cosh overflow near 89 although the result is representable.

Source: https://github.com/apache/tvm/issues/19559
"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return (torch.sinh(x), torch.cosh(x))


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.tensor([[88.85, 89.0, 89.2, -88.95, 1.0]]),)
