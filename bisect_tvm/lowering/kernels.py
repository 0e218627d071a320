"""Compiled kernels, shared by all builds of one search.

A build consists of byte code, which is made in no time, and of kernels, on which LLVM spends seconds. Most kernels of a build have
been compiled for the one before (the proof is the model again, with some operators left out), so they are kept, and linked again.
What has to be compiled is dealt out to all cores.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tvm
import tvm_ffi
from tvm import IRModule, relax, tirx

from bisect_tvm.cores import cores
from bisect_tvm.lowering.importer import ALONE
from bisect_tvm.lowering.pipeline import in_context
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
        names = self._names_of(functions)
        functions = _renamed(functions, names)
        kernels = _kernels(functions)
        with self._compiling(kernels), ALONE, self._target:
            module = relax.get_pipeline("default")(IRModule(functions))
        needed = dict.fromkeys(self._libraries[name] for name in kernels)
        left = {variable: f for variable, f in module.functions_items() if not isinstance(f, tirx.PrimFunc)}
        # The module itself, since the executable would write a library to disk for want of kernels of its own.
        return tvm.compile(IRModule(left, attrs={LIBRARIES: list(needed)}), target=self._target, relax_pipeline=None).mod

    def compile_ahead(self, functions: Functions) -> None:
        """Compile the kernels among these functions, for a `compile` to come."""
        if can_share(self._target):
            names = self._names_of(functions)
            with self._compiling({names.get(name, name): kernel for name, kernel in _kernels(functions).items()}):
                pass

    @contextlib.contextmanager
    def _compiling(self, kernels: Mapping[str, Any]) -> Iterator[None]:
        """Compile what has not been compiled, while something else is done."""
        new = {name: kernel for name, kernel in kernels.items() if name not in self._libraries}
        with ThreadPoolExecutor(cores()) as pool:
            waiting = [(some, pool.submit(in_context(_library), some, self._target)) for some in _dealt(new)]
            yield
            made = [(some, library.result()) for some, library in waiting]
        for some, library in made:
            self._libraries |= dict.fromkeys(some, library)
        self._names |= {tvm_ffi.structural_hash(kernel): name for name, kernel in new.items()}

    def _names_of(self, functions: Functions) -> dict[str, str]:
        """New names where a kernel has one in the libraries, or where another kernel has its name there."""
        taken = {*self._libraries, *(variable.name_hint for variable in functions)}
        renamed: dict[str, str] = {}
        for name, kernel in _kernels(functions).items():
            new = self._names.get(tvm_ffi.structural_hash(kernel))
            if new is None:
                new = _unused(name, taken) if name in self._libraries else name
                taken.add(new)
            if new != name:
                renamed[name] = new
        return renamed


def _kernels(functions: Functions) -> dict[str, Any]:
    return {variable.name_hint: f for variable, f in functions.items() if isinstance(f, tirx.PrimFunc)}


def _renamed(functions: Functions, names: Mapping[str, str]) -> Functions:
    """The functions with some kernels under other names."""
    if not names:
        return functions
    # A variable is known by identity, and knows the types of what it calls: those that keep their names stay the same objects.
    staying = {variable.name_hint: variable for variable in functions if variable.name_hint not in names}
    rewrite = Rewriter(rename=lambda name: names.get(name, name), variables=staying)
    calling = {
        v: f for v, f in functions.items() if not isinstance(f, tirx.PrimFunc) and not names.keys().isdisjoint(kernels_of(f))
    }
    kept = {rewrite(variable): f for variable, f in functions.items() if variable not in calling}
    return kept | rewrite.functions(calling)


def kernels_of(function: Any) -> set[str]:
    """Names of the module's functions that a Relax function calls."""
    if not isinstance(function, relax.Function):
        return set()
    return {variable.name_hint for variable in relax.analysis.all_global_vars(function)}


def can_share(target: tvm.target.Target) -> bool:
    """True where kernels run on the host that calls them: elsewhere they come in two halves, and passes schedule them first."""
    return bool(target.kind.name == "llvm")


def _library(kernels: Mapping[str, Any], target: tvm.target.Target) -> tvm.runtime.Module:
    """Compile kernels, machine code included."""
    library = tirx.build(IRModule({n: f.with_attr("global_symbol", n) for n, f in kernels.items()}), target, pipeline="default")
    library.get_function(next(iter(kernels)))  # LLVM makes machine code when it is first asked for a function
    return library


def _dealt(kernels: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The kernels in as many heaps as there are cores."""
    heaps = min(cores(), max(1, len(kernels) // FEWEST))
    items = list(kernels.items())
    return [dict(items[first::heaps]) for first in range(heaps) if items[first::heaps]]


def _unused(name: str, taken: Iterable[str]) -> str:
    return next(each for number in range(1, len(set(taken)) + 2) if (each := f"{name}_{number}") not in taken)
