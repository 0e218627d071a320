"""One component measured: what TVM gave beside what PyTorch gives, with the noise floor, in both precisions."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import ml_dtypes
import numpy as np
import torch

from bisect_tvm.errors import CaptureError, one_line
from bisect_tvm.lowering.build import RunError
from bisect_tvm.lowering.workshop import Arrays
from bisect_tvm.model.capture import Program
from bisect_tvm.model.cut import Boundary
from bisect_tvm.model.exact import is_made_for_tiny_numbers, jumps, jumps_and_rounds, loses_near_zero, rounds_nothing
from bisect_tvm.model.perturb import run_perturbed
from bisect_tvm.model.reference import Reference, declared_dtype, rounded, run_nodes
from bisect_tvm.numerics.judge import Judgement, OutputEvidence, judge, unresolved
from bisect_tvm.numerics.metrics import TOLERATED, Array, Floor, settled, spread_of
from bisect_tvm.stopwatch import Stopwatch

UNIT = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
"""Relative distance of neighbouring numbers at 1, by dtype."""
BLURRED = (
    "it holds constants that are equal in the model's precision and not in float64, so it is judged at the former's noise floor"
)
WORTH_MORE_RUNS = 8.0
"""Excess above which the floor is measured with all runs, and for the native precision by itself. Nearly everything stays below."""
WORTH_A_LOOK = 16.0
"""Excess above which an operator's floor is measured in depth, at ten times the cost. Most operators stay below."""
FEW_RUNS = 2
"""Perturbed runs of a first look. More runs raise the floor, so what agrees by these agrees by all."""

Depth = Literal["glance", "shallow", "deep"]
"""How the noise floor is measured: a few runs, all of them, or with the primitives inside the operators perturbed."""


class Runs(Protocol):
    """What was built of a component."""

    @property
    def ambiguous(self) -> bool:
        """Its float64 version is exact to the model's own precision only."""

    def run_native(self, inputs: Arrays) -> Arrays:
        """Run as imported. Raises `RunError`."""

    def run_wide(self, inputs: Arrays) -> Arrays:
        """Run in float64. Raises `RunError`."""


@dataclass(frozen=True)
class Part:
    """A component, ready to be measured."""

    edge: Boundary
    runnable: Runs | str
    """What can be run, or the reason why there is nothing."""


@dataclass(frozen=True)
class Ruler:
    """Measures parts of one program on one sample.

    Args:
        program: the captured program.
        reference: its values.
        clock: takes the time.
    """

    program: Program
    reference: Reference
    clock: Stopwatch

    def measure(self, part: Part, *, strictly: bool = False, closely: bool = False) -> Judgement:
        """Run one built component in both precisions on the reference's values, and judge it.

        Args:
            part: the component.
            strictly: do not excuse lost digits of elements that are tiny beside the largest.
            closely: look inside operators for the noise floor, also where the component holds several.
        """
        return self.measure_with_evidence(part, strictly=strictly, closely=closely)[0]

    def measure_with_evidence(
        self, part: Part, *, strictly: bool = False, closely: bool = False
    ) -> tuple[Judgement, "Evidence | None"]:
        """The same, with what the judgement rests on, where there is any."""
        try:
            evidence = self.evidence(part, strictly=strictly)
            if isinstance(evidence, str):
                return unresolved(evidence), None
            with self.clock("compare"):
                judgement = judge_by(evidence, closely=closely)
        except CaptureError as error:  # PyTorch refuses an operator
            return unresolved(str(error)), None
        if evidence.blurred:
            judgement = replace(judgement, reason=f"{judgement.reason}; {BLURRED}", conclusive=False)
        if judgement.diverges and part.edge.is_operator and not self._repeats(part, evidence.wide):
            judgement = replace(judgement, reason=f"{judgement.reason}; two runs of TVM differ from each other")
        return judgement, evidence

    def evidence(self, part: Part, *, strictly: bool = False) -> "Evidence | str":
        """Run both sides; the reason where TVM's cannot be. Raises `CaptureError`."""
        edge, runnable = part.edge, part.runnable
        if isinstance(runnable, str):
            return runnable
        try:
            with self.clock("run"):
                wide = runnable.run_wide([as_array(self.reference.values[node.name]) for node in edge.inputs])
                native = runnable.run_native([as_array(self._native(node)) for node in edge.inputs])
        except RunError as error:
            return str(error)
        compared = len(edge.outputs) if edge.judged is None else edge.judged
        if len(wide) != len(edge.outputs) or len(native) not in (compared, len(edge.outputs)):
            return f"TVM returned {len(native)} outputs, PyTorch {len(edge.outputs)}"
        with self.clock("compare"):
            expected = self._run_in_native_precision(edge)
            return Evidence(
                self.program, self.reference, edge, wide, native, expected, blurred=runnable.ambiguous, strictly=strictly
            )

    def _repeats(self, part: Part, before: Arrays) -> bool:
        assert not isinstance(part.runnable, str)
        with self.clock("run"):
            again = part.runnable.run_wide([as_array(self.reference.values[node.name]) for node in part.edge.inputs])
        return all(a.tobytes() == b.tobytes() for a, b in zip(before, again, strict=True))

    def _native(self, node: torch.fx.Node) -> torch.Tensor:
        """A boundary value in the model's own precision. Parameters are as they were, so they need not be made anew."""
        if node.name in self.program.bindings:
            return self.reference.native[node.name]  # type: ignore[no-any-return]
        return rounded(self.reference.values[node.name], node)  # type: ignore[no-any-return]

    def _run_in_native_precision(self, edge: Boundary) -> list[Array]:
        """PyTorch in the model's own precision, on the reference's boundary values rounded to it."""
        inside = {node.name for node in edge.nodes}
        if all(node.name in self.program.bindings for node in edge.inputs):  # the model itself, which has been run
            return [as_array(self.reference.native[node.name]) for node in edge.outputs]
        read = {source for node in edge.nodes for source in node.all_input_nodes if source.name not in inside}
        env = {node.name: self._native(node) for node in (*read, *edge.inputs, *edge.outputs)}
        run_nodes(self.program, (node.name for node in edge.nodes), env, wide=False)
        return [as_array(env[node.name]) for node in edge.outputs]


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


