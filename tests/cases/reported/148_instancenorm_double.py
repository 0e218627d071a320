"""InstanceNorm2d on ordinary data, mean 10. Source: https://github.com/apache/tvm/issues/17842"""

import torch
from torch import nn


def build():
    torch.manual_seed(0)
    return nn.InstanceNorm2d(4, affine=True).eval(), (torch.randn(2, 4, 8, 8) + 10,)
