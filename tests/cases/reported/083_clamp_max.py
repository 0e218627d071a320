"""clamp_max / clamp(max=) / clamp_min.

Source: no public report of this exact defect found; related: https://github.com/apache/tvm/pull/17725
"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return (torch.clamp_max(x, 0.5), torch.clamp(x, max=0.5), torch.clamp_min(x, -0.5))


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(3, 6),)
