"""InstanceNorm2d and GroupNorm, eps 1e-3. Source: https://github.com/apache/tvm/pull/18609"""

import torch
from torch import nn


def build():
    torch.manual_seed(0)
    m = nn.Sequential(nn.InstanceNorm2d(4, affine=True, eps=1e-3), nn.GroupNorm(2, 4, eps=1e-3)).eval()
    for p in m.parameters():
        nn.init.normal_(p)
    return m, (torch.randn(2, 4, 5, 5),)
