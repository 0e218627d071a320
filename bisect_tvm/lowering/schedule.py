"""Step 4d: make slow kernels faster, without changing a bit of what they compute."""

from typing import Any

import tvm
from tvm import IRModule, s_tir

from bisect_tvm.lowering.build import Functions


def scheduled(functions: Functions) -> Functions:
    """The same functions, with the loops of matrix products put in an order that the processor likes."""
    return {variable: _faster(function) for variable, function in functions.items()}


def _faster(function: Any) -> Any:
    if not isinstance(function, tvm.tirx.PrimFunc):
        return function
    try:
        schedule = s_tir.Schedule(IRModule({"main": function}))
        block = schedule.get_sblock("matmul")
        *_, column, inner = schedule.get_loops(block)
        schedule.reorder(inner, column)
        schedule.decompose_reduction(block, inner)
        return schedule.mod["main"]
    except Exception:
        return function
