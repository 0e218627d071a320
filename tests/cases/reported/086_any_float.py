"""any/all on float input returns bool.

Source: no public report of this exact defect found; related: https://github.com/apache/tvm/pull/17424
"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return (torch.any(x, 1), torch.all(x > 0, 1))


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.tensor([[0.0, 2.5, 0.0], [0.0, 0.0, 0.0], [-1.5, -2.0, 0.0]]),)
