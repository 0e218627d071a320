"""Step 4: from exported programs to executables that can be run in both precisions.

Every program becomes one function, all functions of a question sit in one module, and the module is built once. Programs that
import to the same code (the layers of a transformer) share a function. What cannot be imported, lowered or compiled is found
by halving and set aside with TVM's reason; the rest is built all the same.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from torch.export import ExportedProgram
from tvm import relax

from bisect_tvm.lowering.build import (
    Builder,
    BuildError,
    Executable,
    Functions,
    failing_kernels,
    kernels_of,
    legalize,
)
from bisect_tvm.lowering.importer import ConvertMap, Imported, ImporterError, import_program
from bisect_tvm.lowering.rewrite import Rewriter
from bisect_tvm.lowering.widen import Widener
from bisect_tvm.stopwatch import Stopwatch

Arrays = list[NDArray[np.generic]]
Created = Sequence[NDArray[np.float64]]
T = TypeVar("T")
WIDE = "_float64"
"""Behind the name of a function that was re-typed to float64."""


@dataclass(frozen=True)
class Runnable:
    """A program that was built: call it in either precision."""

    function: str
    native: Executable
    wide: Executable
    ambiguous: bool = False
    """Some constants of the float64 version could not be told apart, see `Constants`: it is exact to float32 only there."""

    def run_native(self, inputs: Arrays) -> Arrays:
        """Run as imported. Raises `RunError`."""
        return self.native.run(self.function, inputs)

    def run_wide(self, inputs: Arrays) -> Arrays:
        """Run in float64. Raises `RunError`."""
        return self.wide.run(self.function + WIDE, inputs)


@dataclass
class Workshop:
    """Imports, widens and builds programs."""

    builder: Builder
    convert_map: ConvertMap | None
    clock: Stopwatch
    failures: dict[str, str] = field(default_factory=dict)
    """Why a program could not be imported, lowered or built, by its key."""

    def build_whole(self, exported: ExportedProgram, created: Created = ()) -> Runnable | str:
        """Build the whole program twice: as the user would, and widened. Returns the reason where that fails."""
        try:
            with self.clock("import"):
                imported = import_program(exported, self.convert_map, created)
            with self.clock("build"):
                native = self.builder.build(dict(imported.module.functions_items()))
            functions = _renamed(imported, "main")
            with self.clock("lower"):
                lowered = legalize(functions, self.builder.target)
                widener = Widener(lowered, WIDE)
                widener.add("main", imported.constants)
            with self.clock("build"):
                return Runnable("main", native, self.builder.build(widener.functions), bool(widener.ambiguous))
        except (ImporterError, BuildError) as error:
            return str(error)

    def import_one(self, key: str, exported: ExportedProgram, created: Created) -> Imported | None:
        """Import one program; a refusal is kept in `failures`."""
        try:
            with self.clock("import"):
                return import_program(exported, self.convert_map, created)
        except ImporterError as error:
            self.failures[key] = str(error)
            return None

    def build_parts(self, imported: Mapping[str, Imported]) -> dict[str, Runnable]:
        """Build all programs, in both precisions, in one build where possible."""
        lowered = self._lower(imported)
        keys = list(lowered.reached)
        if not keys:
            return {}
        with contextlib.suppress(BuildError):
            return self._build_together(lowered, keys)
        # The usual cause is a kernel that TVM cannot compile; it is cheaper to find than by building halves.
        keys = self._without_bad_kernels(lowered)
        built: dict[str, Runnable] = {}
        for _, some in _halve(keys, lambda few: self._build_together(lowered, few), self._set_aside):
            built |= some
        return built

    def _lower(self, imported: Mapping[str, Imported]) -> "_Lowered":
        """Legalize and widen all programs that can be, once for all builds that follow."""
        groups = {key: _renamed(each, key) for key, each in imported.items()}
        with self.clock("lower"):
            sound = _halve(list(groups), lambda keys: self._legalize(groups, keys), self._set_aside)
            keys = [key for some, _ in sound for key in some]
            # Halves cannot be put together: kernels of both may have the same name, and equal ones are to be shared.
            native = sound[0][1] if len(sound) == 1 else self._legalize(groups, keys)
            widener = Widener(native, WIDE)
            for key in keys:
                widener.add(key, imported[key].constants)
            functions = {**native, **widener.functions}
            return _Lowered(functions, _reached(functions, keys), frozenset(widener.ambiguous))

    def _legalize(self, groups: Mapping[str, Functions], keys: Sequence[str]) -> Functions:
        merged = {name: function for key in keys for name, function in groups[key].items()}
        return legalize(merged, self.builder.target)

    def _build_together(self, lowered: "_Lowered", keys: Sequence[str]) -> dict[str, Runnable]:
        with self.clock("build"):
            executable = self.builder.build(lowered.functions_of(keys))
        return {key: Runnable(key, executable, executable, key in lowered.ambiguous) for key in keys}

    def _without_bad_kernels(self, lowered: "_Lowered") -> list[str]:
        """The programs all of whose kernels can be compiled; the others go to `failures`."""
        with self.clock("check kernels"):
            failing = failing_kernels(lowered.functions, self.builder.target)
        for key, names in lowered.reached.items():
            bad = sorted(names & failing.keys())
            if bad:
                self._set_aside(key, f"TVM cannot compile its kernel {bad[0]}: {failing[bad[0]]}")
        return [key for key in lowered.reached if key not in self.failures]

    def _set_aside(self, key: str, reason: str) -> None:
        self.failures[key] = reason


@dataclass(frozen=True)
class _Lowered:
    """Programs in both precisions, ready to be compiled."""

    functions: Functions
    reached: Mapping[str, frozenset[str]]
    """By the key of a program: the names of all functions that it consists of."""
    ambiguous: frozenset[str]
    """Keys whose constants could not all be told apart."""

    def functions_of(self, keys: Sequence[str]) -> Functions:
        """All functions but those that only other programs need."""
        needed = {name for key in keys for name in self.reached[key]}
        unneeded = {name for names in self.reached.values() for name in names} - needed
        return {variable: f for variable, f in self.functions.items() if variable.name_hint not in unneeded}


def _reached(functions: Functions, keys: Sequence[str]) -> dict[str, frozenset[str]]:
    """By key: the program's functions of both precisions, and all that they call."""
    calls = {variable.name_hint: kernels_of(function) for variable, function in functions.items()}
    found = {}
    for key in keys:
        names: set[str] = set()
        waiting = {key, key + WIDE}
        while waiting:
            names |= waiting
            waiting = set().union(*(calls[name] for name in waiting)) - names
        found[key] = frozenset(names)
    return found


def _halve(
    keys: list[str], attempt: Callable[[Sequence[str]], T], refused: Callable[[str, str], None]
) -> list[tuple[list[str], T]]:
    """Attempt all keys at once; where that fails, each half, down to the single keys that are to blame."""
    done: list[tuple[list[str], T]] = []
    waiting = [keys] if keys else []
    while waiting:
        some = waiting.pop()
        try:
            done.append((some, attempt(some)))
        except BuildError as error:
            if len(some) == 1:
                refused(some[0], str(error))
            else:
                waiting += [some[len(some) // 2 :], some[: len(some) // 2]]
    return done


def _renamed(imported: Imported, key: str) -> Functions:
    """The module's functions under names of their own, so that many modules fit in one."""
    rename = Rewriter(rename=lambda name: key if name == "main" else f"{key}_{name}")
    functions = rename.functions(dict(imported.module.functions_items()))
    # The number of inputs that are not parameters is a hint for passes on the function, and there are none in a cut.
    return {name: f.with_attr("global_symbol", name.name_hint) if isinstance(f, relax.Function) else f
            for name, f in functions.items()}  # fmt: skip
