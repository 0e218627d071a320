"""AdaptiveAvgPool2d 7->3 (overlapping windows).

Source: https://discuss.tvm.apache.org/t/pytorch-the-inference-results-of-tvm-and-pytorch-are-inconsistent/12048 /
https://github.com/apache/tvm/pull/11176
"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return functional.adaptive_avg_pool2d(x, (3, 3))


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(1, 2, 7, 8),)
