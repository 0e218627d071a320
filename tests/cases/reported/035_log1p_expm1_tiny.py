"""log1p/expm1 written as log(1+x), exp(x)-1: tiny inputs lose all digits.

Source: no public report of this exact defect found; related: https://github.com/apache/tvm/pull/17421 (ggml had the
same: https://github.com/ggml-org/llama.cpp/pull/23759)
"""

import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return (torch.log1p(x), torch.expm1(x))


def build():
    torch.manual_seed(0)
    return M().eval(), (torch.tensor([[1e-10, 3e-9, -2e-8, 5e-7, 1e-4, 0.5]]),)
