"""The probe: answers the search's questions about many components at once.

    components -> cut -> import -> widen -> build -> run -> compare -> judge

Here the rooms meet: what PyTorch says (model), what TVM makes of it (lowering) and how they differ (numerics).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from bisect_tvm.errors import StoppedError
from bisect_tvm.measure import Drift, Part, Ruler
from bisect_tvm.model.capture import Program
from bisect_tvm.model.cut import Boundary, boundary, copies_of_parameters, showing, swapped, tapped, whole
from bisect_tvm.model.hierarchy import Component, joined
from bisect_tvm.numerics.judge import Judgement, worst_of
from bisect_tvm.numerics.verdict import Verdict
from bisect_tvm.parts import Cutter
from bisect_tvm.whole import AsBuilt, Whole

VISIBLE = "the digits are lost in elements that are tiny beside the largest, which the component around it makes visible"
NOTHING_LEFT = Judgement(
    Verdict.FAITHFUL, (Verdict.FAITHFUL,), "the culprits give all that the model returns: nothing else is left to deviate"
)
TAPS = "(taps)"
"""Name of the whole model with values tapped inside, where that has to be built apart."""


class Probe:
    """Judges components of one program against its reference.

    Args:
        program: the captured program.
        tree: its components.
        cutter: builds them.
        rulers: measure them, on each sample.
        native: gives what the user's own build of the whole gave, or the reason why there is none.
        check: called before each measurement; raises when the time is up.
        progress: called with a line as each step begins.
        ahead: the user's own build is being made meanwhile, so that there is time to prepare the parts.
    """

    def __init__(
        self,
        program: Program,
        tree: Component,
        cutter: Cutter,
        rulers: Sequence[Ruler],
        native: Callable[[], AsBuilt | str],
        check: Callable[[], None],
        progress: Callable[[str], None],
        *,
        ahead: bool = False,
    ) -> None:
        self._program, self._tree, self._cutter, self._rulers = program, tree, cutter, rulers
        self._native, self._check, self._progress, self._ahead = native, check, progress, ahead
        self._values = rulers[0].reference.values
        self._parts: dict[str, Part] = {}
        self._edges: dict[tuple[str, ...], Boundary] = {}
        self._by_nodes: dict[tuple[str, ...], Judgement] = {}
        self._whole: Whole | None = None
        self._taps: Part | None = None
        self._asked = 0
        self.further_builds = 0
        """Builds that proved what was found."""
        self.answers: dict[str, Judgement] = {}
        """All that was found out so far, whatever becomes of the search."""

    def __call__(self, components: Sequence[Component]) -> Mapping[str, Judgement]:
        """Judge all `components`. The first question about parts builds every part of the program, once."""
        before, self._asked = self._asked, self._asked + len(components)  # one count for all questions
        for number, component in enumerate(components, before + 1):
            if component.id not in self.answers:
                self.answers[component.id] = self._answer(component, f"({number} of {self._asked})")
        return {component.id: self.answers[component.id] for component in components}

    def closely(self, components: Sequence[Component]) -> Mapping[str, Judgement]:
        """Judge again by the noise inside operators, which a first look at what holds several leaves out."""
        return {component.id: self._again(component, closely=True) for component in components}

    def strictly(self, components: Sequence[Component]) -> Mapping[str, Judgement]:
        """Judge again, without excusing lost digits of elements that are tiny beside the largest."""
        again = {component.id: self._again(component, strictly=True) for component in components}
        return {id: replace(judgement, reason=f"{judgement.reason}; {VISIBLE}") for id, judgement in again.items()}

    def runs(self, runs: Sequence[tuple[str, ...]]) -> Mapping[tuple[str, ...], Judgement]:
        """Judge runs of operators, given by their ids, compiled together: all of them in one build."""
        components = {run: joined(self._tree, run) for run in runs}
        unknown = [component for component in components.values() if component.id not in self.answers]
        if unknown:
            self._progress(f"building {len(unknown)} runs of operators in one module")
            built = self._cutter.build({c.id: self.edge_of(c) for c in unknown})
        for number, component in enumerate(unknown, 1):
            self._progress(f"comparing runs of operators ({number} of {len(unknown)})")
            judgement = self._measure(built[component.id])
            # There is no component around it that would be looked at instead.
            self.answers[component.id] = self._measure(built[component.id], closely=True) if judgement.doubtful else judgement
        return {run: self.answers[component.id] for run, component in components.items()}

    def swap(self, replacing: Mapping[str, Sequence[Component]]) -> Mapping[str, Judgement]:
        """Judge the whole model with the reference's values in place of what some components give: each question by its name."""
        self._progress("building the model with the culprits replaced by the reference")
        edges = {name: self._without(parts) for name, parts in replacing.items()}
        built = self._build_further({name: edge for name, edge in edges.items() if edge.outputs})
        found = {}
        for name in replacing:
            self._progress(f"running the model with the culprits replaced ({name})")
            found[name] = self._measure(built[name], closely=True) if name in built else NOTHING_LEFT
        return found

    def in_place(self, replacing: Mapping[tuple[str, ...], Sequence[Component]]) -> Mapping[tuple[str, ...], Judgement]:
        """Judge what runs of operators give inside the whole model, each with some components replaced by the reference."""
        self._progress(f"building the model to see {len(replacing)} runs of operators inside it")
        runs = {run: joined(self._tree, run) for run in replacing}
        edges = {run: showing(self._without(parts, runs[run]), self.edge_of(runs[run]).outputs) for run, parts in replacing.items()}
        built = self._build_further({runs[run].id: edge for run, edge in edges.items()})
        return {run: self._measure(built[component.id], closely=True) for run, component in runs.items()}

    def _without(self, parts: Sequence[Component], kept: Component | None = None) -> Boundary:
        """The whole model with the reference's values in place of what `parts` give, but for what is in `kept`, too."""
        left = set(kept.nodes) if kept is not None else set[str]()
        replaced = [node for part in parts for node in part.nodes if node not in left]
        return swapped(self._program, self.whole_edge, replaced, self._values)

    def _build_further(self, edges: Mapping[str, Boundary]) -> Mapping[str, Part]:
        before = self._cutter.workshop.builder.builds
        try:
            return self._cutter.build(edges)
        finally:
            self.further_builds += self._cutter.workshop.builder.builds - before

    def tap(self) -> None:
        """Measure values inside the whole model, if it deviates and that has not been done."""
        if self._whole is not None and self._taps is not None and not self._whole.drifts and self.answers[self._tree.id].diverges:
            self._progress("running the model with its modules' outputs tapped")
            self._check()
            self._whole.tap(self._taps)

    @property
    def fuses(self) -> bool:
        """Operators that are compiled together may become something else; TVM's default pipeline fuses nothing."""
        return not self._cutter.workshop.builder.pipeline.is_default

    @property
    def drifts(self) -> Mapping[str, Drift]:
        """How far values inside the whole model are off, by graph node; empty unless `tap` could measure it."""
        return self._whole.drifts if self._whole is not None else {}

    def edge_of(self, component: Component) -> Boundary:
        """What enters and leaves a component."""
        if component.nodes not in self._edges:
            self._edges[component.nodes] = boundary(self._program, component, self._values)
        return self._edges[component.nodes]

    @cached_property
    def whole_edge(self) -> Boundary:
        """What enters and leaves the model."""
        return whole(self._program, self._tree, self._values)

    def _answer(self, component: Component, count: str) -> Judgement:
        if component is self._tree:
            return self._judge_whole(f" {count}")
        part = self._part_of(component)
        self._progress(f"comparing {_name(component)} {count}")
        if component.nodes not in self._by_nodes:  # a module that holds one operator is that operator
            self._by_nodes[component.nodes] = self._measure(part)
        return self._by_nodes[component.nodes]

    def _again(self, component: Component, *, strictly: bool = False, closely: bool = False) -> Judgement:
        self._progress(f"looking again at {_name(component)}")
        if component is self._tree:
            return self._judge_whole(closely=closely)
        return self._measure(self._part_of(component), strictly=strictly, closely=closely)

    def _part_of(self, component: Component) -> Part:
        """What was built of a component; where nothing was yet, every part of the program is."""
        if component.id not in self._parts:
            self._build(self._tree.walk())
        return self._parts[component.id]

    def _measure(self, part: Part, *, strictly: bool = False, closely: bool = False) -> Judgement:
        judgements = []
        for ruler in self._rulers:
            self._check()
            judgements.append(ruler.measure(part, strictly=strictly, closely=closely))
        return worst_of(judgements)

    def _judge_whole(self, count: str = "", *, closely: bool = False) -> Judgement:
        root = self._tree
        if self._whole is None:
            if self._ahead:
                self._progress("cutting the model into its parts")
                self._cutter.prepare(self._edges_of(root.walk(), sound=True))
            self._progress("building the model as you do")
            self._whole = Whole(self.whole_edge, self._native(), self._rulers)
        try:
            if not self._whole.run() and root.id not in self._parts:
                self._build(root.walk() if self._whole.clearly_deviates() else [root])
            self._check()
            self._progress(f"comparing the model{count}")
            part = self._parts.get(root.id, Part(self.whole_edge, ""))
            return self._whole.judge(part, closely=closely, taps=part is self._taps)
        except (StoppedError, KeyboardInterrupt):
            if self._whole.has_run:  # then it is known how far the model is off, though not yet why
                self.answers.setdefault(root.id, self._whole.judge_native())
            raise

    def _build(self, components: Sequence[Component]) -> None:
        """Build what has not been built; with the parts, also the whole model with values tapped inside."""
        self._progress("building the model's parts" if len(components) > 1 else "building the model in float64")
        sound = self._whole is not None and not isinstance(self._whole.native, str)
        edges = self._edges_of(components, sound=sound)
        self._parts |= self._cutter.build(edges)
        self._taps = self._parts.get(TAPS) or next((p for p in self._parts.values() if p.edge.judged is not None), None)

    def _edges_of(self, components: Sequence[Component], *, sound: bool) -> dict[str, Boundary]:
        """What is to be built for these components; the whole as well, if the user's own build of it is `sound`."""
        edges = {c.id: self.edge_of(c) for c in components if c is not self._tree}
        edges = {id: edge for id, edge in edges.items() if id not in self._parts}
        if sound:
            # In TVM's default pipeline, which fuses nothing, a tap changes nothing; elsewhere the whole must stay whole.
            same = not self.fuses
            if self._tree.id not in self._parts or (edges and same):
                edges[self._tree.id] = self._tapped(self._tree.walk()[1:]) if edges and same else self.whole_edge
            if edges.keys() - {self._tree.id} and not same:
                edges[TAPS] = self._tapped([c for c in self._tree.walk()[1:] if c.children])
        return edges

    def _tapped(self, components: Sequence[Component]) -> Boundary:
        edges = (self.edge_of(component) for component in components)
        copies = copies_of_parameters(self._program)
        return tapped(self.whole_edge, (node for edge in edges for node in edge.outputs if node.name not in copies))


def _name(component: Component) -> str:
    """Where it is, and which operator, if it is one."""
    return f"{component.path} {component.operator or ''}".strip() or "the model"
