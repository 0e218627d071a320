"""float16 Linear without bias: output comes back float32. Source: https://github.com/mlc-ai/relax/pull/165"""

import torch
from torch import nn


def build():
    torch.manual_seed(0)
    return nn.Linear(8, 4, bias=False).half().eval(), (torch.randn(3, 8).half(),)
