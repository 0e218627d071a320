"""torch.add/sub with alpha: alpha dropped by the binary converter.

Source: no public report of this exact defect found; related: https://github.com/apple/coremltools/pull/2680 (same
defect in coremltools)
"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        return (torch.add(x, y, alpha=2.5), torch.sub(x, y, alpha=0.5))


def build():
    torch.manual_seed(0)
    return M().eval(), (
        torch.randn(3, 4),
        torch.randn(3, 4),
    )
