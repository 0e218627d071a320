"""From numbers to a verdict (design: section 6). Pure: arrays in, a `Judgement` out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from bisect_tvm.numerics.metrics import THRESHOLD, Array, Difference, Floor, compare, is_float
from bisect_tvm.numerics.verdict import Element, Scalar, Verdict

WRONG_FORMULA = 2.0**23
"""Roundings by which no loss of digits on ordinary data is off: half of the digits of a double are wrong, or nearly."""
SHRINKS = 1e3
"""A deviation that falls by more than this from float32 to float64 shrinks with precision (the units differ by 5e8)."""
ALIKE = 64.0
"""An algorithm that loses digits loses about as many roundings in either precision: less than so many times more in float64."""
_UNDECIDED = "{} elements that differ are undecided: rounding alone flips them"
AMPLIFIED = 2.0**10
"""A native deviation above so many units of rounding is called large."""


@dataclass(frozen=True)
class OutputEvidence:
    """What both sides computed for one output. Arrays are None where that run gave nothing."""

    name: str
    expected: Array
    """PyTorch, float64."""
    expected_native: Array
    """PyTorch, in the model's own precision, on the same inputs."""
    actual: Array | None
    """TVM, widened to float64."""
    actual_native: Array | None
    """TVM, as the user builds it."""
    floor: Floor
    floor_native: Floor


@dataclass(frozen=True)
class Judgement:
    """The verdict about one component, with the numbers that led to it."""

    verdict: Verdict
    stated: tuple[Verdict, ...]
    reason: str
    deviation32: float | None = None
    deviation64: float | None = None
    excess32: float | None = None
    excess64: float | None = None
    worst: Element | None = None
    undecided: int = 0
    conclusive: bool = True
    """False if float64 could not be judged beyond the model's own precision: that it agrees says little."""
    doubtful: bool = False
    """It diverges by a cheap floor, and a closer look may find that rounding explains it."""
    sample: int = 0
    """Which sample the numbers are of, counted from 0: the one that deviates most."""
    samples: tuple[int, ...] = ()
    """The samples on which it diverges."""
    strictest: float = 0.0
    """Largest excess of either precision, with nothing excused in elements that are tiny beside the largest."""

    @property
    def excess(self) -> float:
        """The larger one of both precisions."""
        return max(self.excess32 or 0.0, self.excess64 or 0.0)

    @property
    def diverges(self) -> bool:
        """True if the component is accused."""
        return self.verdict.is_divergence

    @property
    def unresolved(self) -> bool:
        """True if the component could not be judged."""
        return self.verdict is Verdict.UNRESOLVED


def unresolved(reason: str) -> Judgement:
    """The judgement about a component that could not be imported, built or run."""
    return Judgement(Verdict.UNRESOLVED, (Verdict.UNRESOLVED,), reason)


def worst_of(judgements: Sequence[Judgement]) -> Judgement:
    """Of one component on several samples: the judgement of the sample that says most, and on which samples it diverges.

    What could not be judged on one sample is accused if it diverges on another, and is not called faithful if it does not.
    """

    def telling(number: int) -> tuple[bool, bool, float, float, int]:
        judgement = judgements[number]
        deviation = max(
            judgement.deviation32 or 0.0, judgement.deviation64 or 0.0
        )  # where nothing is rounded, any excess is infinite
        return judgement.diverges, judgement.unresolved, judgement.excess, deviation, -number

    worst = max(range(len(judgements)), key=telling)
    return replace(
        judgements[worst],
        sample=worst,
        samples=tuple(number for number, judgement in enumerate(judgements) if judgement.diverges),
        undecided=max(judgement.undecided for judgement in judgements),
        strictest=max(judgement.strictest for judgement in judgements),
        conclusive=all(judgement.conclusive for judgement in judgements),
        doubtful=all(judgement.doubtful for judgement in judgements if judgement.diverges) and judgements[worst].doubtful,
    )


