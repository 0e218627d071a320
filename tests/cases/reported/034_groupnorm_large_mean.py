"""group_norm on data with a large mean (same variance formula).

Source: https://github.com/apache/tvm/issues/19592 (fixed for layer_norm only,
https://github.com/apache/tvm/pull/19643)
"""

import torch
from torch import nn


def build():
    torch.manual_seed(0)
    m = nn.GroupNorm(2, 6).eval()
    nn.init.normal_(m.weight)
    return m, (torch.randn(2, 6, 5, 5) + 3000,)
