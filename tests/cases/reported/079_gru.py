"""GRU, one layer, bidirectional. Source: https://github.com/apache/tvm/issues/17346"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.GRU(5, 6, batch_first=True, bidirectional=True)

    def forward(self, x):
        return self.l(x)[0]


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(2, 4, 5),)
