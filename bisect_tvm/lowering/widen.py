"""Step 4c: double precision, by re-typing what TVM made (design: section 5).

TVM's importer cannot convert a float64 model: it hard-codes float32 in every matmul and convolution. So the model is
imported and legalized in its own precision, as the user does, and then every float32 (float16, bfloat16) in the Relax
functions *and* in the TIR kernels becomes float64. All formulas, constants and approximations of the importer and of the
lowering survive; only rounding goes.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from bisect_tvm.lowering.importer import Constants
from bisect_tvm.lowering.kernels import Functions, kernels_of
from bisect_tvm.lowering.rewrite import Rewriter

NARROW: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
"""The dtypes that are re-typed, as TVM and as numpy name them."""


class Widener:
    """Adds float64 versions of the functions of one legalized module.

    Kernels are shared: one that holds no number that was rounded is widened once. Where two parts have different exact numbers
    behind the same rounded one, each gets a version of its own.
    """

    def __init__(self, lowered: Functions, suffix: str) -> None:
        self.functions: Functions = {}
        self.ambiguous: set[str] = set()
        """Parts whose constants could not all be told apart, see `Constants`."""
        self._suffix = suffix
        self._lowered = {variable.name_hint: (variable, function) for variable, function in lowered.items()}
        self._variables: dict[str, Any] = {}
        self._numbers: dict[str, frozenset[tuple[float, str]]] = {}
        self._versions: dict[str, dict[frozenset[tuple[float, float]], str]] = defaultdict(dict)

    def add(self, name: str, constants: Constants) -> None:
        """Widen the Relax function `name` and all that it calls; the result is called `name` with the suffix."""
        restore = _Restore(constants)
        names: dict[str, str] = {}
        waiting, relaxed = [name], []
        while waiting:
            current = waiting.pop()
            if current in names:
                continue
            if isinstance(self._lowered[current][1], relax.Function):
                names[current] = current + self._suffix
                relaxed.append(current)
                waiting += kernels_of(self._lowered[current][1])
            else:
                names[current] = self._kernel(current, restore)
        for current in relaxed:
            self._put(current, restore.tensor, restore.number, names)
        if restore.met_ambiguous or constants.vanished:
            self.ambiguous.add(name)

    def _kernel(self, name: str, restore: "_Restore") -> str:
        """The name of the version of a kernel that has these exact numbers."""
        if name not in self._numbers:
            self._numbers[name] = _numbers_in(self._lowered[name][1])
        exact = {value: restore.number(value, dtype) for value, dtype in self._numbers[name]}
        changes = frozenset((value, wide) for value, wide in exact.items() if wide != value)
        versions = self._versions[name]
        if changes not in versions:
            new = f"{name}{self._suffix}" + (f"_{len(versions)}" if versions else "")
            versions[changes] = self._put(name, restore.tensor, lambda value, dtype: exact.get(value, value), {name: new})
        return versions[changes]

    def _put(self, name: str, tensor: Any, number: Any, names: dict[str, str]) -> str:
        """Add the wide version of one function, and give its name; that of a kernel without anything to widen is its own."""
        rewriter = Rewriter(
            dtype=_widen_dtype,
            tensor=tensor,
            number=number,
            rename=lambda old: names.get(old, old),
            variables=self._variables,
        )
        variable, function = self._lowered[name]
        if not isinstance(function, relax.Function) and rewriter(function).same_as(function):
            return name
        self.functions.update(rewriter.functions({variable: function}))
        return names[name]


def _numbers_in(function: Any) -> frozenset[tuple[float, str]]:
    found: set[tuple[float, str]] = set()

    def note(value: float, dtype: str) -> float:
        if dtype in NARROW:
            found.add((value, dtype))
        return value

    Rewriter(number=note)(function)
    return frozenset(found)


def _widen_dtype(name: str) -> str:
    for narrow in NARROW:
        if name == narrow or name.startswith(f"{narrow}x"):  # with lanes: float32x4
            return "float64" + name.removeprefix(narrow)
    return name


class _Restore:
    """Constants in float64, exact where they had been rounded."""

    def __init__(self, constants: Constants) -> None:
        self._candidates = {name: _by_rounded(constants.numbers, dtype) for name, dtype in NARROW.items()}
        self._arrays = constants.arrays
        self._bound = constants.bound
        self.met_ambiguous = False

    def number(self, value: float, dtype: str) -> float:
        """The exact value of an immediate; the rounded one where it could be several."""
        candidates = self._candidates.get(dtype, {}).get(value, ())
        if len(candidates) > 1:
            self.met_ambiguous = True
        return candidates[0] if len(candidates) == 1 else value

    def tensor(self, tensor: Any) -> Any:
        """A constant tensor in float64: a scalar as a number, and what the graph itself creates (arange) as PyTorch has it."""
        name = str(tensor.dtype)
        if name not in NARROW:
            return tensor
        narrow: NDArray[Any] = tensor.numpy()
        if narrow.ndim == 0:
            return tvm.runtime.tensor(np.array(self.number(float(narrow), name)))
        wide = narrow.astype(np.float64)
        for exact in self._arrays:
            if exact.shape == narrow.shape and _rounds_to(exact, narrow) and not np.array_equal(exact, wide):
                if not any(np.array_equal(bound, wide) for bound in self._bound):
                    return tvm.runtime.tensor(exact)
                self.met_ambiguous = True  # a parameter that is as it is, or what the graph creates and TVM rounded
        return tvm.runtime.tensor(wide)


def _rounds_to(exact: NDArray[np.float64], narrow: NDArray[Any]) -> bool:
    """True if `narrow` is `exact` computed in its own precision: a step that is added up is off by a few roundings."""
    if exact.size and np.all(exact == exact.flat[0]):  # nothing was added up
        return bool(np.all(exact.astype(narrow.dtype) == narrow))
    unit = float(ml_dtypes.finfo(narrow.dtype).eps)  # type: ignore[no-untyped-call]  # of ml_dtypes
    error = np.abs(narrow.astype(np.float64) - exact)
    return bool(np.all(error <= 4 * unit * np.max(np.abs(exact), initial=0.0)))


def _by_rounded(numbers: Iterable[float], dtype: np.dtype[Any]) -> dict[float, tuple[float, ...]]:
    """Which exact numbers a rounded one can stand for; only those that rounding changes have an entry."""
    wide = np.array(sorted(numbers), dtype=np.float64)
    with np.errstate(over="ignore", under="ignore"):
        narrow = wide.astype(dtype).astype(np.float64)
    found: dict[float, tuple[float, ...]] = {}
    for rounded, exact in zip(narrow.tolist(), wide.tolist(), strict=True):
        # What underflows to 0 or overflows says nothing about any other 0 or inf.
        if rounded != 0 and np.isfinite(rounded):
            found[rounded] = (*found.get(rounded, ()), exact)
    return {rounded: exact for rounded, exact in found.items() if exact != (rounded,)}
