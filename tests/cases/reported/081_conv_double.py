"""Conv2d-ReLU-Conv2d: out_dtype fixed to float32 by the frontend. Source: https://github.com/mlc-ai/relax/pull/165"""

import torch
from torch import nn


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3)).eval(), (torch.randn(1, 3, 8, 8),)
