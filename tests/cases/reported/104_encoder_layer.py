"""TransformerEncoderLayer (gelu). Source: https://github.com/apache/tvm/issues/17099"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True)

    def forward(self, x):
        return self.a(x * 1.0)


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(2, 5, 8),)