@dataclass(frozen=True)
class _Run:
    """All outputs of one run, compared."""

    precision: Literal["float64", "native"]
    unit: float
    by_output: tuple[Difference | None, ...]
    """None where the output has another shape, so that there is nothing to compare element by element."""
    exact: bool
    """Nothing in the component rounds."""

    @property
    def differences(self) -> list[Difference]:
        return [difference for difference in self.by_output if difference is not None]

    @property
    def deviation(self) -> float:
        return max((d.deviation for d in self.differences), default=0.0)

    @property
    def excess(self) -> float:
        return max((d.excess for d in self.differences), default=0.0)

    @property
    def diverges(self) -> bool:
        return self.excess > THRESHOLD


def judge(outputs: Sequence[OutputEvidence]) -> Judgement:
    """Judge a component by its outputs. At least one of the two runs must have given results."""
    types = [text for i, output in enumerate(outputs) if (text := _type_difference(i, output))]
    wide = _compare_all(outputs, "float64")
    native = _compare_all(outputs, "native")
    stated = _verdicts(wide, native, bool(types))
    undecided = max((sum(d.undecided for d in r.differences) for r in (wide, native) if r), default=0)
    reason = _reason(stated[0], wide, native, types)
    run = wide if wide and (wide.diverges or not (native and native.diverges)) else native
    return Judgement(
        verdict=stated[0],
        stated=stated,
        reason=f"{reason}; {_UNDECIDED.format(undecided)}" if undecided else reason,
        deviation32=native.deviation if native else None,
        deviation64=wide.deviation if wide else None,
        excess32=native.excess if native else None,
        excess64=wide.excess if wide else None,
        worst=_worst(run, outputs) if run else None,
        undecided=undecided,
        strictest=max((d.strictest for r in (wide, native) if r for d in r.differences), default=0.0),
    )


def _compare_all(outputs: Sequence[OutputEvidence], precision: Literal["float64", "native"]) -> _Run | None:
    """Compare one run's outputs; None if there is nothing that can be compared."""
    differences: list[Difference | None] = []
    for output in outputs:
        actual = output.actual if precision == "float64" else output.actual_native
        if actual is None:
            return None
        same_shape = actual.shape == output.expected.shape
        differences.append(_compare_one(output, actual, precision) if same_shape else None)
    if outputs and not any(differences):
        return None
    floors = [output.floor if precision == "float64" else output.floor_native for output in outputs]
    unit, exact = max((floor.unit for floor in floors), default=0.0), any(floor.exact for floor in floors)
    return _Run(precision, unit, tuple(differences), exact)


def _compare_one(output: OutputEvidence, actual: Array, precision: Literal["float64", "native"]) -> Difference:
    if precision == "float64":
        return compare(actual, output.expected, output.floor)
    # Against PyTorch in the same precision, as the user sees it; PyTorch's own rounding is not held against TVM.
    if not is_float(output.expected):
        return compare(actual, output.expected_native, output.floor_native)
    with np.errstate(invalid="ignore", over="ignore"):
        own = np.abs(output.expected_native.astype(np.float64) - output.expected.astype(np.float64))
    own = np.where(np.isfinite(own), own, 0.0)
    return compare(actual, output.expected_native, output.floor_native, allowance=own)


def _verdicts(wide: _Run | None, native: _Run | None, types_differ: bool) -> tuple[Verdict, ...]:
    """Every verdict that applies, the most telling first."""
    found = []
    runs = [run for run in (wide, native) if run]
    if types_differ:
        found.append(Verdict.TYPE)
    if any(d.nonfinite for run in runs for d in run.differences):
        found.append(Verdict.NONFINITE)
    if wide and wide.diverges and not _only_nonfinite(wide):
        found.append(Verdict.UNSTABLE if _loses_digits(wide, native) else Verdict.FORMULA)
    elif native and native.diverges and not _only_nonfinite(native):
        # Half of the threshold is well above 1: the digits are lost in float64, too.
        in_both = wide is not None and wide.excess > THRESHOLD / 2 and _loses_digits(wide, native)
        found.append(Verdict.UNSTABLE if in_both else Verdict.FLOAT32_ONLY)
    if not found:
        large = native is not None and native.deviation > AMPLIFIED * native.unit
        found.append(Verdict.ROUNDING if large else Verdict.FAITHFUL)
    return tuple(found)


