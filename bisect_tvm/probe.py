"""The probe: answers the search's question about many components at once.

    components -> cut -> import -> widen -> build -> run -> compare -> judge

Here the rooms meet: what PyTorch says (model), what TVM makes of it (lowering) and how they differ (numerics).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from bisect_tvm.errors import CaptureError
from bisect_tvm.lowering.workshop import Workshop
from bisect_tvm.measure import measure
from bisect_tvm.model.capture import Program
from bisect_tvm.model.cut import created, whole
from bisect_tvm.model.hierarchy import Component
from bisect_tvm.model.reference import Reference
from bisect_tvm.numerics.judge import Judgement, unresolved
from bisect_tvm.parts import Part, build_parts
from bisect_tvm.stopwatch import Stopwatch

VISIBLE = "the digits are lost in elements that are tiny beside the largest, which the component around it makes visible"


class Probe:
    """Judges components of one program against its reference."""

    def __init__(
        self,
        program: Program,
        tree: Component,
        reference: Reference,
        workshop: Workshop,
        clock: Stopwatch,
        progress: Callable[[str], None],
    ) -> None:
        self._program = program
        self._tree = tree
        self._reference = reference
        self._workshop = workshop
        self._clock = clock
        self._progress = progress
        self._parts: dict[str, Part] | None = None
        self._asked = 0

    def __call__(self, components: Sequence[Component]) -> dict[str, Judgement]:
        """Judge all `components`. The first question about parts builds every part of the program, once."""
        answers = {}
        before, self._asked = self._asked, self._asked + len(components)  # one count for all questions
        for number, component in enumerate(components, before + 1):
            part = self._part(component)
            self._progress(f"comparing {_name(component)} ({number} of {self._asked})")
            answers[component.id] = self._judge(part)
        return answers

    def strictly(self, components: Sequence[Component]) -> dict[str, Judgement]:
        """Judge again, without excusing lost digits of elements that are tiny beside the largest."""
        again = {component.id: self._judge(self._part(component), strictly=True) for component in components}
        return {id: replace(judgement, reason=f"{judgement.reason}; {VISIBLE}") for id, judgement in again.items()}

    def _part(self, component: Component) -> Part:
        """The component, built if it can be."""
        if component is self._tree:
            self._progress("building the model as you do, and in float64")
            edge = whole(self._program, component)
            return Part(edge, self._workshop.build_whole(self._program.exported, created(edge, self._reference.values)))
        if self._parts is None:
            self._progress("cutting the model into its parts")
            self._parts = build_parts(self._program, self._tree, self._reference, self._workshop, self._clock, self._progress)
        return self._parts[component.id]

    def _judge(self, part: Part, *, strictly: bool = False) -> Judgement:
        if isinstance(part.runnable, str):
            return unresolved(part.runnable)
        try:
            return measure(self._program, self._reference, part.edge, part.runnable, self._clock, strictly=strictly)
        except CaptureError as error:  # PyTorch refuses an operator
            return unresolved(str(error))


def _name(component: Component) -> str:
    """Where it is, and which operator, if it is one."""
    return f"{component.path} {component.operator or ''}".strip() or "the model"
