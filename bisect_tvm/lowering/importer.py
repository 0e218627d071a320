"""Step 4b: from an exported program to a Relax function, exactly as the user converts it."""

import contextlib
import numbers
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree
from tvm import IRModule, relax
from tvm.relax.frontend.torch import from_exported_program

from bisect_tvm.interrupts import raise_lost

ALONE = threading.Lock()
"""Held by whoever imports or lowers: TVM's operator library notes in one global what it is in the middle of, for all threads."""
MOST_SIZES = 64
"""Sizes whose ratios are considered; more would only add chance matches."""

_OPERATOR = re.compile(r'ir\.Op\(span=.*?name="([^"]*)".*?support_level=\d+\)')
"""How TVM writes an operator in its messages: with the documentation of every argument."""

ConvertMap = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class Constants:
    """What is known about constants that may stand rounded in what the importer made.

    A rounded constant is taken for the exact one that rounds to it. Where several do (0.1 beside 0.1 rounded to float32),
    it cannot be told which was meant; it then stays rounded, and float64 cannot be judged beyond that.
    """

    numbers: frozenset[float]
    """Numbers of the graph, those given to `relax.const`, and scalars that are bound (buffers), as they were."""
    arrays: tuple[NDArray[np.float64], ...] = ()
    """What operators of the graph create from nothing (arange), in float64."""
    bound: tuple[NDArray[np.generic], ...] = ()
    """Parameters, buffers and constants of the same shapes: a tensor that equals one of them may be it, and is then exact."""
    vanished: bool = False
    """A number that is not 0 became 0 in the program's own precision (1e-8 in float16), where it cannot be told from another 0."""


@dataclass(frozen=True)
class Imported:
    """What the importer made of one program."""

    module: IRModule
    """With the function ``main``, and whatever a user's own converter added."""
    constants: Constants


class ImporterError(Exception):
    """The importer refused the program; the message is its reason."""


def import_program(
    exported: ExportedProgram, convert_map: ConvertMap | None, created: Sequence[NDArray[np.float64]] = ()
) -> Imported:
    """Convert `exported`, which is already decomposed or not as the user wants it.

    Args:
        exported: the program.
        convert_map: the user's own converters.
        created: what operators of the program create from nothing, in float64.

    Raises:
        ImporterError: with the importer's own reason.
    """
    with ALONE, _constants_recorded() as recorded:
        try:
            module = from_exported_program(
                exported, custom_convert_map=dict(convert_map) if convert_map else None, run_ep_decomposition=False
            )
        except Exception as error:  # whatever a converter raises, the user's own included
            raise ImporterError(f"TVM's importer refuses it: {reason_of(error)}") from error
    numbers = recorded.numbers | _literals(exported) | _bound_scalars(exported) | _size_ratios(exported) | _reciprocals(exported)
    return Imported(module, Constants(frozenset(numbers), tuple(created), _bound_like(exported, created), recorded.vanished))


def reason_of(error: BaseException) -> str:
    """The telling line of an error of TVM, whose messages can hold a whole stack.

    Raises:
        KeyboardInterrupt: it was Ctrl-C that TVM turned into the error.
    """
    raise_lost()
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("File ", "Traceback", "[bt]", "During handling"))]
    text = _OPERATOR.sub(r"\1", (telling or lines or [""])[0]).rstrip(" :")
    return f"{type(error).__name__}: {text[:400]}" if text else type(error).__name__


def _literals(exported: ExportedProgram) -> set[float]:
    """All floating-point numbers that stand in the graph."""
    leaves = (leaf for node in exported.graph.nodes for leaf in pytree.tree_leaves((node.args, node.kwargs)))
    return {leaf for leaf in leaves if isinstance(leaf, float) and np.isfinite(leaf)}


def _bound_scalars(exported: ExportedProgram) -> set[float]:
    bound = (*exported.state_dict.values(), *exported.constants.values())
    scalars = (t for t in bound if isinstance(t, torch.Tensor) and t.dim() == 0 and t.is_floating_point())
    return {number for t in scalars if np.isfinite(number := float(t))}


def _bound_like(exported: ExportedProgram, created: Sequence[NDArray[np.float64]]) -> tuple[NDArray[np.generic], ...]:
    shapes = {array.shape for array in created}
    bound = [t for t in (*exported.state_dict.values(), *exported.constants.values()) if isinstance(t, torch.Tensor)]
    # As float32, which holds what float16 and bfloat16 do, and numpy knows.
    return tuple(t.detach().float().numpy() for t in bound if t.is_floating_point() and tuple(t.shape) in shapes)


def _size_ratios(exported: ExportedProgram) -> set[float]:
    """Ratios of the sizes that occur in a graph that resizes, and of the distances between their end points.

    TVM's resize folds the ratio of two sizes into one constant.
    """
    if not any("upsample" in str(node.target) or "interpolate" in str(node.target) for node in exported.graph.nodes):
        return set()
    values = (leaf for node in exported.graph.nodes for leaf in pytree.tree_leaves(node.meta.get("val")))
    sizes = {size for value in values if isinstance(value, torch.Tensor) for size in value.shape if isinstance(size, int)}
    some = sorted(sizes)[:MOST_SIZES]
    pairs = [(a - less, b - less) for a in some for b in some for less in (0, 1)]
    return {a / b for a, b in pairs if a > 0 and b > 0}


def _reciprocals(exported: ExportedProgram) -> set[float]:
    """Reciprocals of the numbers that are given to softplus: TVM folds its ``1 / beta`` into one constant."""
    calls = (node for node in exported.graph.nodes if "softplus" in str(node.target))
    leaves = (leaf for node in calls for leaf in pytree.tree_leaves((node.args, node.kwargs)))
    return {1 / leaf for leaf in leaves if isinstance(leaf, int | float) and leaf}


@dataclass
class _Recorded:
    """What `relax.const` was given."""

    numbers: set[float] = field(default_factory=set)
    vanished: bool = False

    def note(self, number: float, made: Any) -> None:
        """Note a finite number and the constant that it became."""
        self.numbers.add(number)
        self.vanished |= number != 0 and "float" in str(made.value.dtype) and float(made.value.numpy()) == 0


@contextlib.contextmanager
def _constants_recorded() -> Iterator[_Recorded]:
    """Record the scalars that converters hand to `relax.const`, which rounds them to float32.

    TVM has no hook for it; the function is replaced for the duration of one import and put back (seen in TVM 0.27).
    """
    recorded = _Recorded()
    original, importing = relax.const, threading.get_ident()

    def recording(value: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(value, *args, **kwargs)
        if threading.get_ident() != importing:  # a build that runs meanwhile
            return made
        is_number = isinstance(value, numbers.Real) or (isinstance(value, np.ndarray) and value.ndim == 0)
        if is_number and np.isfinite(number := float(value)):
            recorded.note(number, made)
        return made

    relax.const = recording
    try:
        yield recorded
    finally:
        relax.const = original
