"""Step 3b: how far rounding alone can move a component's outputs (stochastic arithmetic, design: section 6).

The component is run in float64 several times, its inputs and the output of every operator changed by one unit of relative
rounding with random sign. The largest change of each output element is what rounding explains. Two depths: `run_perturbed`
with ``deep=False`` perturbs at the operators' boundaries; with ``deep=True`` also the primitives inside them (PyTorch's
reference decompositions), which matters where an operator cancels inside, as gelu with tanh does in its tail, and each sum by
the rounding of all its additions (`accumulate.py`), which matters where it has thousands of terms.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

# torch._decomp is private (torch 2.13); the public tables stop at core ATen, above the primitives that round.
from torch._decomp import decomposition_table
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from bisect_tvm.model.accumulate import has_rule, is_average, is_normalisation, one_after_another, rounding_of_sum
from bisect_tvm.model.capture import Program
from bisect_tvm.model.cut import Boundary
from bisect_tvm.model.exact import (
    chooses,
    is_exact,
    is_made_for_tiny_numbers,
    is_steady,
    jumps,
    loses_near_zero,
    name_of,
    rounds_nothing,
)
from bisect_tvm.model.reference import Value, float64_default, rounded, run_nodes, widen
from bisect_tvm.numerics.metrics import BESIDE, TOLERATED

POOL = 1_000_003
"""Signs drawn once; a prime, so that rows of a tensor do not line up with it."""
SINGLE = 2.0**-40
"""Units above this are those of float32 and shorter formats, which add in float32."""
RUNS = 4
"""Perturbed runs for each floor. Four signs drawn per element leave a true 1-ulp sensitivity unseen with probability 1/16 at
most.
"""
MANY_RUNS = 24
"""Runs in depth of what holds several operators, since half of all signs cancel in a difference of equals, and of decisions."""
MOST_RUNS = 64
"""Runs where one of several is chosen: a tie of two is broken the other way by a quarter of all signs."""
TINIEST = 2.0**-1060
"""Far below the smallest normal number."""

Change = Callable[[Value], Value]
"""Moves all floating-point numbers of a value by one unit."""


def run_perturbed(
    program: Program, edge: Boundary, values: Mapping[str, Value], *, unit: float, deep: bool, seed: int = 0
) -> Iterator[Sequence[torch.Tensor]]:
    """Yield the component's outputs of several perturbed runs.

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

    granting = not edge.is_operator
    still = _still(program, edge, entering, values)
    # What differs in float64 may be equal in a shorter format, so that there any may be chosen.
    equal = unit > SINGLE and edge.is_operator and any(map(chooses, edge.nodes))

    def run(change: Change, apart: Primitive | None) -> list[torch.Tensor]:
        env: dict[str, Value] = dict(values)
        for node in entering:
            if node not in still:
                env[node.name] = change(widen(rounded(values[node.name], node)) if equal else values[node.name])
        with float64_default(), torch.random.fork_rng(devices=[]):
            if apart is None:
                run_nodes(program, names, env, wide=True, after=_after(change, granting=granting))
            else:
                with _Apart(apart):
                    run_nodes(program, names, env, wide=True)
        return [env[node.name] for node in edge.outputs]

    for change in _changes_for(edge, unit, seed, deep=deep):
        yield run(change, _perturbed(change, granting=granting) if deep else None)
    if deep and any(is_normalisation(node.target) for node in edge.nodes):
        for backwards in (False, True):
            yield run(lambda value: value, _in_a_row(single=unit > SINGLE, backwards=backwards))


def _still(program: Program, edge: Boundary, entering: Sequence[fx.Node], values: Mapping[str, Value]) -> set[fx.Node]:
    """What is not moved: flags, counts and masks that are kept as whole floating-point numbers and were not rounded.

    Those are user inputs, and whatever enters an operator that rounds nothing. Where one of several equal ones is chosen, all move.
    """
    exact = all(map(rounds_nothing, edge.nodes)) and not any(map(chooses, edge.nodes))
    candidates = [node for node in entering if exact or (not edge.is_operator and node.name in program.inputs)]
    return {node for node in candidates if _is_whole(values[node.name])}


def _is_whole(value: Value) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and bool((value.frac() == 0).all())


