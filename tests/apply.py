"""A function as a model."""

from typing import Any

import torch
from torch import nn


class Apply(nn.Module):
    """Calls `function` with its inputs."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)
