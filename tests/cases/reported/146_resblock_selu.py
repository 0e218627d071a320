"""Conv-SELU-Conv-SELU-pool-Linear.

Source: no public report of this exact defect found; related: https://github.com/apache/tvm/pull/17738 and
https://github.com/apache/tvm/pull/17797
"""

import torch
from torch import nn


def build():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.SELU(),
        nn.Conv2d(8, 8, 3),
        nn.SELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    ).eval(), (torch.randn(2, 3, 10, 10),)
