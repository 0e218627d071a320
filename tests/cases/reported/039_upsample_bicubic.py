"""bicubic upsampling (alpha -0.75). Source: https://github.com/apache/tvm/pull/17932"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return functional.interpolate(x, scale_factor=2.0, mode="bicubic", align_corners=False)


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(1, 2, 6, 6),)
