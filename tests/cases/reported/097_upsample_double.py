"""bilinear x2 and align_corners (float32 coordinates inside resize2d).

Source: https://github.com/apache/tvm/pull/17932
"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return (
            functional.interpolate(x, size=(9, 11), mode="bilinear", align_corners=True),
            functional.interpolate(x, scale_factor=2, mode="bilinear"),
            functional.interpolate(x, scale_factor=2, mode="nearest"),
        )


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(1, 2, 5, 6),)
