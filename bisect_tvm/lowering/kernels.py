"""Compiled kernels, shared by all builds of one search.

A build consists of byte code, which is made in no time, and of kernels, on which LLVM spends seconds. Most kernels of a build have
been compiled for the one before (the proof is the model again, with some operators left out), so they are kept, and linked again.
What has to be compiled is dealt out to all cores.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tvm
import tvm_ffi
from tvm import IRModule, relax, tirx

from bisect_tvm.lowering.pipeline import observed
from bisect_tvm.lowering.rewrite import Rewriter

Functions = dict[Any, Any]
"""Relax functions and TIR kernels by global variable."""
LIBRARIES = "external_mods"
"""Attribute of a module that holds compiled libraries, which TVM links to what it compiles (as its own `RunCodegen` uses it)."""
FEWEST = 4
"""Kernels that are worth a thread."""


class Kernels:
    """Compiles modules whose operators have been lowered, and no kernel twice.

    Args:
        target: what to compile for.
    """

    def __init__(self, target: tvm.target.Target) -> None:
        self._target = target
        self._names: dict[int, str] = {}
        """By what a kernel does: its name in the libraries."""
        self._libraries: dict[str, tvm.runtime.Module] = {}
        """By the name of a kernel: where it is."""

    def compile(self, functions: Functions) -> Any:
        """Compile all functions, as `tvm.compile` does with its default pipeline."""
        if not can_share(self._target):
            return tvm.compile(IRModule(functions), target=self._target)
        functions, kernels = self._named(functions)
        with self._compiling(kernels), self._target:
            module = relax.get_pipeline("default")(IRModule(functions))
        needed = dict.fromkeys(self._libraries[variable.name_hint] for variable in kernels)
        left = {variable: f for variable, f in module.functions_items() if not isinstance(f, tirx.PrimFunc)}
        # The module itself, since the executable would write a library to disk for want of kernels of its own.
        return tvm.compile(IRModule(left, attrs={LIBRARIES: list(needed)}), target=self._target, relax_pipeline=None).mod

    def compile_ahead(self, functions: Functions) -> None:
        """Compile the kernels among these functions, for a `compile` to come."""
        if can_share(self._target):
            with self._compiling(self._named(functions)[1]):
                pass

    @contextlib.contextmanager
    def _compiling(self, kernels: Functions) -> Iterator[None]:
        """Compile what has not been compiled, while something else is done."""
        new = {variable: kernel for variable, kernel in kernels.items() if variable.name_hint not in self._libraries}
        with ThreadPoolExecutor(_cores()) as pool:
            waiting = [(some, pool.submit(_in_context(_library), some, self._target)) for some in _dealt(new)]
            yield
            made = [(some, library.result()) for some, library in waiting]
        for some, library in made:
            self._libraries |= dict.fromkeys((variable.name_hint for variable in some), library)
        self._names |= {tvm_ffi.structural_hash(kernel): variable.name_hint for variable, kernel in new.items()}

    def _named(self, functions: Functions) -> tuple[Functions, Functions]:
        """The functions with every kernel under the name that it has in the libraries, or under one that none has there."""
        kernels = {variable: f for variable, f in functions.items() if isinstance(f, tirx.PrimFunc)}
        taken = {*self._names.values(), *(variable.name_hint for variable in functions)}
        renamed: dict[str, str] = {}
        for variable, kernel in kernels.items():
            name = known = self._names.get(tvm_ffi.structural_hash(kernel))
            if known is None:
                name = _unused(variable.name_hint, taken) if variable.name_hint in self._libraries else variable.name_hint
                taken.add(name)
            assert name is not None
            renamed[variable.name_hint] = name
        if all(old == new for old, new in renamed.items()):
            return functions, kernels
        rewrite = Rewriter(rename=lambda name: renamed.get(name, name))
        kernels = {rewrite(variable): kernel for variable, kernel in kernels.items()}
        others = {variable: f for variable, f in functions.items() if not isinstance(f, tirx.PrimFunc)}
        return {**rewrite.functions(others), **kernels}, kernels


def can_share(target: tvm.target.Target) -> bool:
    """True where kernels run on the host that calls them: elsewhere they come in two halves, and passes schedule them first."""
    return bool(target.kind.name == "llvm")


def _library(kernels: Functions, target: tvm.target.Target) -> tvm.runtime.Module:
    """Compile kernels, machine code included."""
    named = {variable: kernel.with_attr("global_symbol", variable.name_hint) for variable, kernel in kernels.items()}
    library = tirx.build(IRModule(named), target, pipeline="default")
    library.get_function(next(iter(named)).name_hint)  # LLVM makes machine code when it is first asked for a function
    return library


def _in_context(action: Callable[..., Any]) -> Callable[..., Any]:
    """The action under the pass context of the thread that calls this, for another thread."""
    context = observed()

    def act(*args: Any) -> Any:
        with context:
            return action(*args)

    return act


def _dealt(kernels: Functions) -> list[Functions]:
    """The kernels in as many heaps as there are cores."""
    heaps = min(_cores(), max(1, len(kernels) // FEWEST))
    items = list(kernels.items())
    return [dict(items[first::heaps]) for first in range(heaps) if items[first::heaps]]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _unused(name: str, taken: Iterable[str]) -> str:
    return next(each for number in range(1, len(set(taken)) + 2) if (each := f"{name}_{number}") not in taken)
