"""What a judgement rests on: both sides' values, and the noise floor, measured only as closely as the deviation asks for."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray

from bisect_tvm.errors import CaptureError, one_line
from bisect_tvm.lowering.workshop import Arrays
from bisect_tvm.model.capture import Program
from bisect_tvm.model.cut import Boundary
from bisect_tvm.model.exact import is_made_for_tiny_numbers, jumps_and_rounds, loses_near_zero, rounds_nothing
from bisect_tvm.model.perturb import decides, run_perturbed
from bisect_tvm.model.reference import Value, declared_dtype
from bisect_tvm.model.roundings import Roundings
from bisect_tvm.numerics.judge import Judgement, OutputEvidence, judge
from bisect_tvm.numerics.metrics import TOLERATED, Array, Floor, settled, wider

UNIT = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
"""Relative distance of neighbouring numbers at 1, by dtype."""
FEW_ROUNDINGS = 4.0
"""Roundings of each element up to which nothing is measured: no floor is below one, and what agrees by it agrees by any."""
WORTH_MORE_RUNS = 8.0
"""Excess above which the floor is measured with all runs, and for the native precision by itself. Nearly everything stays below."""
WORTH_A_LOOK = 16.0
"""Excess above which an operator's floor is measured in depth, at ten times the cost. Most operators stay below."""
FEW_RUNS = 2
"""Perturbed runs of a first look. More runs raise the floor, so what agrees by these agrees by all."""

Depth = Literal["rounding", "sum", "glance", "shallow", "first deep", "deep"]
"""How the noise floor is found: one rounding of the result; the expected rounding of all additions of a sum; measured in a few
runs, in all of them; or with the primitives inside the operators perturbed, in a few runs or in all.
"""


@dataclass
class _Spread:
    """How far perturbed runs went so far, for each output."""

    runs: Iterator[Sequence[torch.Tensor]]
    widths: list[NDArray[np.float64]]

    def take(self, expected: Sequence[Array], count: int | None) -> None:
        """Look at some more runs, or at all that are left."""
        for run in itertools.islice(self.runs, count):
            arrays = zip(self.widths, expected, run, strict=True)
            self.widths = [wider(width, array, as_array(value)) for width, array, value in arrays]


class Evidence:
    """Gathers what `judge` needs about one component.

    Args:
        program: the captured program.
        roundings: of its operators.
        values: the reference's.
        edge: what enters and leaves the component.
        wide: what TVM gave in float64.
        native: what it gave as imported.
        expected_native: what PyTorch gave in that precision.
        blurred: the float64 version is exact to the model's own precision only.
        strictly: do not excuse lost digits of elements that are tiny beside the largest.
    """

    def __init__(
        self,
        program: Program,
        roundings: Roundings,
        values: Mapping[str, Value],
        edge: Boundary,
        wide: Arrays,
        native: Arrays,
        expected_native: Sequence[Array],
        *,
        blurred: bool,
        strictly: bool,
    ) -> None:
        self._program, self._roundings, self._values, self.edge = program, roundings, values, edge
        self.wide, self._native = wide, native
        self._expected = [as_array(self._values[node.name]) for node in edge.outputs]
        self._expected_native = expected_native
        units = [UNIT[dtype] for node in (*edge.nodes, *edge.inputs) if (dtype := declared_dtype(node)) in UNIT]
        native_unit = max(units, default=UNIT[torch.float32])
        self.blurred = blurred
        self.exact = all(map(rounds_nothing, edge.nodes))
        """Nothing in the component rounds."""
        self._tolerance = 1.0 if strictly else _tolerance(edge)
        self._known: dict[Depth, list[OutputEvidence]] = {}
        self._spreads: dict[tuple[float, bool], _Spread] = {}
        self._units = native_unit if blurred else UNIT[torch.float64], native_unit

    @cached_property
    def decides(self) -> bool:
        """Something in it turns a small change into a large one."""
        return decides(self._program, self.edge, self._values)

    @property
    def adds(self) -> bool:
        """It is a sum, the rounding of whose additions is known."""
        return self._sum is not None

    @cached_property
    def _sum(self) -> NDArray[np.floating] | None:
        known = self._roundings.of_sum(self.edge.nodes[0]) if len(self.edge.nodes) == len(self.edge.outputs) == 1 else None
        return None if known is None else known.numpy()

    def outputs(self, depth: Depth) -> list[OutputEvidence]:
        """Every output on both sides, in both precisions, with its noise floor."""
        if depth not in self._known:
            self._known[depth] = self._outputs(depth)
        return self._known[depth]

    def _outputs(self, depth: Depth) -> list[OutputEvidence]:
        wide_unit, native_unit = self._units
        wide = self._floors(wide_unit, depth)
        if native_unit == wide_unit:
            native = wide
        elif self._few(depth):
            # Rounding is proportional to the unit, wherever nothing is decided.
            native = [replace(f, spread=f.spread * (native_unit / wide_unit), unit=native_unit) for f in wide]
        else:
            native = self._floors(native_unit, depth)
        return [
            OutputEvidence(
                name=node.name,
                expected=self._expected[i],
                expected_native=self._expected_native[i],
                actual=self.wide[i],
                actual_native=self._native[i] if i < len(self._native) else None,
                # With constants that could not be restored even a copy is exact to the model's own precision only.
                floor=replace(wide[i], exact=self.exact and not self.blurred),
                floor_native=native[i],
            )
            for i, node in enumerate(self.edge.outputs)
        ]

    def _few(self, depth: Depth) -> bool:
        return depth in ("glance", "first deep") and not self.decides

    def _floors(self, unit: float, depth: Depth) -> list[Floor]:
        if depth in ("rounding", "sum"):
            spread = unit * self._sum if depth == "sum" and self._sum is not None else np.float64(0)
            return [Floor(np.broadcast_to(spread, a.shape), unit, self.exact, self._tolerance) for a in self._expected]
        widths = self._widths(unit, depth)
        jumps = self.edge.is_operator and any(map(jumps_and_rounds, self.edge.nodes))
        pairs = zip(widths, self._expected, strict=True)
        return [settled(Floor(width, unit, self.exact, self._tolerance), value, jumps=jumps) for width, value in pairs]

    def _widths(self, unit: float, depth: Depth) -> list[NDArray[np.float64]]:
        deep = depth in ("first deep", "deep")
        if (unit, deep) not in self._spreads:
            runs = run_perturbed(self._program, self.edge, self._values, unit=unit, deep=deep, roundings=self._roundings)
            self._spreads[unit, deep] = _Spread(runs, [np.zeros(array.shape) for array in self._expected])
        self._spreads[unit, deep].take(self._expected, FEW_RUNS if self._few(depth) else None)
        return self._spreads[unit, deep].widths


