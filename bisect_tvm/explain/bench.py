"""Builds variants of culprits (other passes, another target, another graph) and measures them as the culprits were."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch.export import ExportedProgram

from bisect_tvm.errors import CaptureError
from bisect_tvm.explain.formulas import FORMULAS
from bisect_tvm.explain.kinds import Kind
from bisect_tvm.explain.remedy import Remedy
from bisect_tvm.lowering.build import Builder, is_unoptimised, unoptimised
from bisect_tvm.lowering.importer import Imported, ImporterError, import_program
from bisect_tvm.lowering.kernels import Kernels
from bisect_tvm.lowering.pipeline import Pipeline
from bisect_tvm.lowering.workshop import Arrays, Runnable, Workshop
from bisect_tvm.measure import Part, Ruler, Runs
from bisect_tvm.model.capture import Program
from bisect_tvm.model.cut import Boundary, created, cut, whole
from bisect_tvm.model.decompose import Operator, can_be_decomposed, created_by, decomposed, operator_of
from bisect_tvm.model.hierarchy import component_tree
from bisect_tvm.model.reference import Reference, run_reference
from bisect_tvm.numerics.judge import Judgement, unresolved, worst_of


@dataclass(frozen=True)
class _Reordered:
    """What was built of a program that takes the same inputs in another order."""

    runnable: Runs
    order: tuple[int, ...]

    @property
    def ambiguous(self) -> bool:
        return self.runnable.ambiguous

    def run_native(self, inputs: Arrays) -> Arrays:
        return self.runnable.run_native([inputs[i] for i in self.order])

    def run_wide(self, inputs: Arrays) -> Arrays:
        return self.runnable.run_wide([inputs[i] for i in self.order])


@dataclass(frozen=True)
class Variant:
    """What TVM's importer made of a component, with some change; or why there is nothing."""

    edge: Boundary
    """Of the component as it was: what the variant is compared by."""
    imported: Imported | str
    order: tuple[int, ...] | None = None
    """Which of the edge's inputs the variant takes, in its order; None for all, in theirs."""


class Bench:
    """Makes variants of components of one program, and measures them.

    Args:
        program: the captured program.
        rulers: measure, on each sample.
        workshop: the search's, with the user's target, pipeline and convert map.
        allow: called before each build; raises when there may be no more.
    """

    def __init__(self, program: Program, rulers: Sequence[Ruler], workshop: Workshop, allow: Callable[[], None]) -> None:
        self.program, self.rulers, self.workshop = program, rulers, workshop
        self._allow = allow
        self.builds = 0
        self._at_level_0: Kernels | None = None
        self._unchanged: dict[str, Variant] = {}

    @property
    def reference(self) -> Reference:
        """Of the first sample."""
        return self.rulers[0].reference

    def variant(self, edge: Boundary, remedy: Remedy) -> Variant:
        """Import a component with a change."""
        exported = cut(self.program, edge, self.reference.values)
        try:
            if not remedy.changes_graph:
                return Variant(edge, self._import(exported, created(edge, self.reference.values), remedy))
            exported = decomposed(exported, remedy.decomposed, {o: FORMULAS[o] for o in remedy.rewritten})
            return Variant(edge, self._import(exported, created_by(exported), remedy))
        except (CaptureError, ImporterError) as error:
            return Variant(edge, str(error))

    def unchanged(self, kind: Kind) -> Variant:
        """Import the worst culprit of a kind as the user does."""
        if kind.name not in self._unchanged:
            self._unchanged[kind.name] = self.variant(kind.worst.edge, Remedy(""))
        return self._unchanged[kind.name]

    def operators_after(self, kind: Kind) -> tuple[Operator, ...]:
        """What the operators of a kind of culprit consist of when PyTorch decomposes those that it can, each once."""
        can = [operator for operator in kind.operators if can_be_decomposed(operator)]
        if not can:
            return ()
        try:
            exported = decomposed(cut(self.program, kind.worst.edge, self.reference.values), can)
        except CaptureError:
            return ()
        return tuple(dict.fromkeys(operator for node in exported.graph.nodes if (operator := operator_of(node)) is not None))

    def undecomposed(self, edge: Boundary, remedy: Remedy) -> Variant:
        """Import the whole program as it was exported, before it was decomposed; `edge` is the decomposed one's."""
        if self.program.undecomposed is None:
            return Variant(edge, "there is no other program")
        exported = self.program.undecomposed
        other = replace(self.program, exported=exported)
        try:
            values = run_reference(other).values
            whole_edge = whole(other, component_tree(other), values)
            imported = self._import(cut(other, whole_edge, values), created(whole_edge, values), remedy)
        except (CaptureError, ImporterError) as error:
            return Variant(edge, str(error))
        place = {node.name: i for i, node in enumerate(edge.inputs)}
        missing = [node.name for node in whole_edge.inputs if node.name not in place]
        if missing:
            return Variant(edge, f"it reads {', '.join(missing)}, which the decomposed program does not")
        return Variant(edge, imported, tuple(place[node.name] for node in whole_edge.inputs))

    def measure(self, variants: Mapping[str, Variant], *, pipeline: Pipeline, at_level_0: bool = False) -> dict[str, Judgement]:
        """Build all variants in one module, for the user's target or that at opt-level 0, and judge each by its own edge."""
        builder = self._builder(pipeline, at_level_0=at_level_0)
        workshop = Workshop(builder, self.workshop.convert_map, self.workshop.clock)
        ready = {f"v{i}": v.imported for i, v in enumerate(variants.values()) if not isinstance(v.imported, str)}
        try:
            built = workshop.build_parts(ready)
        finally:
            self.builds += builder.builds
        found = {}
        for i, (name, variant) in enumerate(variants.items()):
            runnable = built.get(f"v{i}")
            reason = variant.imported if isinstance(variant.imported, str) else workshop.failures.get(f"v{i}", "")
            found[name] = self._judge(variant, runnable) if runnable is not None else unresolved(reason)
        return found

    def _builder(self, pipeline: Pipeline, *, at_level_0: bool) -> Builder:
        """One that shares the kernels that were compiled for the same target."""
        user = self.workshop.builder
        if not at_level_0 or is_unoptimised(user.target):
            return Builder(user.target, pipeline, self._allow, user.kernels)
        self._at_level_0 = self._at_level_0 or Kernels(unoptimised(user.target))
        return Builder(unoptimised(user.target), pipeline, self._allow, self._at_level_0)

    def _judge(self, variant: Variant, runnable: Runnable) -> Judgement:
        runs: Runs = runnable if variant.order is None else _Reordered(runnable, variant.order)
        return worst_of([ruler.measure(Part(variant.edge, runs), closely=True) for ruler in self.rulers])

    def _import(self, exported: ExportedProgram, numbers: Sequence[NDArray[np.float64]], remedy: Remedy) -> Imported:
        kept = {name: f for name, f in (self.workshop.convert_map or {}).items() if name not in remedy.converters}
        return import_program(exported, kept, numbers)
