"""BatchNorm in training mode on data with a large mean. Source: https://github.com/apache/tvm/issues/19574"""

import torch
from torch import nn


def build():
    torch.manual_seed(0)
    return nn.BatchNorm2d(3), (torch.randn(4, 3, 6, 6) + 3000,)
