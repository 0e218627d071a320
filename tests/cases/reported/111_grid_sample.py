"""grid_sample: the grid layout; bilinear zeros.

Source: no public report of this exact defect found; related: https://github.com/apache/tvm/pull/18483 (added the
converter; Relay's version transposed the grid: https://github.com/apache/tvm/pull/8443)
"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, g):
        return functional.grid_sample(x, g, align_corners=True)


def build():
    torch.manual_seed(0)
    return M().eval(), (
        torch.randn(1, 2, 5, 5),
        torch.rand(1, 2, 2, 2) * 2 - 1,
    )
