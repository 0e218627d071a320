"""cross_entropy with ignore_index, class weights, label smoothing.

Source: no public report of this exact defect found; related: https://github.com/apache/tvm/pull/17424
"""

import torch
from torch import nn
from torch.nn import functional


class M(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, t):
        return (
            functional.cross_entropy(x, t, ignore_index=1),
            functional.cross_entropy(x, t, label_smoothing=0.1),
            functional.nll_loss(functional.log_softmax(x, 1), t, reduction="sum"),
        )


def build():
    torch.manual_seed(0)
    return M().eval(), (
        torch.randn(5, 4),
        torch.tensor([0, 1, 2, 3, 1]),
    )