def _changes_for(edge: Boundary, unit: float, seed: int, *, deep: bool) -> Iterator[Change]:
    """Ways to move every number that a run meets by one unit.

    Where there are decisions, a sign that is not drawn is one that is not found to flip: there, more signs are drawn, and what is
    met first, second and third (the operands of an operator) is also moved as a whole, in all eight combinations.
    """
    choosing = edge.is_operator and any(map(chooses, edge.nodes))
    thorough = any(map(jumps, edge.nodes)) and (deep or edge.is_operator)
    few = 2 * RUNS if deep else RUNS
    for number in range(MOST_RUNS if choosing else MANY_RUNS if thorough or (deep and not edge.is_operator) else few):
        signed = _by_signs(unit, torch.Generator().manual_seed(seed * MOST_RUNS + number))
        yield _tree(_untied(signed) if choosing else signed)
    for signs in itertools.product((-1, 1), repeat=3) if thorough else ():
        yield _tree(_together(unit, itertools.cycle(signs)))


def _untied(signed: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Move zeros, too, which have no digits that could be rounded: by so little that nothing else notices."""
    return lambda value: signed(value) + (signed(torch.full_like(value, 1.0)) - 1.0).sign() * TINIEST


def _tree(one: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    """Change every float64 tensor of a value."""

    def leaf(value: Any) -> Any:
        changeable = isinstance(value, torch.Tensor) and value.dtype == torch.float64 and value.numel() > 0
        return one(value) if changeable else value

    return lambda value: pytree.tree_map(leaf, value)


def _together(unit: float, signs: Iterator[int]) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda value: value * (1 + unit * next(signs))


def _by_signs(unit: float, generator: torch.Generator) -> Callable[[torch.Tensor], torch.Tensor]:
    factors = _factors(unit)

    def one(value: torch.Tensor) -> torch.Tensor:
        # A stretch of a fixed pool from a random place: drawing every sign anew would cost more than the model's own run.
        start = int(torch.randint(0, POOL, (1,), generator=generator))
        changed = torch.empty(value.numel(), dtype=torch.float64)
        for flat, out in zip(torch.split(value.reshape(-1), POOL), torch.split(changed, POOL), strict=True):
            torch.mul(flat, factors[start : start + flat.numel()], out=out)
        return changed.reshape(value.shape)

    return one


@functools.cache
def _factors(unit: float) -> torch.Tensor:
    """`1 + unit` or `1 - unit` with random signs, `POOL` of them, written twice so that a stretch can begin anywhere."""
    signs = torch.randint(0, 2, (POOL,), generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 - 1
    return (1 + unit * signs).repeat(2)


def _after(change: Change, *, granting: bool) -> Callable[[fx.Node, Value], Value]:
    """Perturb what each operator of a graph gives."""

    def after(node: fx.Node, value: Value) -> Value:
        if is_exact(node.target):
            return value
        return _granted(node.target, value, change) if granting else change(value)

    return after


def _granted(func: object, value: Value, change: Change) -> Value:
    """Move the result of a function that loses digits near zero by as much more as is excused where it stands alone."""
    if not loses_near_zero(func):
        return change(value)

    def one(before: Any) -> Any:
        if not isinstance(before, torch.Tensor) or before.dtype != torch.float64 or not before.numel():
            return before
        size = torch.where(before.isfinite(), before.abs(), 0.0)
        grant = torch.full_like(before, BESIDE * float(size.max()))
        return _moved(before, torch.minimum(grant, TOLERATED * size) if is_made_for_tiny_numbers(func) else grant, change)

    return pytree.tree_map(one, value)


def _moved(value: torch.Tensor, further: torch.Tensor, change: Change) -> torch.Tensor:
    """Move a value by a unit of itself and of something else, in the same direction lest one undoes the other."""
    size = value.abs() + further
    moved: torch.Tensor = value + (change(size) - size)
    return torch.where(value.isfinite(), moved, value)


Primitive = Callable[[Any, Sequence[Any], Mapping[str, Any], Any, bool], Any]
"""What a primitive gives instead: (operator, args, kwargs, result, whether it is part of a normalisation) -> result."""


class _Apart(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch does not annotate it
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


def _perturbed(change: Change, *, granting: bool) -> Primitive:
    """Perturb what each primitive gives, and each sum by the rounding of all its additions."""

    def primitive(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, normalising: bool) -> Any:
        if is_exact(func):
            return result
        rounding = None if normalising and is_average(func) else rounding_of_sum(func, args, kwargs, result)
        if rounding is not None:
            return _moved(result, rounding, change)
        return _keep_whole(func, args, result, _granted(func, result, change) if granting else change(result))

    return primitive


def _in_a_row(*, single: bool, backwards: bool) -> Primitive:
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
