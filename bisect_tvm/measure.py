"""One component measured: what TVM gave beside what PyTorch gives, with the noise floor, in both precisions."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch

from bisect_tvm.errors import CaptureError
from bisect_tvm.evidence import Evidence, as_array, judge_by
from bisect_tvm.lowering.build import RunError
from bisect_tvm.lowering.workshop import Arrays
from bisect_tvm.model.capture import Program
from bisect_tvm.model.cut import Boundary
from bisect_tvm.model.reference import Reference, rounded, run_nodes
from bisect_tvm.model.roundings import Roundings
from bisect_tvm.numerics.judge import Judgement, judge, unresolved
from bisect_tvm.numerics.metrics import Array
from bisect_tvm.stopwatch import Stopwatch

BLURRED = (
    "it holds constants that are equal in the model's precision and not in float64, so it is judged at the former's noise floor"
)


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

    @cached_property
    def _roundings(self) -> Roundings:
        return Roundings(self.reference.values)

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
    ) -> tuple[Judgement, Evidence | None]:
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

    def evidence(self, part: Part, *, strictly: bool = False) -> Evidence | str:
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
                self.program,
                self._roundings,
                self.reference.values,
                edge,
                wide,
                native,
                expected,
                blurred=runnable.ambiguous,
                strictly=strictly,
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
