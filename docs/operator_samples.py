"""Sample calls of every operator that TVM's importer has a converter for.

Most come from PyTorch's own operator database (OpInfo): each of its samples is exported, with and without decomposition, and every
operator of the graph that TVM has a converter for is kept with the values that reach it. What the database does not reach is in
`docs/operator_samples_by_hand.py`.
"""

import contextlib
import io
import logging
import operator
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree  # private, see bisect_tvm/model/containers.py

MOST_ELEMENTS = 20_000
FLOATS, WHOLE = 4, 2
"""So many samples from the database are kept for each operator, with and without floating-point numbers."""
BY_HAND, DECOMPOSED = 30, 6
"""So many of those written by hand are kept for each operator, of the undecomposed and of the decomposed graphs."""


@dataclass(frozen=True)
class Sample:
    """One call of one operator, as it stands in an exported graph."""

    key: str
    """The name by which TVM's converter map knows the operator."""
    target: str
    """``aten.add.Tensor``."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    taken: tuple[int, ...] | None
    """Which outputs the graph takes of an operator that has several; None for an operator that has one."""
    origin: str
    by_hand: bool = field(default=False)

    def function(self) -> Any:
        """The operator itself."""
        namespace, name, overload = self.target.split(".")
        return getattr(getattr(getattr(torch.ops, namespace), name), overload)

    def tensors(self) -> list[torch.Tensor]:
        """The tensors among the arguments."""
        return [leaf for leaf in pytree.tree_leaves((self.args, self.kwargs)) if isinstance(leaf, torch.Tensor)]

    def has_floats(self) -> bool:
        """True if a floating-point number goes in, or comes out of an operator that takes no tensor."""
        leaves = pytree.tree_leaves((self.args, self.kwargs))
        return any(isinstance(leaf, torch.Tensor) and leaf.is_floating_point() for leaf in leaves) or not self.tensors()

    def cast(self, dtype: torch.dtype) -> "Sample":
        """The same call with all that is float32 in another precision."""

        def one(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor) and leaf.dtype is torch.float32:
                return leaf.to(dtype)
            return dtype if leaf is torch.float32 else leaf

        args, kwargs = pytree.tree_map(one, (self.args, self.kwargs))
        return replace(self, args=args, kwargs=kwargs)

    def shown(self) -> str:
        """The call in one short line."""
        parts = [_shown(argument) for argument in self.args]
        parts += [f"{name}={_shown(value)}" for name, value in self.kwargs.items() if name not in ("device", "layout")]
        return f"{self.key.split('.')[0]}({', '.join(parts)})"


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_shown(item) for item in value)}]"
    return str(value).removeprefix("torch.")


class Calls(nn.Module):
    """Calls several functions side by side, each on tensors of its own."""

    def __init__(self, functions: Sequence[Callable[..., Any]], counts: Sequence[int]) -> None:
        super().__init__()
        self.functions, self.counts = list(functions), list(counts)

    def forward(self, *tensors: torch.Tensor) -> list[Any]:
        """Give each function its tensors, in order."""
        given, results = iter(tensors), []
        for function, count in zip(self.functions, self.counts, strict=True):
            results.append(function(*(next(given) for _ in range(count))))
        return results


logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)  # it logs what torch.export then raises

Call = tuple[Callable[..., Any], list[torch.Tensor]]
"""A function and its tensors."""


def samples_of(
    calls: Sequence[Call], keys: frozenset[str], origin: str, *, decompose: bool = True, by_hand: bool = False
) -> list[Sample]:
    """Every operator with a converter that the calls run, in the undecomposed graph and in the decomposed one.

    All calls are exported together, because each decomposition costs most of a second however small the graph is; where that fails,
    by halves. A call that cannot be exported is left out.
    """
    if not calls:
        return []
    try:
        program, inputs = _export(calls)
        found = _operators(program, inputs, keys, origin, by_hand)
        if decompose:
            found += _operators(program.run_decompositions(), inputs, keys, f"{origin}, decomposed", by_hand)
        return found
    except Exception:  # whatever torch.export raises, for whichever call: halving finds it
        if len(calls) == 1:
            return samples_of(calls, keys, origin, decompose=False, by_hand=by_hand) if decompose else []
        halves = calls[: len(calls) // 2], calls[len(calls) // 2 :]
        return [s for half in halves for s in samples_of(half, keys, origin, decompose=decompose, by_hand=by_hand)]


def _export(calls: Sequence[Call]) -> tuple[ExportedProgram, list[torch.Tensor]]:
    inputs = [tensor for _, tensors in calls for tensor in tensors]
    module = Calls([function for function, _ in calls], [len(tensors) for _, tensors in calls]).eval()
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        return torch.export.export(module, tuple(inputs)), inputs


class _Recorder(fx.Interpreter):
    """Runs a graph and keeps each call of an operator that has a converter."""

    def __init__(self, module: fx.GraphModule, keys: frozenset[str], origin: str, by_hand: bool) -> None:
        super().__init__(module)
        self.found: list[Sample] = []
        self._keys, self._origin, self._by_hand = keys, origin, by_hand

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "call_function" and isinstance(n.target, torch._ops.OpOverload) and n.target.__name__ in self._keys:
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            args, kwargs = pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, (args, kwargs))
            taken = {user.args[1] for user in n.users if user.target is operator.getitem}
            several = isinstance(n.meta.get("val"), list | tuple)
            self.found.append(
                Sample(
                    n.target.__name__,
                    str(n.target),
                    tuple(args),
                    dict(kwargs),
                    tuple(sorted(taken)) if several else None,
                    self._origin,
                    self._by_hand,
                )
            )
        return super().run_node(n)


def _operators(
    program: ExportedProgram, inputs: Sequence[torch.Tensor], keys: frozenset[str], origin: str, by_hand: bool
) -> list[Sample]:
    recorder = _Recorder(program.graph_module, keys, origin, by_hand)
    constants = {**program.state_dict, **program.constants}
    values = iter(inputs)
    given = [next(values) if spec.target is None else constants[spec.target] for spec in program.graph_signature.input_specs]
    with torch.no_grad():
        recorder.run(*(value.clone() for value in given))
    return recorder.found


# ------------------------------------------------------------------------------------------------------ the operator database


ELSEWHERE = (
    "_",
    "cdouble",
    "cfloat",
    "chalf",
    "fft.",
    "jiterator",
    "linalg.",
    "masked.",
    "signal.",
    "sparse.",
    "special.",
    "torch.",
)
"""Entries that run no operator of TVM's converter map beside those that other entries run."""


