"""x[:, idx] = v (index_put with a None index). Source: https://github.com/apache/tvm/issues/18438"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, v):
        return torch.ops.aten.index_put(x, [None, torch.tensor([0, 2, 4])], v)


def build():
    torch.manual_seed(0)
    return M().eval(), (
        torch.randn(5, 6),
        torch.randn(5, 3),
    )
