"""index_put with accumulate=True and repeated indices. Source: https://github.com/apache/tvm/pull/18488"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, v):
        return x.clone().index_put((torch.tensor([0, 2, 2, 0, 1]),), v, accumulate=True)


def build():
    torch.manual_seed(0)
    return M().eval(), (
        torch.randn(4, 6),
        torch.randn(5, 6),
    )
