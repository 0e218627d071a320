"""The model as a whole: exactly as the user builds it, and widened, with values tapped inside."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from bisect_tvm.errors import CaptureError
from bisect_tvm.evidence import UNIT, Evidence, as_array
from bisect_tvm.lowering.build import Executable, RunError
from bisect_tvm.lowering.workshop import Arrays
from bisect_tvm.measure import Drift, Part, Ruler, Runs, drifts, further
from bisect_tvm.model.capture import Program
from bisect_tvm.model.cut import Boundary
from bisect_tvm.model.reference import declared_dtype
from bisect_tvm.numerics.judge import Judgement, unresolved, worst_of
from bisect_tvm.numerics.metrics import THRESHOLD, Floor, compare
from bisect_tvm.stopwatch import Stopwatch

AS_GIVEN = "main"
"""The function's name in a module that the importer made."""


@dataclass(frozen=True)
class AsBuilt:
    """What the user's own build gave."""

    outputs: Sequence[Arrays]
    """On each sample."""
    failure: str = ""
    """Why it could not be run."""

    @classmethod
    def of(cls, program: Program, executable: Executable, clock: Stopwatch) -> Self:
        """Run it on all samples, once."""
        try:
            given = [[as_array(sample[name]) for name in program.inputs] for sample in program.samples]
            with clock("run"):
                return cls([executable.run(AS_GIVEN, arrays) for arrays in given])
        except (RunError, CaptureError) as error:
            return cls((), str(error))


@dataclass(frozen=True)
class _AsGiven:
    """Runs the user's own build in the native precision, and the search's in float64."""

    native: Arrays
    """What the user's build gave, which takes the user's inputs and knows the parameters."""
    search: Runs
    taps: bool
    """Values inside are wanted in the native precision, too."""
    judged: int

    @property
    def ambiguous(self) -> bool:
        return self.search.ambiguous

    def run_native(self, inputs: Arrays) -> Arrays:
        return [*self.native, *self.search.run_native(inputs)[self.judged :]] if self.taps else self.native

    def run_wide(self, inputs: Arrays) -> Arrays:
        return self.search.run_wide(inputs)


@dataclass
class Whole:
    """The model end to end, on all samples.

    Args:
        edge: what enters and leaves it.
        native: what the user's own build gave, or the reason why there is none.
        rulers: measure on each sample.
    """

    edge: Boundary
    native: AsBuilt | str
    rulers: Sequence[Ruler]
    drifts: Mapping[str, Drift] = field(default_factory=dict)
    """How far values inside are off by themselves and by all before them, by graph node; filled by `judge` or `tap`."""
    _outputs: list[Arrays] = field(default_factory=list)
    _deviations: list[tuple[float, float]] = field(default_factory=list)
    """Of each output on each sample, as the user builds the model, with the unit of its precision."""

    def run(self) -> str:
        """Take what the user's own build gave; the reason if it gave nothing."""
        if isinstance(self.native, str) or self.native.failure:
            return self.native if isinstance(self.native, str) else self.native.failure
        if not self._outputs:
            try:
                by_sample = zip(self.native.outputs, self.rulers, strict=True)
                self._deviations = [pair for arrays, ruler in by_sample for pair in self._far(arrays, ruler)]
            except CaptureError as error:  # what PyTorch gives is not dense
                return str(error)
            self._outputs = list(self.native.outputs)
        return ""

    def _far(self, arrays: Arrays, ruler: Ruler) -> Iterator[tuple[float, float]]:
        for i, node in enumerate(self.edge.outputs):
            unit = UNIT.get(declared_dtype(node) or node.meta["val"].dtype, 0.0)  # of what is not rounded it is 0
            expected = as_array(ruler.reference.native[node.name])
            if i >= len(arrays) or arrays[i].shape != expected.shape:
                yield math.inf, unit
            else:
                yield compare(arrays[i], expected, Floor(np.zeros(expected.shape), unit)).deviation, unit

    @property
    def has_run(self) -> bool:
        """The user's own build gave something."""
        return bool(self._outputs)

    def clearly_deviates(self) -> bool:
        """True if what the user sees is off by more than most rounding: then the parts are needed (a guess, to save a build)."""
        return any(deviation > THRESHOLD * unit for deviation, unit in self._deviations)

    def judge_native(self) -> Judgement:
        """What can be said without the float64 build: how far the model is off, not whether rounding explains it."""
        reason = "it was run as you build it, but not in float64, which tells rounding from a fault"
        return replace(unresolved(reason), deviation32=max((deviation for deviation, _ in self._deviations), default=0.0))

    def judge(self, built: Part, *, closely: bool = False, taps: bool = False) -> Judgement:
        """Judge the model, given its float64 version; with `taps`, measure the values inside as well."""
        if reason := self.run():
            return unresolved(reason)
        judgements = []
        for ruler, native in zip(self.rulers, self._outputs, strict=True):
            part = built
            if not isinstance(built.runnable, str):
                given = _AsGiven(native, built.runnable, taps, len(self.edge.outputs))
                part = Part(built.edge, given)
            judgements.append(self._measure(ruler, part, closely=closely, taps=taps))
        return worst_of(judgements)

    def tap(self, part: Part) -> None:
        """Measure the values inside, from both of the search's own builds."""
        for ruler in self.rulers:
            _, evidence = ruler.measure_with_evidence(part)
            self._note(ruler, evidence)

    def _note(self, ruler: Ruler, evidence: Evidence | None) -> None:
        if evidence is not None:
            with ruler.clock("compare"):
                found = drifts(evidence)
            self.drifts = {name: further(self.drifts.get(name), drift) for name, drift in found.items()}

    def _measure(self, ruler: Ruler, part: Part, *, closely: bool, taps: bool) -> Judgement:
        judgement, evidence = ruler.measure_with_evidence(part, closely=closely)
        if taps:
            self._note(ruler, evidence)
        return judgement
