"""What the tests of this room share: from a module to TVM's functions, and to numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram

from bisect_tvm.lowering.build import Builder, parse_target
from bisect_tvm.lowering.importer import Constants, Imported, import_program
from bisect_tvm.lowering.kernels import Functions
from bisect_tvm.lowering.workshop import Runnable, Workshop
from bisect_tvm.stopwatch import Stopwatch
from tests.apply import Apply

TARGET = parse_target("llvm")


def exported(model: Any, *inputs: torch.Tensor, decompose: bool = True) -> ExportedProgram:
    module = model if isinstance(model, nn.Module) else Apply(model)
    program = torch.export.export(module.eval(), inputs)
    return program.run_decompositions() if decompose else program


def imported(model: Any, *inputs: torch.Tensor, convert_map: Any = None) -> Imported:
    return import_program(exported(model, *inputs), convert_map)


def legalized(model: Any, *inputs: torch.Tensor) -> tuple[Functions, Constants]:
    """Functions and kernels, and what is known about the constants that were rounded on the way."""
    made = imported(model, *inputs)
    return Builder(TARGET).lower(dict(made.module.functions_items())), made.constants


def workshop(convert_map: Any = None) -> Workshop:
    return Workshop(Builder(TARGET), convert_map, Stopwatch())


def built(model: Any, *inputs: torch.Tensor, created: Sequence[np.ndarray[Any, Any]] = (), decompose: bool = True) -> Runnable:
    """The model in both precisions. `created` is what the graph makes from nothing, in float64."""
    shop = workshop()
    part = shop.import_one("f", exported(model, *inputs, decompose=decompose), created)
    assert part is not None, shop.failures
    return shop.build_parts({"f": part})["f"]


def run_wide(
    model: Any, *inputs: torch.Tensor, created: Sequence[np.ndarray[Any, Any]] = (), decompose: bool = True
) -> list[np.ndarray[Any, Any]]:
    """What TVM computes in float64, of inputs in float64."""
    runnable = built(model, *inputs, created=created, decompose=decompose)
    return runnable.run_wide([x.double().numpy() if x.is_floating_point() else x.numpy() for x in inputs])