class Evidence:
    """Gathers what `judge` needs about one component."""

    def __init__(
        self,
        program: Program,
        reference: Reference,
        edge: Boundary,
        wide: Arrays,
        native: Arrays,
        expected_native: Sequence[Array],
        *,
        blurred: bool,
        strictly: bool,
    ) -> None:
        self._program, self._values, self.edge = program, reference.values, edge
        self.wide, self._native = wide, native
        self._expected = [as_array(self._values[node.name]) for node in edge.outputs]
        self._expected_native = expected_native
        units = [UNIT[dtype] for node in (*edge.nodes, *edge.inputs) if (dtype := declared_dtype(node)) in UNIT]
        native_unit = max(units, default=UNIT[torch.float32])
        self.blurred = blurred
        self.exact = all(map(rounds_nothing, edge.nodes))
        """Nothing in the component rounds."""
        self.decides = any(map(jumps, edge.nodes))
        """Something in it turns a small change into a large one."""
        self._tolerance = 1.0 if strictly else _tolerance(edge)
        self._known: dict[Depth, list[OutputEvidence]] = {}
        self._units = native_unit if blurred else UNIT[torch.float64], native_unit

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
        elif depth == "glance" and not self.decides:
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

    def _floors(self, unit: float, depth: Depth) -> list[Floor]:
        perturbed = run_perturbed(self._program, self.edge, self._values, unit=unit, deep=depth == "deep")
        some = itertools.islice(perturbed, FEW_RUNS) if depth == "glance" and not self.decides else perturbed
        runs = [[as_array(value) for value in run] for run in some]
        spreads = [spread_of(array, [run[i] for run in runs]) for i, array in enumerate(self._expected)]
        jumps = self.edge.is_operator and any(map(jumps_and_rounds, self.edge.nodes))
        pairs = zip(spreads, self._expected, strict=True)
        return [settled(Floor(spread, unit, self.exact, self._tolerance), value, jumps=jumps) for spread, value in pairs]


def _tolerance(edge: Boundary) -> float:
    """How much digits of elements that are tiny beside the largest are excused; in runs of operators the floor itself grants it."""
    if not edge.is_operator or not any(loses_near_zero(node.target) for node in edge.nodes):
        return 1.0
    return TOLERATED if any(is_made_for_tiny_numbers(node.target) for node in edge.nodes) else np.inf


def judge_by(evidence: Evidence, *, closely: bool = False) -> Judgement:
    """Judge by a first look at the floor; where that accuses, by all runs; then by the floor that looks inside operators.

    What holds several operators is looked at so deeply only if asked: usually one of them is to blame, which is cheaper to see.
    """
    judged = slice(evidence.edge.judged)
    judgement = judge(evidence.outputs("glance")[judged])
    if evidence.exact:
        return judgement
    # A decision that flips looks like no rounding.
    if _beyond_rounding(judgement) and not evidence.decides:
        return judgement
    if judgement.excess > WORTH_MORE_RUNS:
        judgement = judge(evidence.outputs("shallow")[judged])
    if evidence.edge.is_operator:
        return judge(evidence.outputs("deep")) if judgement.excess > WORTH_A_LOOK else judgement
    if judgement.diverges and closely:
        return judge(evidence.outputs("deep")[judged])
    return replace(judgement, doubtful=judgement.diverges)


def _beyond_rounding(judgement: Judgement) -> bool:
    """True if no rounding inside operators can explain the deviation, so that the costly deep floor need not be measured.

    What cancels inside an operator loses digits of small elements; it does not move the largest ones by half of a double's digits.
    """
    return (judgement.deviation64 or 0.0) > 2.0**-26 and (judgement.excess64 or 0.0) > 2.0**30


@dataclass(frozen=True)
class Drift:
    """How far one value of the whole model is from the reference's when it is computed from what TVM computed before it."""

    deviation32: float | None
    deviation64: float | None
    diverges: bool
    error: float = 0.0
    """The largest absolute error."""


def drifts(evidence: Evidence) -> Mapping[str, Drift]:
    """The cumulative deviation of each output, by graph node."""
    found = {}
    for node, output in zip(evidence.edge.outputs, evidence.outputs("glance"), strict=True):
        judgement = judge([output])
        found[node.name] = Drift(judgement.deviation32, judgement.deviation64, judgement.diverges, _error(judgement))
    return found


def _error(judgement: Judgement) -> float:
    worst = judgement.worst
    return abs(float(worst.actual) - float(worst.expected)) if worst is not None else 0.0


def further(one: Drift | None, other: Drift) -> Drift:
    """The larger one of two samples' drifts."""
    return other if one is None or (other.diverges, other.deviation64 or 0.0) > (one.diverges, one.deviation64 or 0.0) else one
