"""boolean attn_mask. Source: https://github.com/apache/tvm/pull/17379"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, q, k, v, m):
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=m)


def build():
    torch.manual_seed(0)
    return M().eval(), (
        torch.randn(1, 2, 6, 8),
        torch.randn(1, 2, 6, 8),
        torch.randn(1, 2, 6, 8),
        torch.rand(1, 2, 6, 6) > 0.3,
    )
