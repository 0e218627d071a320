"""How far one array is from another: pure numpy, float64 throughout."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]

THRESHOLD = 32.0
"""Excess above which rounding is no explanation; docs/calibration.md has the data behind it."""
BESIDE = 2.0**-3
"""Roundings of the largest element to which the floor of a tiny one is raised; with the threshold of 32, four are tolerated."""
TOLERATED = 2.0**18
"""So many times at most for an operator that exists to keep their digits (log1p); with the threshold of 32, half of a double's."""
PASSED = 4.0
"""Roundings by which a perturbed input may have changed when it comes out of a copy."""
FLIPPED = 2.0**16
"""Roundings above which a change is no loss of digits but another decision."""
SMALLEST_NORMAL = {np.float64: float(np.finfo(np.float64).tiny), np.float32: float(np.finfo(np.float32).tiny)}


@dataclass(frozen=True)
class Floor:
    """What rounding alone explains, for each element of one output."""

    spread: NDArray[np.float64]
    """Largest absolute change seen in the perturbed runs; infinite where a run left the finite numbers or an integer changed."""
    unit: float
    """Relative size of one rounding: 2**-52 for float64, 2**-23 for float32."""
    exact: bool = False
    """Nothing is rounded (a copy, a maximum, a comparison): the floor is zero and one bit that differs counts."""
    tolerance: float = 1.0
    """So many times at most is the floor of an element raised that is tiny beside the largest of its tensor; 1 is not at all."""


@dataclass(frozen=True)
class Difference:
    """How one output deviates from what was expected."""

    deviation: float
    """Largest absolute error over largest absolute expected value; inf where finite and non-finite numbers disagree."""
    excess: float
    """Largest absolute error over its noise floor."""
    lost: float
    """The same among the elements above the threshold, without the tolerance for those that are tiny beside the largest."""
    strictest: float
    """Largest excess without the tolerance for elements that are tiny beside the largest."""
    worst: tuple[int, ...] | None
    """Index of the largest error among the elements above the threshold (else of the largest excess); None if all are equal."""
    nonfinite: int
    """Elements where one side is NaN or Inf and the other is not, or is another."""
    mismatched: int
    """Integer and boolean elements that differ."""
    undecided: int
    """Elements that rounding alone can turn into another number: not judged."""


def is_float(array: Array) -> bool:
    """True for floating-point arrays, bfloat16 included (numpy knows it as an extension type only)."""
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def spread_of(expected: Array, runs: list[Array]) -> NDArray[np.float64]:
    """Largest absolute change per element over perturbed runs.

    An integer or boolean that changed, and a float that became non-finite, count as infinite: such an element is undecided.
    """
    spread = np.zeros(expected.shape)
    for run in runs:
        spread = wider(spread, expected, run)
    return spread


def wider(spread: NDArray[np.float64], expected: Array, run: Array) -> NDArray[np.float64]:
    """The spread when one more run is looked at."""
    if not is_float(expected):
        return np.where(run != expected, np.inf, spread)
    with np.errstate(invalid="ignore", over="ignore"):
        change = np.abs(run.astype(np.float64, copy=False) - expected.astype(np.float64, copy=False))
    if not np.isfinite(change).all():
        change = np.where(_same_nonfinite(run, expected), 0.0, change)
        change = np.where(np.isnan(change), np.inf, change)
    return np.maximum(spread, change)


def settled(floor: Floor, expected: Array, *, jumps: bool) -> Floor:
    """The floor of something that decides: elements whose decision flips under perturbation are undecided (infinite spread).

    Args:
        floor: with the spread as `spread_of` measured it.
        expected: the reference.
        jumps: what is not exact may jump all the same (`remainder`, `floor_divide`).
    """
    if not is_float(expected):
        return floor
    magnitude = np.abs(np.where(np.isfinite(floor.spread), expected.astype(np.float64), 0.0)) + floor.spread
    if floor.exact:  # what was perturbed passes through a copy as it is, and through a decision not at all, unless it flips
        passed = PASSED * (floor.unit * magnitude + SMALLEST_NORMAL[np.float64])
        return replace(floor, spread=np.where(floor.spread > passed, np.inf, 0.0))
    if jumps:
        whole = (floor.spread >= 0.5) & (np.remainder(np.where(np.isfinite(floor.spread), floor.spread, 0.0), 1.0) == 0)
        return replace(floor, spread=np.where(whole | (floor.spread > FLIPPED * floor.unit * magnitude), np.inf, floor.spread))
    return floor


