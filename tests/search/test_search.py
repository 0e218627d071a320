"""The whole search on synthetic models: a probe with planted faults, and an oracle that swaps culprits for the reference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from bisect_tvm.search.runs import Graph, Run
from bisect_tvm.search.search import ALL, Search
from bisect_tvm.search.walk import Looks
from tests.search.trees import AGREES, FAILS, Answer, Node, leaves, numbered, preorder, trees


@dataclass
class Model:
    """A chain of operators in a tree, some of which fail, alone or together.

    What fails shows outside of a component only if nothing behind it in there saturates.
    """

    root: Node
    faults: Sequence[Run]
    """Operators that fail alone, and runs that fail together."""
    saturating: frozenset[str] = frozenset()
    unless: Mapping[Run, str] = field(default_factory=dict)
    """Runs that fail only where this operator is not compiled with them."""
    asked: list[Run] = field(default_factory=list)
    questions: int = 0
    swaps: list[Mapping[str, Sequence[Run]]] = field(default_factory=list)

    @property
    def operators(self) -> tuple[str, ...]:
        return tuple(leaf.id for leaf in leaves(self.root))

    @property
    def readers(self) -> dict[str, list[str]]:
        return {one: [other] for one, other in pairwise(self.operators)}

    def at_work(self, members: Run) -> list[Run]:
        """The faults that happen where these operators are compiled together, in a chain."""
        inside = [run for run in self.faults if set(run) <= set(members) and self.unless.get(run, "") not in members]
        position = {id: number for number, id in enumerate(members)}
        return [run for run in inside if position[run[-1]] - position[run[0]] == len(run) - 1]

    def shows(self, members: Run) -> bool:
        """Something of it comes out at the end."""
        return any(not self.saturating & set(members[members.index(run[-1]) + 1 :]) for run in self.at_work(members))

    def probe(self, nodes: Sequence[Node]) -> dict[str, Answer]:
        self.questions += 1
        return {node.id: FAILS if self.shows(tuple(leaf.id for leaf in leaves(node))) else AGREES for node in nodes}

    def together(self, runs: Sequence[Run]) -> dict[Run, Answer]:
        self.questions += 1
        self.asked += runs
        return {run: FAILS if self.shows(run) else AGREES for run in runs}

    def swap(self, questions: Mapping[str, Sequence[Run]]) -> dict[str, Answer]:
        self.swaps.append(questions)
        return {name: FAILS if self._shows_without(replaced) else AGREES for name, replaced in questions.items()}

    def _shows_without(self, replaced: Sequence[Run]) -> bool:
        """What is replaced cuts the model into pieces, each of which is given out."""
        gone = self._operators_of(replaced)
        pieces: list[list[str]] = [[]]
        for id in self.operators:
            if id in gone:
                pieces.append([])
            else:
                pieces[-1].append(id)
        return any(self.shows(tuple(piece)) for piece in pieces)

    def _operators_of(self, runs: Sequence[Run]) -> set[str]:
        nodes = {node.id: node for node in preorder(self.root)}
        return {leaf.id for run in runs for id in run for leaf in leaves(nodes[id])}

    def in_place(self, questions: Mapping[Run, Sequence[Run]]) -> dict[Run, Answer]:
        found = {}
        for run, others in questions.items():
            gone = self._operators_of(others)
            left = tuple(id for id in self.operators if id not in gone)
            found[run] = FAILS if run in self.at_work(left) else AGREES
        return found

    def searched(self, *, exhaustive: bool = False, sweeping: int = 0) -> Search[Node, Answer]:
        search = Search(
            self.root, self.operators, self.readers, Looks(self.probe), self.together, self.swap,
            (lambda run: run, len), exhaustive, self.in_place, sweeping,
        )  # fmt: skip
        search.run()
        return search


@st.composite
def independent(draw: st.DrawFn, longest: int = 3) -> tuple[Node, list[Run]]:
    """A tree and faults of one or of several operators in a row, no two of which touch."""
    root = draw(trees.filter(lambda root: len(leaves(root)) > 1))
    operators = [leaf.id for leaf in leaves(root)]
    faults: list[Run] = []
    begin = 0
    while begin < len(operators):
        size = draw(st.sampled_from([0, 0, *range(1, longest + 1)]))
        if size and begin + size <= len(operators):
            faults.append(tuple(operators[begin : begin + size]))
        begin += size + 1
    return root, faults


def flattened(search: Search[Node, Answer]) -> list[Run]:
    """The culprits as operators: a component that cannot be narrowed is the run of all its own."""
    nodes = {node.id: node for node in preorder(search.root)}
    return [run if len(run) > 1 else tuple(leaf.id for leaf in leaves(nodes[run[0]])) for run in search.culprits]


@given(independent())
@settings(max_examples=150)
def test_independent_faults_are_all_found_and_nothing_else(case: tuple[Node, list[Run]]) -> None:
    root, faults = case
    model = Model(root, faults)
    search = model.searched()
    assert flattened(search) == faults
    if faults and (root.id,) not in search.culprits:
        assert search.proof is not None
        assert not search.proof.swapped.diverges
        assert all(kept.answer.diverges for kept in search.proof.kept), "none of them is hidden"


@given(independent(), st.data())
@settings(max_examples=150)
def test_hidden_faults_are_found_where_small_runs_are_swept(case: tuple[Node, list[Run]], data: st.DataObject) -> None:
    """Whatever saturates, as long as the whole shows that something is wrong, or everything is to be looked at."""
    root, faults = case
    free = [leaf.id for leaf in leaves(root) if not any(leaf.id in run for run in faults)]
    saturating = data.draw(st.frozensets(st.sampled_from(free))) if free else frozenset()
    model = Model(root, faults, saturating)
    exhaustive = not model.shows(model.operators)
    search = model.searched(exhaustive=exhaustive, sweeping=3)
    assert flattened(search) == faults
    if search.proof is not None:
        kept = {run: kept.answer.diverges for kept in search.proof.kept for run in kept.culprits}
        assert not search.proof.swapped.diverges
        assert any(kept.values())


@given(independent(longest=7), st.data())
@settings(max_examples=150)
def test_what_is_found_fails_and_is_minimal(case: tuple[Node, list[Run]], data: st.DataObject) -> None:
    """Also where faults are long, hidden, and gone in larger company."""
    root, faults = case
    operators = [leaf.id for leaf in leaves(root)]
    saturating = data.draw(st.frozensets(st.sampled_from(operators), max_size=2))
    unless = {run: data.draw(st.sampled_from(operators)) for run in faults if data.draw(st.booleans())}
    model = Model(root, faults, saturating, {run: id for run, id in unless.items() if id not in run})
    search = model.searched(exhaustive=data.draw(st.booleans()), sweeping=data.draw(st.sampled_from([0, 2, 3])))
    graph = Graph(model.operators, model.readers)
    for run in search.culprits:
        if len(run) > 1:
            assert model.shows(run)
            assert not any(model.shows(graph.named(graph.members(drop))) for drop in graph.drops(graph.set_of(run)))
    assert len(search.culprits) == len(set(search.culprits))
    assert search.step == ""
    assert len(set(model.asked)) <= len(operators) ** 2
    # Every round of the proof finds at least one more.
    assert len(model.swaps) <= len(search.culprits) + 1
    assert model.questions <= 12 + 12 * (1 + len(search.culprits))


def chain(count: int) -> Node:
    return numbered(tuple([None] * count))  # 0 holds 1, 2, 3 and so on


def test_a_fault_that_the_first_one_hides_is_found_when_that_is_replaced() -> None:
    """Two runs of five in one chain, the first of which shows only once what comes behind it is replaced."""
    model = Model(chain(20), [("2", "3", "4", "5", "6"), ("12", "13", "14", "15", "16")], frozenset(["12"]))
    search = model.searched()
    assert flattened(search) == model.faults
    assert not search.proof.swapped.diverges


def test_what_remains_unexplained_is_said() -> None:
    """A fault that needs the operator that is a culprit already, and stays when that one is replaced."""
    model = Model(chain(6), [("2",)])
    model.swap = lambda questions: dict.fromkeys(questions, FAILS)
    search = model.searched()
    assert search.culprits == (("2",),)
    assert search.proof.swapped.diverges


def test_a_culprit_that_is_hidden_is_listed_and_not_necessary() -> None:
    model = Model(chain(8), [("1",), ("6",)], frozenset("3"))
    search = model.searched()
    assert search.culprits == (("1",), ("6",))
    assert [(kept.culprits, kept.answer.diverges) for kept in search.proof.kept] == [((("1",),), False), ((("6",),), True)]


def test_a_run_that_does_not_fail_inside_the_whole_is_not_accused() -> None:
    """It fails alone, but in the model an operator stands behind it that keeps it from failing."""
    model = Model(chain(9), [("1", "2"), ("6", "7")], unless={("1", "2"): "3"})
    assert model.searched(sweeping=3).culprits == (("6", "7"),)
    assert model.searched().culprits == (("6", "7"),)


def test_without_a_fault_there_is_one_question() -> None:
    model = Model(chain(9), [])
    search = model.searched(sweeping=3)
    assert (search.culprits, search.proof, model.questions) == ((), None, 1)


def test_the_names_of_the_questions() -> None:
    model = Model(chain(9), [("1",), ("6",)])
    model.searched()
    (questions,) = model.swaps
    assert set(questions) == {ALL, "all but kind 1 of 2", "all but kind 2 of 2"}
    assert questions[ALL] == [("1",), ("6",)]
    assert questions["all but kind 1 of 2"] == [("6",)]
