"""functional.normalize, cosine_similarity, vector_norm ord=3. Source: https://github.com/apache/tvm/pull/17722"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        return (
            functional.normalize(x, dim=1),
            functional.cosine_similarity(x, y, dim=1),
            torch.linalg.vector_norm(x, ord=3, dim=1),
        )


def build():
    torch.manual_seed(0)
    return M().eval(), (
        torch.randn(3, 5),
        torch.randn(3, 5),
    )
