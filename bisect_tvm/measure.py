"""One component measured: what TVM gave beside what PyTorch gives, with the noise floor, in both precisions."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import torch

from bisect_tvm.errors import CaptureError, one_line
from bisect_tvm.lowering.build import RunError
from bisect_tvm.lowering.workshop import Arrays, Runnable
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
WORTH_A_LOOK = 16.0
"""Excess above which an operator's floor is measured in depth, at ten times the cost. Most operators stay below."""


def measure(
    program: Program, reference: Reference, edge: Boundary, runnable: Runnable, clock: Stopwatch, *, strictly: bool = False
) -> Judgement:
    """Run one built component in both precisions on the reference's values, and judge it.

    Args:
        program: the captured program.
        reference: its values in float64.
        edge: the component.
        runnable: what TVM made of it.
        clock: takes the time.
        strictly: do not excuse lost digits of elements that are tiny beside the largest.
    """
    values = reference.values
    wide_inputs = [as_array(values[node.name]) for node in edge.inputs]
    try:
        with clock("run"):
            wide = runnable.run_wide(wide_inputs)
            native = runnable.run_native([as_array(rounded(values[node.name], node)) for node in edge.inputs])
    except RunError as error:
        return unresolved(str(error))
    if not len(wide) == len(native) == len(edge.outputs):
        return unresolved(f"TVM returned {len(native)} outputs, PyTorch {len(edge.outputs)}")
    with clock("compare"):
        judgement = _judge(_Evidence(program, reference, edge, wide, native, blurred=runnable.ambiguous, strictly=strictly))
    if runnable.ambiguous:
        judgement = replace(judgement, reason=f"{judgement.reason}; {BLURRED}", conclusive=False)
    if judgement.diverges and edge.is_operator:
        with clock("run"):
            again = runnable.run_wide(wide_inputs)
        if any(a.tobytes() != b.tobytes() for a, b in zip(wide, again, strict=True)):
            return replace(judgement, reason=f"{judgement.reason}; two runs of TVM differ from each other")
    return judgement


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


class _Evidence:
    """Gathers what `judge` needs about one component."""

    def __init__(
        self,
        program: Program,
        reference: Reference,
        edge: Boundary,
        wide: Arrays,
        native: Arrays,
        *,
        blurred: bool,
        strictly: bool,
    ) -> None:
        self._program, self._values, self.edge = program, reference.values, edge
        self._wide, self._native = wide, native
        self._expected = [as_array(self._values[node.name]) for node in edge.outputs]
        self._expected_native = self._run_in_native_precision()
        units = [UNIT[dtype] for node in (*edge.nodes, *edge.inputs) if (dtype := declared_dtype(node)) in UNIT]
        native_unit = max(units, default=UNIT[torch.float32])
        self._blurred = blurred
        self.exact = all(map(rounds_nothing, edge.nodes))
        """Nothing in the component rounds."""
        self._tolerance = 1.0 if strictly else _tolerance(edge)
        self._units = native_unit if blurred else UNIT[torch.float64], native_unit

    def outputs(self, *, deep: bool) -> list[OutputEvidence]:
        wide_unit, native_unit = self._units
        floors = {unit: self._floors(unit, deep=deep) for unit in {wide_unit, native_unit}}
        return [
            OutputEvidence(
                name=node.name,
                expected=self._expected[i],
                expected_native=self._expected_native[i],
                actual=self._wide[i],
                actual_native=self._native[i],
                # With constants that could not be restored even a copy is exact to the model's own precision only.
                floor=replace(floors[wide_unit][i], exact=self.exact and not self._blurred),
                floor_native=floors[native_unit][i],
            )
            for i, node in enumerate(self.edge.outputs)
        ]

    def _floors(self, unit: float, *, deep: bool) -> list[Floor]:
        perturbed = run_perturbed(self._program, self.edge, self._values, unit=unit, deep=deep)
        runs = [[as_array(value) for value in run] for run in perturbed]
        spreads = [spread_of(array, [run[i] for run in runs]) for i, array in enumerate(self._expected)]
        jumps = self.edge.is_operator and any(map(jumps_and_rounds, self.edge.nodes))
        pairs = zip(spreads, self._expected, strict=True)
        return [settled(Floor(spread, unit, self.exact, self._tolerance), value, jumps=jumps) for spread, value in pairs]

    def _run_in_native_precision(self) -> list[Array]:
        """PyTorch in the model's own precision, on the reference's boundary values rounded to it."""
        inside = {node.name for node in self.edge.nodes}
        read = {source for node in self.edge.nodes for source in node.all_input_nodes if source.name not in inside}
        env = {node.name: rounded(self._values[node.name], node) for node in (*read, *self.edge.inputs, *self.edge.outputs)}
        run_nodes(self._program, (node.name for node in self.edge.nodes), env, wide=False)
        return [as_array(env[node.name]) for node in self.edge.outputs]


def _tolerance(edge: Boundary) -> float:
    """How much digits of elements that are tiny beside the largest are excused; in runs of operators the floor itself grants it."""
    if not edge.is_operator or not any(loses_near_zero(node.target) for node in edge.nodes):
        return 1.0
    return TOLERATED if any(is_made_for_tiny_numbers(node.target) for node in edge.nodes) else np.inf


def _judge(evidence: _Evidence) -> Judgement:
    """Judge by the cheap floor; where that accuses, by the floor that looks inside operators."""
    judgement = judge(evidence.outputs(deep=False))
    if evidence.exact:
        return judgement
    if evidence.edge.is_operator:
        look_deeper = max(judgement.excess64 or 0.0, judgement.excess32 or 0.0) > WORTH_A_LOOK
    else:
        decides = any(map(jumps, evidence.edge.nodes))  # a decision that flips looks like no rounding
        look_deeper = judgement.diverges and (decides or not _beyond_rounding(judgement))
    if look_deeper:
        return judge(evidence.outputs(deep=True))
    return judgement


def _beyond_rounding(judgement: Judgement) -> bool:
    """True if no rounding inside operators can explain the deviation, so that the costly deep floor need not be measured.

    What cancels inside an operator loses digits of small elements; it does not move the largest ones by half of a double's digits.
    """
    return (judgement.deviation64 or 0.0) > 2.0**-26 and (judgement.excess64 or 0.0) > 2.0**30
