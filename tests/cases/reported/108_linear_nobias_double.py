"""Linear without bias then ReLU: silently computed and returned in float32.

Source: https://github.com/apache/tvm/issues/20198
"""

import torch
from torch import nn


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 32, bias=False), nn.Tanh(), nn.Linear(32, 8, bias=False)).eval(), (torch.randn(3, 32),)
