"""max_pool2d return_indices: frontend fills the indices with zeros. Source: https://github.com/apache/tvm/pull/18446"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return functional.max_pool2d(x, 2, return_indices=True)


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(1, 2, 6, 6),)
