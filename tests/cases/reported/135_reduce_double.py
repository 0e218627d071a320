"""sum / mean / prod / var / max over axes. Source: https://github.com/apache/tvm/pull/17809"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return (x.sum(1), x.mean((0, 1)), x.prod(1), x.var(1), x.amax(1) if False else torch.max(x, 1).values)


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(4, 9),)