def _only_nonfinite(run: _Run) -> bool:
    return all(d.nonfinite or d.excess <= THRESHOLD for d in run.differences)


def _loses_digits(wide: _Run, native: _Run | None) -> bool:
    """True if the error shrinks with precision, so that the formula is right and only its arithmetic is poor."""
    if native is None or max(d.lost for d in wide.differences) >= WRONG_FORMULA or native.unit <= wide.unit:
        return False
    # An approximation that is good to 1e-12 also "shrinks" from float32's own rounding, but has no excess in float32.
    # A short format cannot lose more roundings than it has.
    return native.excess * ALIKE > min(wide.excess, 1 / native.unit) and native.deviation > SHRINKS * wide.deviation


def _worst(run: _Run, outputs: Sequence[OutputEvidence]) -> Element | None:
    ranked = [(d.excess, -i, d.worst) for i, d in enumerate(run.by_output) if d is not None and d.worst is not None]
    if not ranked:
        return None
    _, position, index = max(ranked)
    at = -position
    output, wide = outputs[at], run.precision == "float64"
    actual = output.actual if wide else output.actual_native
    expected = output.expected if wide else output.expected_native
    assert actual is not None
    return Element(at, index, _scalar(actual, index), _scalar(expected, index), run.precision)


def _scalar(array: Array, index: tuple[int, ...]) -> Scalar:
    element = array[index]
    return element.item() if array.dtype.kind in "iub" else float(element)


def _type_difference(position: int, output: OutputEvidence) -> str:
    actual = output.actual_native if output.actual_native is not None else output.actual
    expected = output.expected_native if output.actual_native is not None else output.expected
    if actual is None or (actual.dtype == expected.dtype and actual.shape == expected.shape):
        return ""
    return f"output {position} is {_type(actual)}, PyTorch's is {_type(expected)}"


def _type(array: Array) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _reason(verdict: Verdict, wide: _Run | None, native: _Run | None, types: list[str]) -> str:
    numbers = ", ".join(_numbers(run) for run in (wide, native) if run)
    counts = [d.nonfinite for run in (wide, native) if run for d in run.differences]
    what = {
        Verdict.FAITHFUL: "TVM agrees with PyTorch within rounding",
        Verdict.ROUNDING: f"rounding alone explains the deviation: the computation amplifies it {_amplification(native)} times",
        Verdict.FORMULA: _wrong_formula(wide, native),
        Verdict.UNSTABLE: "the deviation shrinks with precision but not to rounding: TVM's algorithm loses digits",
        Verdict.FLOAT32_ONLY: "the formula is right in float64, the native computation is worse than PyTorch's",
        Verdict.TYPE: "; ".join(types),
        Verdict.NONFINITE: f"{max(counts, default=0)} elements are NaN or Inf on one side only",
    }[verdict]
    return f"{what} ({numbers})" if numbers else what


def _amplification(native: _Run | None) -> str:
    """How many units of its own precision the native deviation is."""
    return f"{native.deviation / native.unit:.0e}" if native is not None and native.unit else "many"


def _wrong_formula(wide: _Run | None, native: _Run | None) -> str:
    if wide and native and native.deviation > SHRINKS * wide.deviation:
        return "in float64 some elements are off by nearly half of their digits or more: a formula that is wrong for such values"
    return "more precision does not help: a wrong or approximate formula, constant or argument"


def _numbers(run: _Run) -> str:
    name = "float64" if run.precision == "float64" else "native precision"
    wrong = sum(d.mismatched for d in run.differences)
    exact = f", {wrong} integer or boolean elements differ" if wrong else ""
    if run.exact and run.diverges:
        return f"{name}: deviation {run.deviation:.1e} where nothing is rounded{exact}"
    return f"{name}: deviation {run.deviation:.1e}, {run.excess:.1e} times the noise floor{exact}"
