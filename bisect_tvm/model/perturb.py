"""Step 3b: how far rounding alone can move a component's outputs (stochastic arithmetic, design: section 6).

The component is run in float64 several times, its inputs and the output of every operator changed by one unit of relative
rounding with random sign. The largest change of each output element is what rounding explains. Two depths: `run_perturbed`
with ``deep=False`` perturbs at the operators' boundaries; with ``deep=True`` also the primitives inside them (PyTorch's
reference decompositions), which matters where an operator cancels inside, as gelu with tanh does in its tail, and each sum by
the rounding of all its additions (`accumulate.py`), which matters where it has thousands of terms.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from bisect_tvm.model.accumulate import is_normalisation
from bisect_tvm.model.capture import Program
from bisect_tvm.model.cut import Boundary
from bisect_tvm.model.exact import chooses, is_exact, is_steady, jumps, rounds_nothing
from bisect_tvm.model.primitives import Apart, Change, Primitive, in_a_row, perturbed
from bisect_tvm.model.reference import Value, float64_default, rounded, run_nodes, widen
from bisect_tvm.model.roundings import Roundings

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


def run_perturbed(
    program: Program,
    edge: Boundary,
    values: Mapping[str, Value],
    *,
    unit: float,
    deep: bool,
    seed: int = 0,
    roundings: Roundings | None = None,
) -> Iterator[Sequence[torch.Tensor]]:
    """Yield the component's outputs of several perturbed runs.

    Args:
        program: the captured program.
        edge: what enters and leaves the component.
        values: the reference's values; entering ones are read from it.
        unit: relative size of a perturbation: 2**-52 for float64, 2**-23 for float32.
        deep: perturb the primitives inside the operators too.
        seed: of the signs.
        roundings: of the reference's values; kept from one component to the next, since they hold the same operators.
    """
    entering = _perturbable(program, edge, values)
    reached = _reached(edge, entering, values, deep=deep)
    if not reached or all(is_steady(node) for node in edge.nodes):
        return  # the same bits come out of the same bits: nothing to explain
    names = [node.name for node in reached]
    granting = not edge.is_operator
    # What differs in float64 may be equal in a shorter format, so that there any may be chosen.
    equal = unit > SINGLE and edge.is_operator and any(map(chooses, edge.nodes))
    known = Roundings(values) if roundings is None else roundings

    def run(change: Change, apart: Primitive | None) -> list[torch.Tensor]:
        env: dict[str, Value] = dict(values)
        for node in entering:
            env[node.name] = change(widen(rounded(values[node.name], node)) if equal else values[node.name])
        with float64_default(), torch.random.fork_rng(devices=[]):
            if apart is None:
                run_nodes(program, names, env, wide=True, after=_after(change, known if granting else None))
            else:
                with Apart(apart):
                    run_nodes(program, names, env, wide=True)
        return [env[node.name] for node in edge.outputs]

    for change in _changes_for(edge, unit, seed, deep=deep):
        yield run(change, perturbed(change, granting=granting) if deep else None)
    if deep and any(is_normalisation(node.target) for node in edge.nodes):
        for backwards in (False, True):
            yield run(lambda value: value, in_a_row(single=unit > SINGLE, backwards=backwards))


def decides(program: Program, edge: Boundary, values: Mapping[str, Value]) -> bool:
    """True if something in the component turns a small change into a large one, and reads what rounding can change.

    A mask that is made of whole numbers cannot flip.
    """
    entering = _perturbable(program, edge, values)
    moving = {*entering, *_reached(edge, entering, values, deep=False)}
    return any(jumps(node) and (edge.is_operator or not moving.isdisjoint(node.all_input_nodes)) for node in edge.nodes)


def _perturbable(program: Program, edge: Boundary, values: Mapping[str, Value]) -> list[fx.Node]:
    """What is moved among that which enters."""
    # In a run of operators, what meets a weight has been perturbed itself: changing the weights too would show nothing new.
    own = set() if edge.is_operator else set(program.bindings) - set(program.inputs)
    entering = [node for node in edge.inputs if node.name not in own and _is_float(values[node.name])]
    still = _still(program, edge, entering, values)
    return [node for node in entering if node not in still]


def _reached(edge: Boundary, entering: Iterable[fx.Node], values: Mapping[str, Value], *, deep: bool) -> list[fx.Node]:
    """The nodes whose values a perturbed run can change. All others give the reference's."""
    moving = set(entering)
    reached = []
    for node in edge.nodes:
        reads = not moving.isdisjoint(node.all_input_nodes)
        # Inside, an operator on whole numbers may divide.
        if reads or (not is_exact(node.target) and (deep or _is_float(values[node.name]))):
            reached.append(node)
            moving.add(node)
    return reached


def _is_float(value: Value) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.is_floating_point() for leaf in pytree.tree_leaves(value))


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

    return lambda value: leaf(value) if isinstance(value, torch.Tensor) else pytree.tree_map(leaf, value)


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


def _after(change: Change, roundings: Roundings | None) -> Callable[[fx.Node, Value], Value]:
    """Perturb what each operator of a graph gives; by as much as it may round, where it stands among others."""

    def after(node: fx.Node, value: Value) -> Value:
        if is_exact(node.target):
            return value
        return change(value) if roundings is None else roundings.moved(node, value, change)

    return after
