"""RMSNorm. Source: https://github.com/apache/tvm/issues/19592"""

import torch
from torch import nn


def build():
    torch.manual_seed(0)
    m = nn.RMSNorm(16).eval()
    nn.init.normal_(m.weight)
    return m, (torch.randn(3, 16) * 5,)
