"""What happens inside operators: each is run as its reference decomposition, and the primitives' results are moved."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

# torch._decomp is private (torch 2.13); the public tables stop at core ATen, above the primitives that round.
from torch._decomp import decomposition_table
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from bisect_tvm.model.accumulate import has_rule, is_average, is_normalisation, one_after_another, rounding_of_sum
from bisect_tvm.model.exact import is_exact, is_made_for_tiny_numbers, loses_near_zero, name_of
from bisect_tvm.model.reference import Value
from bisect_tvm.numerics.metrics import BESIDE, TOLERATED

Change = Callable[[Value], Value]
"""Moves all floating-point numbers of a value by one unit."""


def granted(func: object, value: Value, change: Change) -> Value:
    """Move the result of a function that loses digits near zero by as much more as is excused where it stands alone."""
    if not loses_near_zero(func):
        return change(value)

    def one(before: Any) -> Any:
        if not isinstance(before, torch.Tensor) or before.dtype != torch.float64 or not before.numel():
            return before
        return moved(before, grant(func, before), change)

    return pytree.tree_map(one, value)


def grant(func: object, value: torch.Tensor) -> torch.Tensor:
    """By how many units more than one of itself such a function's result is moved."""
    size = torch.where(value.isfinite(), value.abs(), 0.0)
    most = torch.full_like(value, BESIDE * float(size.max()))
    return torch.minimum(most, TOLERATED * size) if is_made_for_tiny_numbers(func) else most


def moved(value: torch.Tensor, further: torch.Tensor, change: Change) -> torch.Tensor:
    """Move a value by a unit of itself and of something else, in the same direction lest one undoes the other."""
    size = value.abs() + further
    result: torch.Tensor = value + (change(size) - size)
    return torch.where(value.isfinite(), result, value)


Primitive = Callable[[Any, Sequence[Any], Mapping[str, Any], Any, bool], Any]
"""What a primitive gives instead: (operator, args, kwargs, result, whether it is part of a normalisation) -> result."""


class Apart(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch does not annotate it
    """Run each operator as its reference decomposition, down to primitives, and replace what each of these gives."""

    def __init__(self, primitive: Primitive) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._primitive = primitive
        self._normalising = False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        inside = None if has_rule(func) else decomposition_table.get(func)
        if inside is not None:
            outer, self._normalising = self._normalising, self._normalising or is_normalisation(func)
            try:
                with self:
                    result = inside(*args, **(kwargs or {}))
            finally:
                self._normalising = outer
            if result is not NotImplemented:
                return result
        return self._primitive(func, args, kwargs or {}, func(*args, **(kwargs or {})), self._normalising)


def perturbed(change: Change, *, granting: bool) -> Primitive:
    """Perturb what each primitive gives, and each sum by the rounding of all its additions."""

    def primitive(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, normalising: bool) -> Any:
        if is_exact(func):
            return result
        rounding = None if normalising and is_average(func) else rounding_of_sum(func, args, kwargs, result)
        if rounding is not None:
            return moved(result, rounding, change)
        return _keep_whole(func, args, result, granted(func, result, change) if granting else change(result))

    return primitive


def in_a_row(*, single: bool, backwards: bool) -> Primitive:
    """Do the additions inside normalisations one after the other, in float32 if `single`."""

    def primitive(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, normalising: bool) -> Any:
        if not normalising or not is_average(func) or result.dtype != torch.float64 or not result.numel():
            return result
        return one_after_another(func, args, result, single=single, backwards=backwards)

    return primitive


def _keep_whole(func: Any, args: Sequence[Any], result: Any, changed: Any) -> Any:
    """Sums and products of whole numbers are exact: an index that is computed as a float must stay whole."""
    sums = name_of(func) in ("add", "sub", "mul", "rsub")
    if not sums or not isinstance(result, torch.Tensor) or not result.is_floating_point():
        return changed
    exact = result.frac() == 0
    if not bool(exact.any()):
        return changed
    for operand in args[:2]:
        exact &= _whole(operand)
    return torch.where(exact, result, changed)


def _whole(operand: Any) -> Any:
    """Where an operand is a whole number."""
    if not isinstance(operand, torch.Tensor):
        return float(operand).is_integer()
    return operand.frac() == 0 if operand.is_floating_point() else True
