"""Hardswish in double precision fails to convert. Source: https://github.com/apache/tvm/issues/15008"""

import torch
from torch import nn


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Hardswish(), nn.Hardsigmoid()).eval(), (torch.randn(4, 8) * 4,)
