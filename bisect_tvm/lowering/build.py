"""Steps 4d and 4e: from Relax functions to numbers."""

import contextlib
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import IRModule, relax

from bisect_tvm.errors import InputError
from bisect_tvm.lowering.importer import reason_of
from bisect_tvm.lowering.kernels import Functions, Kernels
from bisect_tvm.lowering.pipeline import Pipeline

ALIGNMENT = 64
"""Bytes to which TVM's kernels expect tensors to be aligned."""


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


def unoptimised(target: tvm.target.Target) -> tvm.target.Target:
    """The same target at opt-level 0, where it has such a level."""
    if target.kind.name != "llvm":
        return target
    return tvm.target.Target({**json.loads(str(target)), "opt-level": 0})


def is_unoptimised(target: tvm.target.Target) -> bool:
    """True at opt-level 0."""
    return bool(json.loads(str(target)).get("opt-level") == 0)


class Builder:
    """Compiles for one target, and counts how often it did.

    Args:
        target: what to compile for.
        pipeline: the user's passes.
        allow: called before each build; raises when there may be no more.
        kernels: those that were compiled for the same target before.
    """

    def __init__(
        self,
        target: tvm.target.Target,
        pipeline: Pipeline | None = None,
        allow: Callable[[], None] = lambda: None,
        kernels: Kernels | None = None,
    ) -> None:
        self.target = target
        self.pipeline = pipeline or Pipeline()
        self.builds = 0
        self.kernels = kernels or Kernels(target)
        self._allow = allow
        self._count = threading.Lock()

    def lower(self, functions: Functions) -> Functions:
        """Run the user's passes as far as the IR can still be re-typed, and lower all Relax operators to TIR kernels.

        Raises:
            BuildError: a pass fails, or an operator has no lowering for its types.
        """
        try:
            module = self.pipeline.relax_part(IRModule(functions), self.target)
        except Exception as error:
            raise BuildError(f"TVM cannot lower it: {reason_of(error)}") from error
        return dict(module.functions_items())

    def build_as_given(self, functions: Functions) -> "Executable":
        """Compile what the importer made as the user does. Raises `BuildError`."""
        return self._build(lambda: self.pipeline.compile(IRModule(functions), self.target))

    def build(self, lowered: Functions) -> "Executable":
        """Compile what `lower` made, all functions in one build; kernels of earlier builds are used again. Raises `BuildError`."""
        return self._build(lambda: self.kernels.compile(lowered))

    def compile_ahead(self, lowered: Functions) -> None:
        """Compile the kernels of a later build; no build by itself. Raises `BuildError`."""
        try:
            self.kernels.compile_ahead(lowered)
        except Exception as error:
            raise BuildError(f"TVM cannot compile it: {reason_of(error)}") from error

    def _build(self, compile: Callable[[], Any]) -> "Executable":
        with self._count:
            self._allow()
            self.builds += 1
        try:
            device = device_of(self.target)
            machine = relax.VirtualMachine(compile(), device)
        except Exception as error:
            raise BuildError(f"TVM cannot compile it: {reason_of(error)}") from error
        return Executable(machine, device)


def failing_kernels(functions: Functions, target: tvm.target.Target) -> dict[str, str]:
    """Compile every TIR kernel on its own and return those that TVM cannot compile, with its reasons.

    A failed build of many functions does not say which one is to blame; kernels are few (equal ones are shared) and small.
    """
    failures = {}
    target = unoptimised(target)  # whether a kernel can be compiled does not depend on how well it is optimised
    for variable, function in functions.items():
        if isinstance(function, tvm.tirx.PrimFunc):
            named = function.with_attr("global_symbol", variable.name_hint)
            try:
                tvm.tirx.build(IRModule({variable: named}), target)
            except Exception as error:
                failures[variable.name_hint] = reason_of(error)
    return failures


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
            result = self._machine[function](*[self._tensor(array) for array in inputs])
            return list(_arrays(result))
        except Exception as error:
            raise RunError(f"TVM cannot run it: {reason_of(error)}") from error

    def _tensor(self, array: NDArray[np.generic]) -> tvm.runtime.Tensor:
        """The array on the device; without a copy where the memory is on the host and aligned as TVM's kernels expect."""
        on_host = self._device.dlpack_device_type() == tvm.cpu().dlpack_device_type()
        if on_host and array.dtype.kind in "iuf" and array.ctypes.data % ALIGNMENT == 0 and array.flags.c_contiguous and array.size:
            with contextlib.suppress(BufferError, RuntimeError, TypeError):  # read-only, or a dtype that numpy does not export
                return tvm.runtime.from_dlpack(array)
        return tvm.runtime.tensor(array, self._device)


def _arrays(result: Any) -> list[NDArray[np.generic]]:
    if result is None:
        return []
    if isinstance(result, tvm.runtime.Tensor):
        return [result.numpy()]
    if isinstance(result, tvm_ffi.Shape):
        return [np.array([int(size) for size in result])]
    return [array for item in result for array in _arrays(item)]
