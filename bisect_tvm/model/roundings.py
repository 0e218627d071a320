"""By how many roundings the operators of a graph may be off, as far as that can be told without running them again."""

from collections.abc import Mapping

import torch
from torch import fx

from bisect_tvm.model.accumulate import rounding_of_operator
from bisect_tvm.model.exact import is_exact, loses_near_zero
from bisect_tvm.model.primitives import Change, granted, moved
from bisect_tvm.model.reference import Value, arguments, float64_default


class Roundings:
    """What the results of operators are off by beyond one unit of themselves, in units; reckoned once from the reference's values.

    Args:
        values: the reference's.
    """

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = values
        self._known: dict[str, torch.Tensor | None] = {}

    def of_sum(self, node: fx.Node) -> torch.Tensor | None:
        """The expected rounding of all additions of a sum (a matrix product, a convolution, a mean); None for all else."""
        if node.op != "call_function" or is_exact(node.target):
            return None
        if node.name not in self._known:
            self._known[node.name] = self._of_sum(node)
        return self._known[node.name]

    def _of_sum(self, node: fx.Node) -> torch.Tensor | None:
        args, kwargs = arguments(node, self._values, wide=True)
        with torch.no_grad(), float64_default():
            rounding = rounding_of_operator(node.target, args, kwargs, self._values[node.name])
        if rounding is None:
            return None
        rounding = torch.where(rounding.isfinite(), rounding, 0.0)
        short = rounding.float()  # an estimate needs no more digits, and this is kept
        return short if bool(short.isfinite().all()) else rounding

    def moved(self, node: fx.Node, value: Value, change: Change) -> Value:
        """Move the result of an operator that stands among others: as far as its additions, and what is excused, go."""
        rounding = self.of_sum(node)
        if rounding is not None and isinstance(value, torch.Tensor):
            return moved(value, rounding, change)
        return granted(node.target, value, change) if loses_near_zero(node.target) else change(value)
