"""Steps 4d and 4e: from Relax functions to numbers."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import IRModule, relax

from bisect_tvm.errors import InputError
from bisect_tvm.lowering.importer import reason_of

Functions = dict[Any, Any]
"""Relax functions and TIR kernels by global variable."""


class BuildError(Exception):
    """TVM could not lower or compile; the message is its reason."""


class RunError(Exception):
    """TVM compiled the function but could not run it; the message is its reason."""


def parse_target(target: Any) -> tvm.target.Target:
    """Make TVM's target of what the user gave (a string, a dict or a target), and see that it can run on this machine.

    Raises:
        InputError: TVM does not know the target, or has no device for it here.
    """
    try:
        parsed = target if isinstance(target, tvm.target.Target) else tvm.target.Target(target)
        device = device_of(parsed)
    except Exception as error:
        raise InputError(f"TVM does not know the target {target!r}: {reason_of(error)}.") from error
    if not device.exist:
        raise InputError(f"The target {target!r} needs a {parsed.kind.name} device, and TVM finds none on this machine.")
    if tvm.get_global_func(f"target.build.{parsed.kind.name}", allow_missing=True) is None:
        raise InputError(f"This build of TVM cannot compile for the target {target!r}.")
    return parsed


def device_of(target: tvm.target.Target) -> tvm.runtime.Device:
    """The first device that runs what is compiled for `target`."""
    on_host = target.get_target_device_type() == tvm.cpu().dlpack_device_type()
    return tvm.cpu() if on_host else tvm.device(target.kind.name)


def legalize(functions: Functions, target: tvm.target.Target) -> Functions:
    """Lower Relax operators to TIR kernels, as the first passes of TVM's default pipeline do.

    Raises:
        BuildError: an operator has no lowering for its types.
    """
    passes = tvm.transform.Sequential(
        [relax.backend.DispatchSampling(), relax.backend.DispatchSortScan(), relax.transform.LegalizeOps()]
    )
    try:
        with target:
            module = passes(IRModule(functions))
    except Exception as error:
        raise BuildError(f"TVM cannot lower it: {reason_of(error)}") from error
    return dict(module.functions_items())


class Builder:
    """Compiles for one target and counts how often it did."""

    def __init__(self, target: tvm.target.Target) -> None:
        self.target = target
        self.builds = 0

    def build(self, functions: Functions) -> "Executable":
        """Compile all functions in one build, with TVM's default pipeline.

        Raises:
            BuildError: with TVM's reason.
        """
        self.builds += 1
        try:
            compiled = tvm.compile(IRModule(functions), target=self.target)
            device = device_of(self.target)
            machine = relax.VirtualMachine(compiled, device)
        except Exception as error:
            raise BuildError(f"TVM cannot compile it: {reason_of(error)}") from error
        return Executable(machine, device)


def failing_kernels(functions: Functions, target: tvm.target.Target) -> dict[str, str]:
    """Compile every TIR kernel on its own and return those that TVM cannot compile, with its reasons.

    A failed build of many functions does not say which one is to blame; kernels are few (equal ones are shared) and small.
    """
    failures = {}
    if target.kind.name == "llvm":
        # Whether a kernel can be compiled does not depend on how well it is optimised.
        target = tvm.target.Target({**json.loads(str(target)), "opt-level": 0})
    for variable, function in functions.items():
        if isinstance(function, tvm.tirx.PrimFunc):
            named = function.with_attr("global_symbol", variable.name_hint)
            try:
                tvm.tirx.build(IRModule({variable: named}), target)
            except Exception as error:
                failures[variable.name_hint] = reason_of(error)
    return failures


def kernels_of(function: Any) -> set[str]:
    """Names of the module's functions that a Relax function calls."""
    if not isinstance(function, relax.Function):
        return set()
    return {variable.name_hint for variable in relax.analysis.all_global_vars(function)}


class Executable:
    """A loaded build."""

    def __init__(self, machine: relax.VirtualMachine, device: tvm.runtime.Device) -> None:
        self._machine = machine
        self._device = device

    def run(self, function: str, inputs: Sequence[NDArray[np.generic]]) -> list[NDArray[np.generic]]:
        """Run one function and return its outputs, flat.

        Raises:
            RunError: with TVM's reason.
        """
        try:
            result = self._machine[function](*[tvm.runtime.tensor(array, self._device) for array in inputs])
            return list(_arrays(result))
        except Exception as error:
            raise RunError(f"TVM cannot run it: {reason_of(error)}") from error


def _arrays(result: Any) -> list[NDArray[np.generic]]:
    if result is None:
        return []
    if isinstance(result, tvm.runtime.Tensor):
        return [result.numpy()]
    if isinstance(result, tvm_ffi.Shape):
        return [np.array([int(size) for size in result])]
    return [array for item in result for array in _arrays(item)]
