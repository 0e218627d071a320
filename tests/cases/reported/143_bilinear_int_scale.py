"""bilinear x2 and x3 align_corners False (integer factors) and x2.5 (recomputed).

Source: https://github.com/apache/tvm/issues/19570
"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return (
            functional.interpolate(x, scale_factor=3, mode="bilinear"),
            functional.interpolate(x, scale_factor=2.5, mode="bilinear", recompute_scale_factor=True),
        )


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(1, 1, 4, 4),)
