"""The whole search: walk, sweep, narrow, prove; and go on where the proof fails.

Pure, as `walk` and `narrow` are. What is known at any time is kept in the object, so that a search that is stopped (no more
builds, no more time, Ctrl-C) still gives its best answer.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic

from bisect_tvm.search.narrow import narrow
from bisect_tvm.search.runs import Run
from bisect_tvm.search.sweep import sweep
from bisect_tvm.search.walk import A, Found, Looks, N, agrees, conclude, leaves, preorder, walk

MOST_KINDS = 12
"""Kinds of culprits left in one by one."""
ALL = "all culprits"
"""Name of the question in which every culprit is replaced."""

MOST_IN_PLACE = 12
"""Runs that are looked at inside the whole, each of which takes a copy of it."""

Swap = Callable[[Mapping[str, Sequence[Run]]], Mapping[str, A]]
"""Judges the whole with some culprits replaced by the reference, for each question by its name."""

InPlace = Callable[[Mapping[Run, Sequence[Run]]], Mapping[Run, A]]
"""Judges what each run gives inside the whole, with other culprits replaced by the reference."""


@dataclass(frozen=True)
class Kept(Generic[A]):
    """The whole with all culprits replaced but those of one kind."""

    culprits: tuple[Run, ...]
    answer: A


@dataclass(frozen=True)
class Proof(Generic[A]):
    """What becomes of the whole when culprits are replaced by the reference."""

    swapped: A
    """With all of them replaced."""
    kept: tuple[Kept[A], ...]
    """With one kind left in at a time."""


@dataclass
class Search(Generic[N, A]):
    """Finds the smallest components that fail, and proves that they are to blame.

    Args:
        root: the tree.
        operators: its operators in execution order, by id.
        readers: which operators read an operator.
        looks: judge components.
        together: judges runs of operators, compiled together.
        swap: judges the whole with some of it replaced.
        kind_of: what makes two culprits the same but for their place; given the finest and then ever coarser ways.
        exhaustive: look at everything, even if the whole agrees.
        in_place: judges runs inside the whole; without it, what fails by itself is taken to fail there.
        sweeping: operators in the runs that are looked at wherever they are; 0 to look only inside what fails.
    """

    root: N
    operators: Sequence[str]
    readers: Mapping[str, Sequence[str]]
    looks: Looks[N, A]
    together: Callable[[Sequence[Run]], Mapping[Run, A]]
    swap: Swap[A]
    kinds_of: Sequence[Callable[[Run], Hashable]]
    exhaustive: bool = False
    in_place: InPlace[A] | None = None
    sweeping: int = 0
    answers: dict[str, A] = field(default_factory=dict)
    proof: Proof[A] | None = None
    run_answers: dict[Run, A] = field(default_factory=dict)
    """Of the runs of operators that fail together."""
    _found: Found[A] | None = None
    _absent: set[Run] = field(default_factory=set)
    """Runs that fail by themselves, and not inside the whole."""
    step: str = "the model as a whole"
    """What is being looked at."""

    def run(self) -> None:
        """Search to the end."""
        self.step = "the model and its operators"
        self._found = walk(self.root, self.looks, self.answers, exhaustive=self.exhaustive)
        self.step = "what fails only when compiled together"
        innocent = self._innocent()
        self._sweep(innocent)
        # A run that was found may stand with one foot in a component that fails for another reason, so its operators stay.
        self._narrow([suspect for suspect in self._suspects().values() if not self._runs_in(suspect)], innocent)
        self._drop_absent()
        self.step = "the proof"
        while self._prove() and self._narrow([self._rest()], self._innocent()):
            pass
        self.step = ""

    @property
    def found(self) -> Found[A]:
        """What the walk found, or what its answers so far amount to."""
        return self._found or conclude(self.root, self.answers)

    @property
    def culprits(self) -> tuple[Run, ...]:
        """The smallest failing components, in execution order: operators, runs of operators, and what could not be narrowed."""
        explained = {id for id, suspect in self._suspects().items() if self._runs_in(suspect)}
        single = [(id,) for id in self.found.culprits if id not in explained]
        place = {id: number for number, id in enumerate(self._nodes())}
        return tuple(sorted([*single, *self.run_answers], key=lambda run: place[run[0]]))

    def _sweep(self, innocent: Run) -> None:
        """Look at all small runs, unless the whole agrees and that is enough."""
        if self.sweeping and (self.exhaustive or not agrees(self.answers[self.root.id])):
            found = sweep(innocent, self.readers, self.together, self.answers, largest=self.sweeping)
            self._accuse(found)

    def _narrow(self, suspects: Sequence[Run], innocent: Run) -> bool:
        """Look for runs of operators that fail together inside `suspects`; tells whether there are any."""
        if not suspects:
            return False
        narrowed = narrow(innocent, self.readers, self.together, [run for run in suspects if len(run) > 1])
        known = len(self.run_answers)
        self._accuse({run: narrowed.answers[run] for run in narrowed.runs if run in narrowed.answers})
        return len(self.run_answers) > known

    def _accuse(self, found: Mapping[Run, A]) -> None:
        """Note runs that fail; of those that share several operators, which are taken for one fault in different company, one."""
        suspects = [set(suspect) for suspect in self._suspects().values()]
        order = {id: number for number, id in enumerate(self.operators)}
        # A run inside a component that fails explains it, which one that only touches the component does not.
        outside = {run: not any(suspect.issuperset(run) for suspect in suspects) for run in found}
        for run in sorted(found, key=lambda run: (outside[run], len(run), [order[id] for id in run])):
            is_component = set(run) in suspects
            if not is_component and run not in self._absent and not any(len(set(run) & set(o)) > 1 for o in self.run_answers):
                self.run_answers[run] = found[run]

    def _drop_absent(self) -> None:
        """Of runs that nothing around them shows, or several of which would explain it, keep those that fail inside the whole."""
        around = [self._runs_in(suspect) for suspect in self._suspects().values()]
        certain = {runs[0] for runs in around if len(runs) == 1}
        unsure = [run for run in self.run_answers if run not in certain]
        if self.in_place is None or not 0 < len(unsure) <= MOST_IN_PLACE or self.answers[self.root.id].unresolved:
            return
        culprits = self.culprits
        answers = self.in_place({run: [other for other in culprits if other != run] for run in unsure})
        absent = {run for run in unsure if agrees(answers[run])}
        absent -= {run for runs in around if set(runs) <= absent for run in runs}  # something must explain what fails
        self._absent |= absent
        for run in absent:
            del self.run_answers[run]

    def _suspects(self) -> dict[str, Run]:
        """The operators of each component that fails although its parts agree."""
        nodes = self._nodes()
        return {id: tuple(leaf.id for leaf in leaves(nodes[id])) for id in nodes if id in self.found.interactions}

    def _runs_in(self, suspect: Run) -> list[Run]:
        inside = set(suspect)
        return [run for run in self.run_answers if len(run) < len(inside) and inside.issuperset(run)]

    def _prove(self) -> bool:
        """Replace the culprits; tells whether something else is still to be found."""
        culprits, root = self.culprits, self.answers[self.root.id]
        if not culprits or not root.diverges or (self.root.id,) in culprits:
            return False
        kinds = self._kinds(culprits)
        questions: dict[str, list[Run]] = {ALL: list(culprits)}
        if len(kinds) > 1:
            for number, kind in enumerate(kinds):
                questions[f"all but kind {number + 1} of {len(kinds)}"] = [c for c in culprits if c not in kind]
        answers = self.swap(questions)
        kept = [answers[name] for name in questions if name != ALL] or [root]
        pairs = zip(kinds, kept, strict=True)
        self.proof = Proof(answers[ALL], tuple(Kept(kind, answer) for kind, answer in pairs))
        return answers[ALL].diverges

    def _kinds(self, culprits: Sequence[Run]) -> list[tuple[Run, ...]]:
        """The culprits by kind: as fine as there is room for."""
        for kind_of in self.kinds_of:
            kinds: dict[Hashable, list[Run]] = {}
            for run in culprits:
                kinds.setdefault(kind_of(run), []).append(run)
            if len(kinds) <= MOST_KINDS:
                break
        return [tuple(runs) for runs in kinds.values()]

    def _innocent(self) -> Run:
        """Operators that are no culprits, nor in a run that is one."""
        culprits = {id for run in self.culprits for id in run}
        return tuple(id for id in self.operators if id not in culprits)

    def _rest(self) -> Run:
        """Operators that are in no culprit."""
        suspects = self._suspects()
        culprits = {id for run in self.culprits for id in suspects.get(run[0], ())}
        return tuple(id for id in self._innocent() if id not in culprits)

    def _nodes(self) -> dict[str, N]:
        return {node.id: node for node in preorder(self.root)}
