"""BatchNorm with track_running_stats=False: normalised per sample instead of over the batch.

Source: https://github.com/apache/tvm/pull/18609
"""

import torch
from torch import nn


def build():
    torch.manual_seed(0)
    m = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)).eval()
    return m, (torch.randn(3, 3, 6, 6) * 2 + 1,)
