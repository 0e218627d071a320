"""Step 4b: from an exported program to a Relax function, exactly as the user converts it."""

import contextlib
import numbers
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import tvm_ffi
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree
from tvm import IRModule, relax
from tvm.relax.frontend.torch import from_exported_program

MOST_SIZES = 64
"""Sizes whose ratios are considered; more would only add chance matches."""

ConvertMap = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class Imported:
    """What the importer made of one program."""

    module: IRModule
    """With the function ``main``, and whatever a user's own converter added."""
    exact: frozenset[float]
    """Numbers that may stand rounded to float32 in the module, before they were rounded: those of the graph, those given to
    `relax.const`, and ratios of sizes (resize computes its coordinates from them)."""


class ImporterError(Exception):
    """The importer refused the program; the message is its reason."""


def import_program(exported: ExportedProgram, convert_map: ConvertMap | None) -> Imported:
    """Convert `exported`, which is already decomposed or not as the user wants it.

    Raises:
        ImporterError: with the importer's own reason.
    """
    with _constants_recorded() as exact:
        try:
            module = from_exported_program(
                exported, custom_convert_map=dict(convert_map) if convert_map else None, run_ep_decomposition=False
            )
        except Exception as error:  # whatever a converter raises, the user's own included
            raise ImporterError(f"TVM's importer refuses it: {reason_of(error)}") from error
    return Imported(module, frozenset(exact | _literals(exported) | _size_ratios(exported)))


def structural_key(module: IRModule) -> int:
    """A hash that is equal for modules that are equal but for the names of their variables."""
    return int(tvm_ffi.structural_hash(module))


def equal(first: IRModule, second: IRModule) -> bool:
    """True if the modules are equal but for the names of their variables."""
    return bool(tvm_ffi.structural_equal(first, second))


def reason_of(error: BaseException) -> str:
    """The telling line of an error of TVM, whose messages can hold a whole stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("File ", "Traceback", "[bt]", "During handling"))]
    text = (telling or lines or [""])[0].rstrip(" :")
    return f"{type(error).__name__}: {text[:400]}" if text else type(error).__name__


def _literals(exported: ExportedProgram) -> set[float]:
    """All floating-point numbers that stand in the graph."""
    leaves = (leaf for node in exported.graph.nodes for leaf in pytree.tree_leaves((node.args, node.kwargs)))
    return {leaf for leaf in leaves if isinstance(leaf, float) and np.isfinite(leaf)}


def _size_ratios(exported: ExportedProgram) -> set[float]:
    """Ratios of the sizes that occur in the graph, and of the distances between their end points."""
    values = (leaf for node in exported.graph.nodes for leaf in pytree.tree_leaves(node.meta.get("val")))
    sizes = {size for value in values if isinstance(value, torch.Tensor) for size in value.shape if isinstance(size, int)}
    some = sorted(sizes)[:MOST_SIZES]
    pairs = [(a - less, b - less) for a in some for b in some for less in (0, 1)]
    return {a / b for a, b in pairs if a > 0 and b > 0}


@contextlib.contextmanager
def _constants_recorded() -> Iterator[set[float]]:
    """Record the scalars that converters hand to `relax.const`, which rounds them to float32.

    TVM has no hook for it; the function is replaced for the duration of one import and put back (seen in TVM 0.27).
    """
    recorded: set[float] = set()
    original = relax.const

    def recording(value: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(value, numbers.Real) or (isinstance(value, np.ndarray) and value.ndim == 0):
            number = float(value)
            if np.isfinite(number):
                recorded.add(number)
        return original(value, *args, **kwargs)

    relax.const = recording
    try:
        yield recorded
    finally:
        relax.const = original
