"""Conv1d/2d/3d without bias. Source: https://github.com/mlc-ai/relax/pull/165"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv1d(2, 3, 3, bias=False)
        self.b = nn.Conv2d(2, 3, 3, bias=False)
        self.c = nn.Conv3d(2, 3, 2, bias=False)
        self.d = nn.ConvTranspose2d(2, 3, 3, stride=2, bias=False)

    def forward(self, x):
        return self.a(x[:, :, :, 0, 0]), self.b(x[:, :, :, :, 0]), self.c(x), self.d(x[:, :, :, :, 1])


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.randn(1, 2, 6, 6, 4),)
