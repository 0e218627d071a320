"""Linear 2048->1000 result differs past 1e-5 (accumulation order).

Source: https://github.com/apache/tvm/issues/15284
"""

import torch
from torch import nn


def build():
    torch.manual_seed(0)
    m = nn.Linear(2048, 200).eval()
    nn.init.normal_(m.weight)
    return m, (torch.randn(1, 2048),)