def database_positions() -> list[int]:
    """Where the entries of use stand in PyTorch's operator database."""
    return [i for i, info in enumerate(_database()) if not info.name.startswith(ELSEWHERE)]


def _database() -> list[Any]:
    # Private: PyTorch ships its operator database for its own tests (seen in torch 2.13; needs the package expecttest).
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


def database_samples(positions: Sequence[int], keys: frozenset[str]) -> list[Sample]:
    """Samples from some entries of the operator database."""
    database = _database()
    found = []
    for dtype, most, decompose in ((torch.float32, 4, True), (torch.int64, 1, False), (torch.bool, 1, False)):
        entries = [database[position] for position in positions]
        calls = [call for info in entries if info.supports_dtype(dtype, "cpu") for call in _calls(info, dtype, most)]
        found += samples_of(calls, keys, "OpInfo", decompose=decompose)
    return select(found)


def _calls(info: Any, dtype: torch.dtype, most: int) -> list[Call]:
    torch.manual_seed(0)
    calls: list[Call] = []
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inputs = list(info.sample_inputs("cpu", dtype, requires_grad=False))
        ordinary = [s for s in inputs if isinstance(s.input, torch.Tensor | list | tuple | int | float)]
        ordinary.sort(key=lambda s: not 2 <= _elements(s) <= MOST_ELEMENTS)  # stable: scalars and empty ones last
        for i, sample in enumerate(ordinary[:: max(1, len(ordinary) // most)][:most]):
            calls.append(_call(info.op, (sample.input, *sample.args), sample.kwargs))
            inplace = info.inplace_variant
            if i == 0 and inplace is not None and isinstance(sample.input, torch.Tensor):
                calls.append(_call(_on_a_copy(inplace), (sample.input, *sample.args), sample.kwargs))
    return [call for call in calls if _runs(call) and _exports(call)]


def _runs(call: Call) -> bool:
    function, tensors = call
    try:
        function(*(tensor.clone() for tensor in tensors))
    except Exception:  # the database has samples that some operators refuse, each in its own way
        return False
    return True


def _exports(call: Call) -> bool:
    try:
        _export([call])
    except Exception:  # whatever torch.export raises: such a call cannot reach TVM's importer
        return False
    return True


def _elements(sample: Any) -> int:
    leaves = pytree.tree_leaves((sample.input, sample.args))
    tensors = [leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return max(tensors, default=2) if 0 not in tensors else 0


def _on_a_copy(inplace: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *args, **kwargs: inplace(x.clone(), *args, **kwargs)


def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """`function` as a function of the tensors among its arguments."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def apply(*tensors: torch.Tensor) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        inner, keywords = pytree.tree_unflatten(filled, spec)
        return function(*inner, **keywords)

    return apply, [leaves[place].detach() for place in places]


# ------------------------------------------------------------------------------------------------------------------ selection


def select(samples: Iterable[Sample]) -> list[Sample]:
    """A few diverse samples of each operator; those written by hand are all kept."""
    by_key: dict[str, list[Sample]] = {}
    for sample in samples:
        by_key.setdefault(sample.key, []).append(sample)
    chosen = []
    for some in by_key.values():
        chosen += _diverse([s for s in some if s.by_hand and "decomposed" not in s.origin], BY_HAND)
        chosen += _diverse([s for s in some if s.by_hand and "decomposed" in s.origin], DECOMPOSED)
        rest = [s for s in some if not s.by_hand]
        chosen += _diverse([s for s in rest if s.has_floats()], FLOATS) + _diverse([s for s in rest if not s.has_floats()], WHOLE)
    return chosen


def _distinct(samples: Sequence[Sample], most: int) -> list[Sample]:
    return list({sample.shown(): sample for sample in reversed(samples)}.values())[::-1][:most]


def _diverse(samples: Sequence[Sample], most: int) -> list[Sample]:
    """Greedily, the sample that differs most from those chosen; of equals the earlier one, ordinary sizes first."""
    left = sorted(_distinct(samples, len(samples)), key=lambda s: not _ordinary(s))
    chosen: list[Sample] = left[:1]
    while len(chosen) < min(most, len(left)):
        chosen.append(max((s for s in left if all(s is not c for c in chosen)), key=lambda s: min(_distance(s, c) for c in chosen)))
    return chosen


def _ordinary(sample: Sample) -> bool:
    sizes = [tensor.numel() for tensor in sample.tensors()]
    return not sizes or (min(sizes) > 0 and max(sizes) > 3)


def _traits(sample: Sample) -> set[str]:
    traits = {f"taken {sample.taken}"}
    for i, value in [*enumerate(sample.args), *sample.kwargs.items()]:
        if isinstance(value, torch.Tensor):
            traits |= {f"{i} {value.dtype}", f"{i} rank {value.dim()}"}
        else:
            traits.add(f"{i} {_shown(value)}")
    return traits


def _distance(a: Sample, b: Sample) -> float:
    one, other = _traits(a), _traits(b)
    return len(one ^ other) - (0.0 if _ordinary(a) else 100.0)
