"""PyTorch's own decompositions of operators, beyond those that export and TVM's importer run by themselves."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

# Private, and the only way to the decompositions that PyTorch holds but does not run by default (seen in torch 2.13). The code
# that a user is advised to paste imports it from the same place.
from torch._decomp import get_decompositions
from torch.export import ExportedProgram

from bisect_tvm.errors import CaptureError, one_line
from bisect_tvm.model.capture import Program
from bisect_tvm.model.reference import Env, float64_default, run_nodes

Operator = torch._ops.OpOverload
Rewrites = dict[Operator, Callable[..., object]]


def operator_of(node: torch.fx.Node) -> Operator | None:
    """The operator that a graph node calls, None for what is no operator (`getitem`)."""
    return node.target if isinstance(node.target, Operator) else None


def can_be_decomposed(operator: Operator) -> bool:
    """True if PyTorch holds a decomposition of `operator`."""
    return bool(get_decompositions([operator]))


def decomposed(exported: ExportedProgram, operators: Sequence[Operator] = (), rewrites: Rewrites | None = None) -> ExportedProgram:
    """Run PyTorch's default decompositions, and also those of `operators`.

    Args:
        exported: the program.
        operators: operators to decompose that by default are not.
        rewrites: functions that compute an operator by others, used before PyTorch's own decompositions.

    Raises:
        CaptureError: PyTorch cannot; its reason is in the message.
    """
    table: Any = torch.export.default_decompositions()
    table.update(get_decompositions(list(operators)))
    table.update(rewrites or {})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, about its own containers
            made: ExportedProgram = exported.run_decompositions(table)
    except Exception as error:
        raise CaptureError(f"PyTorch cannot decompose it: {one_line(error)}") from error
    return made


def program_of(exported: ExportedProgram) -> Program:
    """A cut as a program of its own: without values."""
    return Program(exported, {}, (), (), "", frozenset())


def created_by(exported: ExportedProgram) -> list[NDArray[np.float64]]:
    """What operators of a cut make from nothing but numbers (`arange`), in float64.

    Raises:
        CaptureError: PyTorch cannot run one of them.
    """
    program, env = program_of(exported), Env()
    names = [node.name for node in exported.graph.nodes if node.op == "call_function" and not node.all_input_nodes]
    with float64_default():
        run_nodes(program, names, env, wide=True)
    return [value.numpy() for value in env.values() if isinstance(value, torch.Tensor) and value.dtype is torch.float64]
