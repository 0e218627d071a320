"""Step 3b: how far rounding alone can move a component's outputs (stochastic arithmetic, design: section 6).

The component is run in float64 several times, its inputs and the output of every operator changed by one unit of relative
rounding with random sign. The largest change of each output element is what rounding explains. Two depths: `run_perturbed`
with ``deep=False`` perturbs at the operators' boundaries; with ``deep=True`` also the primitives inside them (PyTorch's
reference decompositions), which matters where an operator cancels inside, as gelu with tanh does in its tail.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

# torch._decomp is private (torch 2.13); the public tables stop at core ATen, above the primitives that round.
from torch._decomp import decomposition_table
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from bisect_tvm.model.capture import Program
from bisect_tvm.model.cut import Boundary
from bisect_tvm.model.exact import is_exact, is_steady
from bisect_tvm.model.reference import Value, float64_default, run_nodes

POOL = 1_000_003
"""Signs drawn once; a prime, so that rows of a tensor do not line up with it."""
RUNS = 4
"""Perturbed runs for each floor. Four signs drawn per element leave a true 1-ulp sensitivity unseen with probability 1/16 at
most.
"""


def run_perturbed(
    program: Program, edge: Boundary, values: Mapping[str, Value], *, unit: float, deep: bool, seed: int = 0
) -> Iterator[Sequence[torch.Tensor]]:
    """Yield the component's outputs of `RUNS` perturbed runs.

    Args:
        program: the captured program.
        edge: what enters and leaves the component.
        values: the reference's values; entering ones are read from it.
        unit: relative size of a perturbation: 2**-52 for float64, 2**-23 for float32.
        deep: perturb the primitives inside the operators too.
        seed: of the signs.
    """
    if all(is_steady(node) for node in edge.nodes):
        return  # the same bits come out of the same bits: nothing to explain
    names = [node.name for node in edge.nodes]
    # In a run of operators, what meets a weight has been perturbed itself: changing the weights too would show nothing new.
    own = set() if edge.is_operator else set(program.bindings) - set(program.inputs)
    entering = [node for node in edge.inputs if node.name not in own]
    for run in range(RUNS):
        generator = torch.Generator().manual_seed(seed * RUNS + run)
        change = _changer(unit, generator)
        env: dict[str, Value] = dict(values)
        env.update({node.name: change(values[node.name]) for node in entering})
        with float64_default(), torch.random.fork_rng(devices=[]):
            if deep:
                with _Primitives(change):
                    run_nodes(program, names, env, wide=True)
            else:
                run_nodes(program, names, env, wide=True, after=_unless_exact(change))
        yield [env[node.name] for node in edge.outputs]


def _changer(unit: float, generator: torch.Generator) -> Callable[[Value], Value]:
    factors = _factors(unit)

    def one(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float64 or value.numel() == 0:
            return value
        # A stretch of a fixed pool from a random place: drawing every sign anew would cost more than the model's own run.
        start = int(torch.randint(0, POOL, (1,), generator=generator))
        changed = torch.empty(value.numel(), dtype=torch.float64)
        for flat, out in zip(torch.split(value.reshape(-1), POOL), torch.split(changed, POOL), strict=True):
            torch.mul(flat, factors[start : start + flat.numel()], out=out)
        return changed.reshape(value.shape)

    return lambda value: pytree.tree_map(one, value)


@functools.cache
def _factors(unit: float) -> torch.Tensor:
    """`1 + unit` or `1 - unit` with random signs, `POOL` of them, written twice so that a stretch can begin anywhere."""
    signs = torch.randint(0, 2, (POOL,), generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 - 1
    return (1 + unit * signs).repeat(2)


def _unless_exact(change: Callable[[Value], Value]) -> Callable[[fx.Node, Value], Value]:
    return lambda node, value: value if is_exact(node.target) else change(value)


class _Primitives(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch does not annotate it
    """Run each operator as its reference decomposition, down to primitives, and perturb what each primitive gives."""

    def __init__(self, change: Callable[[Value], Value]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._change = change

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        inside = decomposition_table.get(func)
        if inside is not None:
            with self:
                result = inside(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        result = func(*args, **(kwargs or {}))
        if is_exact(func):
            return result
        return _keep_whole(func, args, result, self._change(result))


def _keep_whole(func: Any, args: Sequence[Any], result: Any, changed: Any) -> Any:
    """Sums and products of whole numbers are exact: an index that is computed as a float must stay whole."""
    sums = str(func).split(".")[1:2] in (["add"], ["sub"], ["mul"], ["rsub"])
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
