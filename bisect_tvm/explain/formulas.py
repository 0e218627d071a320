"""Operators written by others, for those of which PyTorch itself holds no decomposition that TVM imports and computes well.

Each stands alone, as its source becomes part of the code that the user is given.
"""

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


def log1p(x: Any) -> Any:
    """log(1 + x), all digits kept near 0 (W. Kahan; Goldberg 1991, theorem 4)."""
    small = torch.abs(x) < 0.5
    one_more = x + 1
    change = torch.where(small & (one_more != 1), one_more - 1, torch.ones_like(x))
    near_0 = torch.where(one_more == 1, x, torch.log(one_more) * (x / change))
    return torch.where(small, near_0, torch.log(one_more))


def expm1(x: Any) -> Any:
    """exp(x) - 1, all digits kept near 0 (W. Kahan; Higham 2002, section 1.14.1)."""
    grown = torch.exp(x)
    tame = (grown != 1) & (x > -1) & (x < 1)
    logarithm = torch.where(tame, torch.log(torch.where(tame, grown, torch.full_like(x, 2))), torch.ones_like(x))
    return torch.where(grown == 1, x, torch.where(tame, (grown - 1) * (x / logarithm), grown - 1))


def elu(x: Any, alpha: Any = 1.0, scale: Any = 1.0, input_scale: Any = 1.0) -> Any:
    """Exponential linear unit, all digits kept near 0: exp(x) - 1 by Kahan's formula."""
    below = torch.where(x > 0, torch.zeros_like(x), x) * input_scale
    grown = torch.exp(below)
    tame = (grown != 1) & (below > -1)
    logarithm = torch.where(tame, torch.log(torch.where(tame, grown, torch.full_like(x, 2))), torch.ones_like(x))
    less_one = torch.where(grown == 1, below, torch.where(tame, (grown - 1) * (below / logarithm), grown - 1))
    return torch.where(x > 0, x * scale, less_one * (alpha * scale))


def tanh(x: Any) -> Any:
    """Hyperbolic tangent by exp(-2|x|) - 1, which is computed by Kahan's formula near 0."""
    below = torch.abs(x) * -2
    grown = torch.exp(below)
    tame = (grown != 1) & (below > -1)
    logarithm = torch.where(tame, torch.log(torch.where(tame, grown, torch.full_like(x, 2))), torch.ones_like(x))
    less_one = torch.where(grown == 1, below, torch.where(tame, (grown - 1) * (below / logarithm), grown - 1))
    return torch.sign(x) * (-less_one / (less_one + 2))


def atanh(x: Any) -> Any:
    """Inverse hyperbolic tangent, log(1 + y) / 2 of y = 2|x| / (1 - |x|), by Kahan's formula near 0."""
    size = torch.abs(x)
    y = size * 2 / (1 - size)
    small = y < 0.5
    one_more = y + 1
    change = torch.where(small & (one_more != 1), one_more - 1, torch.ones_like(y))
    near_0 = torch.where(one_more == 1, y, torch.log(one_more) * (y / change))
    return torch.where(small, near_0, torch.log(one_more)) * torch.where(x < 0, torch.full_like(x, -0.5), torch.full_like(x, 0.5))


def maximum(x: Any, y: Any) -> Any:
    """The larger one; NaN where either is."""
    return torch.where((x > y) | torch.isnan(x), x, y)


def minimum(x: Any, y: Any) -> Any:
    """The smaller one; NaN where either is."""
    return torch.where((x < y) | torch.isnan(x), x, y)


def select(x: Any, dim: Any, index: Any) -> Any:
    """One position of an axis, counted from its beginning."""
    return torch.squeeze(torch.narrow(x, dim, index % x.shape[dim], 1), dim)


def native_group_norm(x: Any, weight: Any, bias: Any, n: Any, c: Any, hw: Any, groups: Any, eps: Any) -> Any:
    """Group normalisation in two passes: the mean is taken away before anything is squared."""
    grouped = torch.reshape(x, (n, groups, c // groups * hw))
    mean = torch.mean(grouped, 2, keepdim=True)
    centred = grouped - mean
    rstd = torch.rsqrt(torch.mean(centred * centred, 2, keepdim=True) + eps)
    normal = torch.reshape(centred * rstd, x.shape)
    per_channel = [1, c] + [1] * (x.dim() - 2)
    if weight is not None:
        normal = normal * torch.reshape(weight, per_channel)
    if bias is not None:
        normal = normal + torch.reshape(bias, per_channel)
    return normal, torch.reshape(mean, (n, groups)), torch.reshape(rstd, (n, groups))


FORMULAS: dict[Any, Callable[..., Any]] = {
    aten.log1p.default: log1p,
    aten.expm1.default: expm1,
    aten.elu.default: elu,
    aten.tanh.default: tanh,
    aten.atanh.default: atanh,
    aten.maximum.default: maximum,
    aten.minimum.default: minimum,
    aten.select.int: select,
    aten.native_group_norm.default: native_group_norm,
}
"""By operator, the function that can take its place in a table of decompositions."""
