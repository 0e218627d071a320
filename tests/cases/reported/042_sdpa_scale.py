"""scaled_dot_product_attention with scale=: frontend ignores scale.

Source: no public report of this exact defect found; related: https://github.com/apache/tvm/issues/17099 (tt-tvm fixed
it in a fork: https://github.com/tenstorrent/tt-tvm/pull/97)
"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, scale=1.0)


def build():
    torch.manual_seed(0)
    return M().eval(), (
        torch.randn(1, 2, 6, 8),
        torch.randn(1, 2, 6, 8),
        torch.randn(1, 2, 6, 8),
    )
