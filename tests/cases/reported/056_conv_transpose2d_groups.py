"""conv_transpose2d with groups and dilation and output_padding. Source: https://github.com/apache/tvm/issues/15283"""

import torch
from torch import nn


def build():
    torch.manual_seed(0)
    m = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2, dilation=2).eval()
    return m, (torch.randn(1, 4, 5, 6),)
