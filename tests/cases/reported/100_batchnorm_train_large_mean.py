"""BatchNorm on data with a large mean. Source: https://github.com/apache/tvm/issues/19574"""

import torch
from torch import nn


def build():
    torch.manual_seed(0)
    # The report is about training mode, which locate refuses (test_cases.py shows that it does).
    return nn.BatchNorm2d(3).eval(), (torch.randn(4, 3, 6, 6) + 3000,)