def _tolerance(edge: Boundary) -> float:
    """How much digits of elements that are tiny beside the largest are excused; in runs of operators the floor itself grants it."""
    if not edge.is_operator or not any(loses_near_zero(node.target) for node in edge.nodes):
        return 1.0
    return TOLERATED if any(is_made_for_tiny_numbers(node.target) for node in edge.nodes) else np.inf


def judge_by(evidence: Evidence, *, closely: bool = False) -> Judgement:
    """Judge by ever more costly floors, each at least as high as the one before, until one explains the deviation.

    What holds several operators is looked at in depth only if asked: usually one of them is to blame, which is cheaper to see.
    """

    def look(depth: Depth) -> Judgement:
        return judge(evidence.outputs(depth)[: evidence.edge.judged])

    judgement = look("rounding")
    if judgement.excess <= FEW_ROUNDINGS:
        return judgement
    if evidence.adds:
        judgement = look("sum")
        if judgement.excess <= WORTH_MORE_RUNS:
            return judgement
    judgement = look("glance")
    # A decision that flips looks like no rounding.
    if evidence.exact or (_beyond_rounding(judgement) and not evidence.decides):
        return judgement
    if judgement.excess > WORTH_MORE_RUNS:
        judgement = look("shallow")
    if evidence.edge.is_operator or closely:
        if judgement.excess > WORTH_A_LOOK:
            judgement = look("first deep")
        return look("deep") if judgement.excess > WORTH_A_LOOK else judgement
    return replace(judgement, doubtful=judgement.diverges)


def _beyond_rounding(judgement: Judgement) -> bool:
    """True if no rounding inside operators can explain the deviation, so that the costly deep floor need not be measured.

    What cancels inside an operator loses digits of small elements; it does not move the largest ones by half of a double's digits.
    """
    return (judgement.deviation64 or 0.0) > 2.0**-26 and (judgement.excess64 or 0.0) > 2.0**30


def as_array(tensor: torch.Tensor) -> Array:
    """A tensor as a contiguous numpy array of the same dtype and shape (0-d stays 0-d).

    Raises:
        CaptureError: it has no elements in memory of its own (sparse, or inside a vmap).
    """
    try:
        tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
        if tensor.dtype is torch.bfloat16:
            return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return tensor.numpy()
    except (RuntimeError, TypeError) as error:
        raise CaptureError(
            f"A tensor of layout {tensor.layout} and dtype {tensor.dtype} cannot be compared: {one_line(error)}"
        ) from error
