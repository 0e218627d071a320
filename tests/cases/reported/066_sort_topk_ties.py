"""argmax / sort / topk with ties. Source: https://github.com/apache/tvm/pull/8816"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return (torch.argmax(x, 1), torch.sort(x, dim=1, stable=True).indices, torch.topk(x, 3, dim=1).values)


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.tensor([[1.0, 3.0, 3.0, 0.0, 3.0], [2.0, 2.0, 1.0, 2.0, 0.0]]),)
