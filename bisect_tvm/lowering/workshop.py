"""Step 4: from exported programs to executables that can be run in both precisions.

Every program becomes one function, all functions of a question sit in one module, and the module is built once. Programs that
import to the same code (the layers of a transformer) share a function. What cannot be imported, lowered or compiled is found
by halving and set aside with TVM's reason; the rest is built all the same.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from torch.export import ExportedProgram
from tvm import relax

from bisect_tvm.lowering.build import Builder, BuildError, Executable, failing_kernels
from bisect_tvm.lowering.importer import ConvertMap, Imported, ImporterError, import_program
from bisect_tvm.lowering.kernels import Functions, kernels_of
from bisect_tvm.lowering.pipeline import in_context
from bisect_tvm.lowering.rewrite import Rewriter
from bisect_tvm.lowering.schedule import scheduled
from bisect_tvm.lowering.widen import Widener
from bisect_tvm.stopwatch import Stopwatch

Arrays = list[NDArray[np.generic]]
Created = Sequence[NDArray[np.float64]]
T = TypeVar("T")
V = TypeVar("V")
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
    _prepared: "_Lowered | None" = None

    def import_one(self, key: str, exported: ExportedProgram, created: Created) -> Imported | None:
        """Import one program; a refusal is kept in `failures`."""
        try:
            with self.clock("import"):
                return import_program(exported, self.convert_map, created)
        except ImporterError as error:
            self.failures[key] = str(error)
            return None

    def build_as_given(self, imported: Imported) -> Executable | str:
        """Build a whole program exactly as the user does. Returns the reason where that fails."""
        try:
            with self.clock("build"):
                return self.builder.build_as_given(_functions(imported))
        except BuildError as error:
            return str(error)

    def build_parts(self, imported: Mapping[str, Imported]) -> dict[str, Runnable]:
        """Build all programs in both precisions, in one build where possible."""
        lowered = self._prepared
        if lowered is None or not set(imported) - set(self.failures) <= set(lowered.keys):
            lowered = self._lower(imported)
        keys = [key for key in lowered.keys if key in imported]
        if not keys:
            return {}
        with contextlib.suppress(BuildError):
            return self._build_together(lowered, keys)
        # The usual cause is a kernel that TVM cannot compile; it is cheaper to find than by building halves.
        keys = self._without_bad_kernels(lowered, keys)
        built: dict[str, Runnable] = {}
        for _, some in _halve(keys, lambda few: self._build_together(lowered, few), self._set_aside):
            built |= some
        return built

    def prepare(self, imported: Mapping[str, Imported]) -> None:
        """Lower all programs, and compile their kernels, ahead of `build_parts`, which may then be asked for some of them."""
        self._prepared = self._lower(imported)
        with self.clock("build"), contextlib.suppress(BuildError):  # which will come up again
            self.builder.compile_ahead(self._prepared.functions_of(self._prepared.keys))

    def _lower(self, imported: Mapping[str, Imported]) -> "_Lowered":
        """Lower and widen all programs that can be, once for all builds that follow."""
        with self.clock("lower"):
            if self.builder.pipeline.is_default:
                native = self._lower_together({key: _renamed(_functions(each), key) for key, each in imported.items()})
            else:
                native = self._lower_one_by_one(imported)
            keys = [key for key in imported if key not in self.failures]
            native = scheduled(native)
            widener = Widener(native, WIDE)
            for key in keys:
                widener.add(key, imported[key].constants)
            functions = {**native, **widener.functions}
            return _Lowered(keys, functions, _reached(functions, keys), frozenset(widener.ambiguous))

    def _lower_together(self, groups: Mapping[str, Functions]) -> Functions:
        """Lower everything in one module, so that equal kernels are shared."""

        def lower(keys: Sequence[str]) -> Functions:
            return self.builder.lower({name: function for key in keys for name, function in groups[key].items()})

        sound = _halve(list(groups), lower, self._set_aside)
        # Halves cannot be put together: kernels of both may have the same name, and equal ones are to be shared.
        return sound[0][1] if len(sound) == 1 else lower([key for some, _ in sound for key in some])

    def _lower_one_by_one(self, imported: Mapping[str, Imported]) -> Functions:
        """Lower each program as a module of its own: the user's passes may look for a function named main, or at the whole."""
        native: Functions = {}
        for key, each in imported.items():
            try:
                native |= _renamed(self.builder.lower(_functions(each)), key)
            except BuildError as error:
                self._set_aside(key, str(error))
        return native

    def _build_together(self, lowered: "_Lowered", keys: Sequence[str]) -> dict[str, Runnable]:
        with self.clock("build"):
            executable = self.builder.build(lowered.functions_of(keys))
        return {key: Runnable(key, executable, executable, key in lowered.ambiguous) for key in keys}

    def _without_bad_kernels(self, lowered: "_Lowered", keys: Sequence[str]) -> list[str]:
        """The programs all of whose kernels can be compiled; the others go to `failures`."""
        with self.clock("check kernels"):
            failing = failing_kernels(lowered.functions_of(keys), self.builder.target)
        for key in keys:
            bad = sorted((lowered.reached[key] | lowered.reached[key + WIDE]) & failing.keys())
            if bad:
                self._set_aside(key, f"TVM cannot compile its kernel {bad[0]}: {failing[bad[0]]}")
        return [key for key in keys if key not in self.failures]

    def _set_aside(self, key: str, reason: str) -> None:
        self.failures[key] = reason


@dataclass(frozen=True)
class _Lowered:
    """Programs in both precisions, ready to be compiled."""

    keys: list[str]
    functions: Functions
    reached: Mapping[str, frozenset[str]]
    """By the name of a program's function in either precision: the names of all functions that it consists of."""
    ambiguous: frozenset[str]
    """Keys whose constants could not all be told apart."""

    def functions_of(self, keys: Sequence[str]) -> Functions:
        """All functions of these programs, of both precisions."""
        needed = {name for key in keys for suffix in ("", WIDE) for name in self.reached[key + suffix]}
        return {variable: f for variable, f in self.functions.items() if variable.name_hint in needed}


def _reached(functions: Functions, keys: Sequence[str]) -> dict[str, frozenset[str]]:
    """By the name of a program's function: all that it calls, and what that calls."""
    calls = {variable.name_hint: kernels_of(function) for variable, function in functions.items()}
    found = {}
    for name in (key + suffix for key in keys for suffix in ("", WIDE)):
        names: set[str] = set()
        waiting = {name}
        while waiting:
            names |= waiting
            waiting = set().union(*(calls[each] for each in waiting)) - names
        found[name] = frozenset(names)
    return found


@contextlib.contextmanager
def in_background(action: Callable[[V], T], argument: V) -> Iterator[Callable[[], T]]:
    """Begin an action in another thread, under the user's pass context; gives a function that waits for its result."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(in_context(action), argument).result


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


def _functions(imported: Imported) -> Functions:
    return dict(imported.module.functions_items())


def _renamed(module: Functions, key: str) -> Functions:
    """The module's functions under names of their own, so that many modules fit in one."""
    rename = Rewriter(rename=lambda name: key if name == "main" else f"{key}_{name}")
    functions = rename.functions(module)
    # The number of inputs that are not parameters is a hint for passes on the function, and there are none in a cut.
    return {name: f.with_attr("global_symbol", name.name_hint) if isinstance(f, relax.Function) else f
            for name, f in functions.items()}  # fmt: skip
