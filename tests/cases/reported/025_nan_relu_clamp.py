"""relu / clamp / maximum do not propagate NaN. Source: https://github.com/apache/tvm/issues/19579"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return (
            functional.relu(x),
            torch.clamp(x, -1, 1),
            torch.maximum(x, torch.zeros_like(x)),
            torch.minimum(torch.zeros_like(x), x),
        )


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.tensor([[float("nan"), 1.0, -2.0, float("nan")]]),)
