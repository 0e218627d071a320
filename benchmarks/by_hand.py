"""What people do today to find an operator that TVM converts wrongly: convert parts of the model one by one, and compare.

- `submodules`: every call of a submodule, alone, on the inputs that it had in the model.
- `top_down`: the same, but only inside what deviates.
- `sequential`, `binary`: PyTorch's own minimizer (torch.fx.passes.net_min_base) with TVM as the other side.
"""

import contextlib
import operator
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn
from torch.fx.passes.net_min_base import _MinimizerBase, _MinimizerSettingBase
from torch.utils import _pytree as pytree

from benchmarks.cost_models import Subject, subject
from benchmarks.measuring import convert, warm_up

TOLERANCE = 1e-5
"""Largest error over largest value above which two results differ: in float32, one must choose."""


@dataclass
class Outcome:
    """One pass over the model."""

    seconds: float = 0.0
    builds: int = 0
    conversions: int = 0
    total: int | None = None
    """How many conversions a whole pass has, if that is known beforehand."""
    failures: Counter[str] = field(default_factory=Counter)
    """Conversions that came to no result, by the class of the exception."""
    right: int = 0
    """Smallest parts that deviate and hold the planted operator and nothing else."""
    wrong: int = 0
    """Other smallest parts that deviate, or failed."""
    finished: bool = True


class CapReachedError(BaseException):
    """There is no time left. Not an `Exception`, for the minimizer takes these as findings."""


class Converter:
    """Converts parts of a model and counts."""

    def __init__(self, convert_map: Any, cap_seconds: float) -> None:
        self.outcome = Outcome()
        self._convert_map = convert_map
        self._end = time.perf_counter() + cap_seconds

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        """Run `module` through TVM; returns its tensors.

        Raises:
            CapReachedError: there is no time left.
        """
        if time.perf_counter() > self._end:
            raise CapReachedError
        self.outcome.conversions += 1
        with _compilations() as calls:
            try:
                alone = Alone(module, args, kwargs)
                return [torch.from_numpy(array) for array in convert(alone, alone.tensors, self._convert_map)]
            except Exception as error:
                self.outcome.failures[type(error).__name__] += 1
                raise
            finally:
                self.outcome.builds += len(calls)


class Alone(nn.Module):
    """A module that takes tensors only and returns tensors only, for TVM's importer refuses None and True."""

    def __init__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.module = module
        self._leaves, self._spec = pytree.tree_flatten((args, kwargs))
        self.tensors = tuple(leaf for leaf in self._leaves if isinstance(leaf, torch.Tensor))
        self.eval()

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Put the tensors where they were among the arguments."""
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in self._leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        return tuple(tensors_of(self.module(*args, **kwargs)))


@contextlib.contextmanager
def _compilations() -> Iterator[list[None]]:
    """Counts the calls of `tvm.compile`."""
    import tvm

    original, calls = tvm.compile, list[None]()

    def counting(*args: Any, **kwargs: Any) -> Any:
        calls.append(None)
        return original(*args, **kwargs)

    tvm.compile = counting
    try:
        yield calls
    finally:
        tvm.compile = original


def tensors_of(value: Any) -> list[torch.Tensor]:
    """All tensors in nested containers."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def deviation(expected: Any, got: Any) -> float:
    """Largest error over largest expected value; infinite where the number or the shapes of tensors differ."""
    pairs = list(zip(tensors_of(expected), tensors_of(got), strict=False))
    if len(pairs) != len(tensors_of(expected)) or any(a.shape != b.shape for a, b in pairs):
        return float("inf")
    return max((_of_one(a.double(), b.double()) for a, b in pairs), default=0.0)


def _of_one(expected: torch.Tensor, got: torch.Tensor) -> float:
    if not expected.numel() or torch.equal(expected, got):
        return 0.0
    return float((expected - got).abs().max() / expected.abs().max().clamp_min(1e-30))


# ------------------------------------------------------------------------------------------------- submodule by submodule


