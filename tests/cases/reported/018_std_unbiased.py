"""torch.std/var: the correction argument dropped (biased result). Source: https://github.com/apache/tvm/pull/19512"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return (torch.std(x, dim=1), torch.var(x, dim=1, correction=2), torch.var(x, dim=1, unbiased=False))


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(3, 5),)
