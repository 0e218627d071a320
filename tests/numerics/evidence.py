"""Synthetic evidence for the judge: what both sides computed, and what rounding explains, as plain arrays."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from bisect_tvm.numerics.judge import OutputEvidence
from bisect_tvm.numerics.metrics import Floor

UNIT64, UNIT32 = 2.0**-52, 2.0**-23
Array = np.ndarray[Any, np.dtype[Any]]

moderate = st.floats(1e-3, 1e3).flatmap(lambda size: st.sampled_from([size, -size]))
"""Numbers far from overflow and underflow, also after scaling."""
shapes = arrays_of.array_shapes(min_dims=0, max_dims=3, max_side=4)
values = arrays_of.arrays(np.float64, shapes, elements=moderate)
anything = st.floats(allow_nan=True, allow_infinity=True)


def floors(expected: Array, spread: Array | float, unit: float) -> Array:
    """The noise floor of each element, as it is defined."""
    return np.asarray(np.asarray(spread) + unit * np.abs(expected))


def evidence(
    expected: Array,
    error: Array | float = 0.0,
    *,
    error_native: Array | float | None = None,
    own_native: Array | float = 0.0,
    spread: Array | float = 0.0,
    spread_native: Array | float = 0.0,
    name: str = "out",
) -> OutputEvidence:
    """TVM is off by `error` in float64 and by `error_native` (the same, if not given) in float32.

    `own_native` is how far PyTorch's own float32 is from the reference.
    """
    native = (expected + own_native).astype(np.float32)
    shift = error if error_native is None else error_native
    return OutputEvidence(
        name=name,
        expected=expected,
        expected_native=native,
        actual=np.asarray(expected + error),
        actual_native=np.asarray((native + shift).astype(np.float32)),
        floor=Floor(np.broadcast_to(np.asarray(spread, dtype=np.float64), expected.shape), UNIT64),
        floor_native=Floor(np.broadcast_to(np.asarray(spread_native, dtype=np.float64), expected.shape), UNIT32),
    )


def of_arrays(
    expected: Array, actual: Array, expected_native: Array | None = None, actual_native: Array | None = None
) -> OutputEvidence:
    """Arrays as they are, with no spread; the native ones are the same arrays if not given."""
    nothing = np.zeros(expected.shape)
    return OutputEvidence(
        "out",
        expected,
        expected if expected_native is None else expected_native,
        actual,
        actual if actual_native is None else actual_native,
        Floor(nothing, UNIT64),
        Floor(nothing, UNIT32),
    )