@dataclass(eq=False)
class Call:
    """One call of a submodule during a run of the model."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    parent: "Call | None"
    output: Any = None


def record(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[Call]:
    """All calls in the order in which they begin, that of the model itself first."""
    calls, stack = list[Call](), list[Call]()

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calls.append(Call(module, args, kwargs, stack[-1] if stack else None))
        stack.append(calls[-1])

    def after(_module: nn.Module, _args: tuple[Any, ...], _kwargs: dict[str, Any], output: Any) -> None:
        stack.pop().output = output

    handles = []
    for module in model.modules():
        handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(module.register_forward_hook(after, with_kwargs=True))
    with torch.no_grad():
        model(*inputs)
    for handle in handles:
        handle.remove()
    return calls


def by_submodule(it: Subject, converter: Converter, *, top_down: bool) -> None:
    """Convert every call of a submodule, or from the top down only those inside one that deviates."""
    calls, deviating = record(it.model, it.inputs), list[Call]()
    converter.outcome.total = None if top_down else len(calls)
    try:
        for call in calls:
            if (not top_down or call.parent is None or call.parent in deviating) and _deviates(call, converter):
                deviating.append(call)
    finally:
        smallest = [call for call in deviating if not any(other.parent is call for other in deviating)]
        converter.outcome.right = sum(type(call.module).__name__ in it.modules for call in smallest)
        converter.outcome.wrong = len(smallest) - converter.outcome.right


def _deviates(call: Call, converter: Converter) -> bool:
    try:
        return deviation(call.output, converter(call.module, call.args, call.kwargs)) > TOLERANCE
    except Exception:  # whatever torch and TVM raise; it is counted, and a failure must be looked into like a deviation
        return True


# ------------------------------------------------------------------------------------------------- PyTorch's minimizer


class Minimizer(_MinimizerBase):  # type: ignore[misc]  # torch does not export it
    """Compares PyTorch with TVM on parts of a graph.

    It collects what it finds by itself: the binary search of torch 2.13 with `find_all` returns culprits of second halves only.
    """

    converter: Converter
    found: set[str]

    def run_a(self, mod: fx.GraphModule, inputs: Any, report_idx: int = -1) -> Any:
        """By PyTorch."""
        with torch.no_grad():
            return mod(*inputs)

    def run_b(self, mod: fx.GraphModule, inputs: Any, report_idx: int = -1) -> Any:
        """By TVM."""
        results = self.converter(mod, tuple(inputs), {})
        output = next(node for node in mod.graph.nodes if node.op == "output").args[0]
        # A list of one tensor is a tensor, unless the graph says that it is a list (split).
        return results[0] if len(results) == 1 and isinstance(output, fx.Node) else results

    def _run_and_compare(self, split_module: Any, submod_name: str, output_names: list[str], report_idx: int = -1) -> None:
        nodes = [node for node in getattr(split_module, submod_name).graph.nodes if node.op == "call_function"]
        try:
            super()._run_and_compare(split_module, submod_name, output_names, report_idx)
        except Exception:
            if len(nodes) == 1 or self.settings.traverse_method == "sequential":
                self.found.update(output_names)
            raise


def minimize(it: Subject, converter: Converter, *, traverse: str) -> None:
    """Search the decomposed graph for all nodes that deviate alone, each on PyTorch's own values."""
    graph = torch.export.export(it.model, it.inputs).run_decompositions().module(check_guards=False)
    _drop_assertions(graph)
    nodes = {node.name: node for node in graph.graph.nodes if node.op == "call_function"}
    converter.outcome.total = sum(map(_counts, nodes.values())) if traverse == "sequential" else None
    settings = _MinimizerSettingBase(accumulate_error=False, traverse_method=traverse, find_all=True)
    minimizer = Minimizer(graph, it.inputs, lambda a, b, names: _agree(a, b, nodes[names[0]]), settings, None, _exclude)
    minimizer.converter, minimizer.found = converter, set()
    try:
        with open(os.devnull, "w", encoding="utf-8") as nothing, contextlib.redirect_stdout(nothing):
            minimizer.minimize()
    finally:
        converter.outcome.right = sum(str(nodes[name].target) == it.operator for name in minimizer.found)
        converter.outcome.wrong = len(minimizer.found) - converter.outcome.right


def _drop_assertions(graph: fx.GraphModule) -> None:
    """They return nothing that could be compared."""
    for node in reversed(list(graph.graph.nodes)):
        if node.op == "call_function" and not node.users:
            graph.graph.erase_node(node)
    graph.recompile()


def _counts(node: fx.Node) -> bool:
    return node.target is not operator.getitem


def _exclude(nodes: list[fx.Node], _start: int, _end: int) -> None:
    """An item of a tuple is compared with the tuple, so by itself it need not be converted."""
    if len(nodes) == 1:
        nodes[:] = filter(_counts, nodes)


def _agree(expected: Any, got: Any, node: fx.Node) -> tuple[float, bool]:
    """Compare what `node` gave. Of a tuple only what is used: TVM leaves out the statistics that a normalisation returns."""
    if not isinstance(expected, torch.Tensor):
        used = sorted({user.args[1] for user in node.users if user.target is operator.getitem})
        expected, got = [[side[index] for index in used] for side in (expected, got)]
    by = deviation(expected, got)
    return by, by <= TOLERANCE


# ------------------------------------------------------------------------------------------------- all of them

RIVALS: dict[str, Callable[[Subject, Converter], None]] = {
    "submodules": lambda it, converter: by_submodule(it, converter, top_down=False),
    "top_down": lambda it, converter: by_submodule(it, converter, top_down=True),
    "sequential": lambda it, converter: minimize(it, converter, traverse="sequential"),
    "binary": lambda it, converter: minimize(it, converter, traverse="binary"),
}


def run_rival(name: str, model: str, small: bool, cap_seconds: float) -> Outcome:
    """One whole pass, or what of it fits into `cap_seconds`."""
    it = subject(model, small=small)
    warm_up(locating=False)
    start = time.perf_counter()
    converter = Converter(it.convert_map, cap_seconds)
    try:
        RIVALS[name](it, converter)
    except CapReachedError:
        converter.outcome.finished = False
    converter.outcome.seconds = time.perf_counter() - start
    return converter.outcome