def compare(actual: Array, expected: Array, floor: Floor, *, allowance: NDArray[np.float64] | None = None) -> Difference:
    """Measure `actual` against `expected`, element by element, in units of the noise floor.

    The floor of an element is the largest of its `spread` plus one unit of rounding of the expected value, the smallest normal
    number (what underflows is not a fault), and `allowance`; zero where the floor is exact. An element that is tiny beside the
    largest may lose digits of its own (tanh(1e-8) beside tanh(3)): its floor is raised to `BESIDE` roundings of the largest, at
    most `floor.tolerance` times.

    Args:
        actual: what TVM computed, any shape equal to that of `expected`.
        expected: the reference.
        floor: what rounding explains.
        allowance: a further absolute error that is not held against TVM, such as PyTorch's own in float32.
    """
    if expected.size == 0 or (actual.dtype == expected.dtype and np.array_equal(actual, expected)):
        return Difference(0.0, 0.0, 0.0, 0.0, None, 0, 0, 0)
    if is_float(expected) or is_float(actual):
        with np.errstate(over="ignore"):  # a huge error over a tiny floor is infinitely many
            return _compare_floats(actual.astype(np.float64, copy=False), expected.astype(np.float64, copy=False), floor, allowance)
    return _compare_exactly(actual, expected, floor)


def _compare_floats(
    actual: NDArray[np.float64], expected: NDArray[np.float64], floor: Floor, allowance: NDArray[np.float64] | None
) -> Difference:
    same = (actual == expected) | _same_nonfinite(actual, expected)
    finite = np.isfinite(actual) & np.isfinite(expected)
    undecided = np.isinf(floor.spread)
    bad = ~finite & ~same & ~undecided
    # Halves, because the difference of two large numbers may be beyond the largest.
    half = np.abs(np.where(finite, actual, 0.0) / 2 - np.where(finite, expected, 0.0) / 2)
    tiny = SMALLEST_NORMAL[np.float64 if floor.unit < 1e-10 else np.float32]
    limit = np.maximum(floor.spread + floor.unit * np.abs(np.where(finite, expected, 0.0)), tiny)
    if allowance is not None:
        limit = np.maximum(limit, allowance)
    largest = float(np.max(np.abs(expected), where=np.isfinite(expected), initial=0.0))
    tolerated = np.maximum(limit, np.minimum(BESIDE * floor.unit * largest, floor.tolerance * limit))
    if floor.exact:  # by bits: half of the smallest difference would be none
        roundings = units = np.where(same | undecided, 0.0, np.inf)
    else:
        roundings, units = half / (limit / 2), half / (tolerated / 2)
    ratio = np.where(bad, np.inf, units)  # x / inf is 0: an undecided element counts for nothing
    judged = finite & ~undecided
    most = 2 * float(np.max(half, where=judged, initial=0.0))
    deviation = np.inf if bad.any() else _quotient(most, largest)
    excess = float(ratio.max())
    return Difference(
        deviation=float(deviation),
        excess=excess,
        lost=float(np.max(roundings, where=units > THRESHOLD, initial=0.0)),
        strictest=float(roundings.max()),
        worst=_worst(ratio, half, excess),
        nonfinite=int(bad.sum()),
        mismatched=0,
        undecided=int((undecided & ~same).sum()),
    )


def _worst(ratio: NDArray[np.float64], error: NDArray[np.float64], excess: float) -> tuple[int, ...] | None:
    """The largest error among the elements that rounding does not explain, so that the deviation can be recomputed from it."""
    if excess == 0:
        return None
    return _index(np.where(np.isinf(ratio), np.inf, np.where(ratio >= min(excess, THRESHOLD), error, -1.0)))


def _compare_exactly(actual: Array, expected: Array, floor: Floor) -> Difference:
    undecided = np.isinf(floor.spread)
    wrong = (actual != expected) & ~undecided
    count = int(wrong.sum())
    # Python's integers do not overflow where the difference of two int64 does.
    errors = [abs(int(a) - int(e)) for a, e in zip(actual[wrong].tolist(), expected[wrong].tolist(), strict=True)]
    largest = max(abs(int(expected.max())), abs(int(expected.min())))
    return Difference(
        deviation=_quotient(float(max(errors, default=0)), float(largest)),
        excess=float("inf") if count else 0.0,
        lost=float("inf") if count else 0.0,
        strictest=float("inf") if count else 0.0,
        worst=_index(wrong) if count else None,
        nonfinite=0,
        mismatched=count,
        undecided=int(((actual != expected) & undecided).sum()),
    )


def _same_nonfinite(actual: Array, expected: Array) -> NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):
        return np.asarray((np.isnan(actual) & np.isnan(expected)) | (np.isinf(actual) & (actual == expected)), dtype=bool)


def _quotient(error: float, magnitude: float) -> float:
    """`error / magnitude`; an error where only zeros are expected has no scale but its own."""
    return error / magnitude if magnitude > 0 else error


def _index(array: NDArray[np.generic]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(array)), array.shape))
