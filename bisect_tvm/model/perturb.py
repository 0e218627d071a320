"""Step 3b: how far rounding alone can move a component's outputs (stochastic arithmetic, design: section 6).

The component is run in float64 several times, its inputs and the output of every operator changed by one unit of relative rounding with
random sign. The largest change of each output element is what rounding explains. Two depths: `run_perturbed` with ``deep=False``
perturbs at the operators' boundaries; with ``deep=True`` also the primitives inside them (PyTorch's reference decompositions), which
matters where an operator cancels inside, as gelu with tanh does in its tail.
"""

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

RUNS = 4
"""Perturbed runs for each floor. Four signs drawn per element leave a true 1-ulp sensitivity unseen with probability 1/16 at most."""


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
    for run in range(RUNS):
        generator = torch.Generator().manual_seed(seed * RUNS + run)
        change = _changer(unit, generator)
        env: dict[str, Value] = dict(values)
        env.update({node.name: change(values[node.name]) for node in edge.inputs})
        with float64_default(), torch.random.fork_rng(devices=[]):
            if deep:
                with _Primitives(change):
                    run_nodes(program, names, env, wide=True)
            else:
                run_nodes(program, names, env, wide=True, after=_unless_exact(change))
        yield [env[node.name] for node in edge.outputs]


def _changer(unit: float, generator: torch.Generator) -> Callable[[Value], Value]:
    def one(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float64:
            return value
        signs = torch.randint(0, 2, value.shape, generator=generator).to(torch.float64) * 2 - 1
        return value * (1 + unit * signs)

    return lambda value: pytree.tree_map(one, value)


def _unless_exact(change: Callable[[Value], Value]) -> Callable[[fx.Node, Value], Value]:
    return lambda node, value: value if is_exact(node.target) else change(value)


class _Primitives(TorchDispatchMode):
    """Run each operator as its reference decomposition, down to primitives, and perturb what each primitive gives."""

    def __init__(self, change: Callable[[Value], Value]) -> None:
        super().__init__()
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
    if str(func).split(".")[1:2] not in (["add"], ["sub"], ["mul"], ["rsub"]) or not isinstance(result, torch.Tensor):
        return changed
    exact = result == result.round()
    for operand in args[:2]:
        whole = operand == operand.round() if isinstance(operand, torch.Tensor) else float(operand).is_integer()
        exact = exact & whole
    return torch.where(exact, result, changed)
