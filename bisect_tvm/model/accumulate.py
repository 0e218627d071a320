"""How much the additions inside a sum round, in whatever order they are done.

No order is the right one: PyTorch adds in blocks, TVM one after the other. For K terms in random order, with each addition rounding
by one unit u of the partial sum, independently, the expected square of the error is u^2 times the sum of the squared partial sums,

    K/2 * (sum of squared terms - S^2 / K) + K/3 * S^2,        S = sum of the terms,

since the partial sum after k of K terms has mean k S / K and, up to 1/K, variance k (1 - k/K) times that of the terms, of which the
second factor is left out as an upper bound (cf. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 4.2).

Normalisations are another matter: the mean is taken away, and what one unit of rounding does to it stays small beside what an
algorithm that squares first loses. An expectation is too coarse there, so the additions are done one after the other, forwards
and backwards.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from bisect_tvm.model.exact import name_of

_NORMALISATIONS = frozenset(
    {
        "native_layer_norm",
        "native_group_norm",
        "native_batch_norm",
        "_native_batch_norm_legit",
        "_native_batch_norm_legit_functional",
        "layer_norm",
        "group_norm",
        "batch_norm",
        "instance_norm",
    }
)
_AVERAGES = frozenset({"sum", "mean"})


def is_normalisation(func: object) -> bool:
    """True for operators that take the mean away and scale what is left."""
    return name_of(func) in _NORMALISATIONS


def is_average(func: object) -> bool:
    """True for plain sums and means over dimensions."""
    return name_of(func) in _AVERAGES


def has_rule(func: object) -> bool:
    """True for operators that `rounding_of_sum` knows, which need not be taken apart."""
    return name_of(func) in _RULES


def one_after_another(func: object, args: Sequence[Any], result: torch.Tensor, *, single: bool, backwards: bool) -> torch.Tensor:
    """A sum or mean with its additions done in a row, in float32 if `single`; the result is float64 all the same."""
    data, dims = args[0], args[1] if len(args) > 1 else None
    chosen = [dims] if isinstance(dims, int) else list(dims) if dims else list(range(data.dim()))
    rows = data.movedim(chosen, list(range(data.dim() - len(chosen), data.dim()))).reshape(result.numel(), -1)
    if backwards:
        rows = rows.flip(-1)
    # torch.cumsum would add float32 numbers in double.
    sums = np.cumsum(rows.numpy(), axis=-1, dtype=np.float32 if single else np.float64)[:, -1]
    total: torch.Tensor = torch.from_numpy(sums.astype(np.float64)).reshape(result.shape)
    return total / rows.shape[-1] if name_of(func) == "mean" else total


def rounding_of_operator(func: object, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> torch.Tensor | None:
    """The same as `rounding_of_sum`, also of sums to which a bias is added, which are otherwise taken apart."""
    biased = _BIASED.get(name_of(func))
    if biased is None:
        return rounding_of_sum(func, args, kwargs, result)
    plain, first = biased
    return rounding_of_sum(plain, args[first : first + 2], {}, result)


def rounding_of_sum(func: object, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> torch.Tensor | None:
    """The expected rounding of each element of `result`, in units of relative rounding; None for what is no sum."""
    rule = _RULES.get(name_of(func))
    if rule is None or not isinstance(result, torch.Tensor) or result.dtype != torch.float64 or not result.numel():
        return None
    return rule(func, args, kwargs, result)


def _expected(terms: int, squares: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    of_terms = terms / 2 * squares - total.square() / 2
    return torch.sqrt(of_terms.clamp(min=0) + terms / 3 * total.square())


def _sum(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> torch.Tensor:
    terms = args[0].numel() // result.numel()
    return _expected(terms, func(args[0].square(), *args[1:], **kwargs), result)


def _averaged(terms: int, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> torch.Tensor:
    squares, total = func(args[0].square(), *args[1:], **kwargs) * terms, result * terms
    return torch.div(_expected(terms, squares, total), terms)


def _mean(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> torch.Tensor:
    return _averaged(-(-args[0].numel() // result.numel()), func, args, kwargs, result)


def _window(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> torch.Tensor:
    sizes = args[1] if isinstance(args[1], list | tuple) else [args[1]]
    terms = math.prod(sizes) if len(sizes) > 1 else sizes[0] ** (args[0].dim() - 2)
    return _averaged(terms, func, args, kwargs, result)


def _product(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> torch.Tensor:
    return _expected(args[0].shape[-1], func(args[0].square(), args[1].square()), result)


def _convolution(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> torch.Tensor:
    data, weight, _, *rest = args
    transposed = bool(rest[3])
    terms = math.prod(weight.shape[2:]) * (data.shape[1] // rest[5] if transposed else weight.shape[1])
    # The bias is in the sum and not among the squares: one term more or less does not matter.
    return _expected(terms, func(data.square(), weight.square(), None, *rest, **kwargs), result)


def _running(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> torch.Tensor:
    return func(result.square(), *args[1:], **kwargs).sqrt()  # type: ignore[no-any-return]


def _variance(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> torch.Tensor:
    # A sum of squares, all positive, about a mean whose own rounding is of second order.
    return result * math.sqrt(args[0].numel() / result.numel() / 3)


_RULES: dict[str, Callable[[Any, Sequence[Any], Mapping[str, Any], torch.Tensor], torch.Tensor]] = {
    "sum": _sum,
    "mean": _mean,
    "avg_pool1d": _window,
    "avg_pool2d": _window,
    "avg_pool3d": _window,
    "_adaptive_avg_pool2d": _mean,
    "_adaptive_avg_pool3d": _mean,
    "mm": _product,
    "bmm": _product,
    "mv": _product,
    "dot": _product,
    "convolution": _convolution,
    "cumsum": _running,
    "var": _variance,
}
"""What is left when operators are taken apart: everything else that adds is made of these."""

_BIASED = {"addmm": (torch.ops.aten.mm.default, 1), "baddbmm": (torch.ops.aten.bmm.default, 1)}
"""By name: the sum in it, and where its two operands stand."""
