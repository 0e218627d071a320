"""pow of negative bases. Source: https://github.com/apache/tvm/pull/17424"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return (torch.pow(x, 2), torch.pow(x, 3.0), torch.pow(x, -1))


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.tensor([[-2.0, -0.5, 1.5, 3.0, -1.25]]),)
