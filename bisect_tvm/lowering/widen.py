"""Step 4c: double precision, by re-typing what TVM made (design: section 5).

TVM's importer cannot convert a float64 model: it hard-codes float32 in every matmul and convolution. So the model is imported and
legalized in its own precision, as the user does, and then every float32 (float16, bfloat16) in the Relax functions *and* in the TIR
kernels becomes float64. All formulas, constants and approximations of the importer and of the lowering survive; only rounding goes.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import tvm

from bisect_tvm.lowering.rewrite import Rewriter

NARROW: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
"""The dtypes that are re-typed, as TVM and as numpy name them."""


def widen_functions(functions: Mapping[Any, Any], exact: Iterable[float], *, suffix: str) -> dict[Any, Any]:
    """Re-type all functions of a legalized module to float64.

    Args:
        functions: Relax functions and TIR kernels by global variable.
        exact: numbers as they were before the importer rounded them to float32; where the IR holds such a number rounded, the exact
            one is put back.
        suffix: put behind each function's name, so that both versions fit in one module.
    """
    restore = _Restore(exact)
    rewriter = Rewriter(dtype=_widen_dtype, tensor=restore.tensor, number=restore.number, rename=lambda name: name + suffix)
    return rewriter.functions(functions)


def _widen_dtype(name: str) -> str:
    for narrow in NARROW:
        if name == narrow or name.startswith(f"{narrow}x"):  # with lanes: float32x4
            return "float64" + name.removeprefix(narrow)
    return name


class _Restore:
    """Constants in float64, exact where the importer had rounded them."""

    def __init__(self, exact: Iterable[float]) -> None:
        numbers = np.array(sorted(exact), dtype=np.float64)
        self._by_rounded = {name: self._rounded(numbers, dtype) for name, dtype in NARROW.items()}

    @staticmethod
    def _rounded(numbers: np.ndarray[tuple[int], np.dtype[np.float64]], dtype: np.dtype[Any]) -> dict[float, float]:
        with np.errstate(over="ignore", under="ignore"):
            narrow = numbers.astype(dtype).astype(np.float64)
        # What underflows to 0 or overflows says nothing about any other 0 or inf.
        moved = (narrow != numbers) & (narrow != 0) & np.isfinite(narrow)
        return dict(zip(narrow[moved].tolist(), numbers[moved].tolist(), strict=True))

    def number(self, value: float, dtype: str) -> float:
        """The exact value of an immediate."""
        return self._by_rounded.get(dtype, {}).get(value, value)

    def tensor(self, tensor: Any) -> Any:
        """A constant tensor in float64; a scalar is made exact."""
        name = str(tensor.dtype)
        if name not in NARROW:
            return tensor
        wide = tensor.numpy().astype(np.float64)
        if wide.ndim == 0:
            wide = np.array(self.number(float(wide), name))
        return tvm.runtime.tensor(wide)
