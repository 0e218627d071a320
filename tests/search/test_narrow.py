import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisect_tvm.search.narrow import Narrowed, narrow
from bisect_tvm.search.runs import Run
from tests.search.trees import AGREES, FAILS, UNRESOLVED, Answer

Rule = Callable[[frozenset[str]], Answer]


@dataclass(frozen=True)
class Graph:
    """Operators in execution order, and who reads them."""

    operators: tuple[str, ...]
    readers: Mapping[str, Sequence[str]]

    def run(self, members: frozenset[str]) -> Run:
        return tuple(id for id in self.operators if id in members)

    def is_connected(self, members: frozenset[str]) -> bool:
        edges = [(one, other) for one in members for other in self.readers.get(one, ()) if other in members]
        reached = {min(members)}
        while more := {id for edge in edges if set(edge) & reached for id in edge} - reached:
            reached |= more
        return reached == members

    def is_convex(self, members: frozenset[str]) -> bool:
        last = max(self.operators.index(id) for id in members)
        waiting = [reader for id in members for reader in self.readers.get(id, ()) if reader not in members]
        passed: set[str] = set()
        while waiting:
            if (id := waiting.pop()) in members:
                return False
            if id not in passed and self.operators.index(id) < last:
                passed.add(id)
                waiting.extend(self.readers.get(id, ()))
        return True

    def is_run(self, members: frozenset[str]) -> bool:
        return len(members) > 1 and self.is_connected(members) and self.is_convex(members)

    def drops(self, run: Run) -> list[Run]:
        return [self.run(rest) for id in run if self.is_run(rest := frozenset(run) - {id})]

    def runs(self, sizes: Sequence[int]) -> list[Run]:
        return [run for size in sizes for run in combinations(self.operators, size) if self.is_run(frozenset(run))]


@dataclass
class RuleProbe:
    """Answers by a rule, and remembers what it was asked."""

    rule: Rule
    questions: list[list[Run]] = field(default_factory=list)

    def __call__(self, runs: Sequence[Run]) -> dict[Run, Answer]:
        self.questions.append(list(runs))
        return {run: self.rule(frozenset(run)) for run in runs}

    @property
    def asked(self) -> list[Run]:
        return [run for question in self.questions for run in question]


def holding(*patterns: Run) -> Rule:
    """Fails where a pattern is inside."""
    sets = [frozenset(pattern) for pattern in patterns]
    return lambda run: FAILS if any(pattern <= run for pattern in sets) else AGREES


def chained(count: int) -> Graph:
    ids = tuple(f"{number:04}" for number in range(count))
    return Graph(ids, {one: [other] for one, other in pairwise(ids)})


@st.composite
def graphs(draw: st.DrawFn, least: int = 2, most: int = 11) -> Graph:
    """Any dataflow: several parts, fans, paths around; an operator may read another twice."""
    count = draw(st.integers(least, most))
    ids = [chr(ord("a") + number) for number in range(count)]
    readers: dict[str, list[str]] = {}
    for number in range(1, count):
        for source in draw(st.lists(st.integers(max(0, number - 4), number - 1), max_size=3)):
            readers.setdefault(ids[source], []).append(ids[number])
    return Graph(tuple(ids), readers)


@st.composite
def suspected(draw: st.DrawFn) -> tuple[Graph, list[Run]]:
    """A graph and any sets of its operators: connected or not, nested or not, some twice."""
    graph = draw(graphs())
    sets = draw(st.lists(st.frozensets(st.sampled_from(graph.operators), min_size=2), min_size=1, max_size=4))
    return graph, [graph.run(members) for members in [*sets, *draw(st.sampled_from([[], [frozenset(graph.operators)]]))]]


def any_answers(seed: int) -> Rule:
    """Anything goes."""
    kinds = [AGREES, AGREES, AGREES, FAILS, UNRESOLVED]
    return lambda run: random.Random(f"{seed} {sorted(run)}").choice(kinds)


def masked(pattern: frozenset[str], mask: str) -> Rule:
    return lambda run: FAILS if pattern <= run and mask not in run else AGREES


def shorter(pattern: frozenset[str], size: int) -> Rule:
    return lambda run: FAILS if pattern <= run and len(run) < size else AGREES


def longer(size: int) -> Rule:
    return lambda run: FAILS if len(run) >= size else AGREES


def unbuilt(rule: Rule, refused: str) -> Rule:
    return lambda run: UNRESOLVED if refused in run else rule(run)


@st.composite
def rules(draw: st.DrawFn, graph: Graph) -> Rule:
    pattern = draw(st.frozensets(st.sampled_from(graph.operators), min_size=2, max_size=5))
    one = draw(st.sampled_from(graph.operators))
    size = draw(st.integers(2, 8))
    planted = [holding(graph.run(pattern)), masked(pattern - {one}, one), shorter(pattern, size), longer(size)]
    rule = draw(st.sampled_from([*planted, any_answers(draw(st.integers(0, 10**6)))]))
    return draw(st.sampled_from([rule, unbuilt(rule, one)]))


def check_lawful(graph: Graph, suspects: list[Run], probe: RuleProbe, found: Narrowed[Answer], most: int = 4096) -> None:
    """What holds whatever the probe says."""
    known = {suspect for suspect in suspects if graph.is_run(frozenset(suspect))}
    assert len(probe.asked) == len(set(probe.asked)), "asked twice"
    assert not known & set(probe.asked), "asked what is known"
    assert all(question for question in probe.questions), "an empty question"
    assert all(len(question) <= most for question in probe.questions)
    assert found.answers == {run: probe.rule(frozenset(run)) for run in probe.asked}
    for run in probe.asked:
        assert run == graph.run(frozenset(run)), "not in execution order"
        assert graph.is_run(frozenset(run))
        assert any(set(run) <= set(suspect) for suspect in suspects), "what is outside may fail for other reasons"
    fails = {*known, *(run for run, answer in found.answers.items() if answer.diverges and not answer.unresolved)}
    agrees = found.answers.keys() - fails
    for run in found.runs:
        assert run in fails, "accused without evidence"
        assert graph.is_run(frozenset(run))
        assert all(drop in agrees for drop in graph.drops(run)), "not minimal, or not known to be"
    for one, other in combinations(found.runs, 2):
        assert not set(one) <= set(other)
        assert not set(other) <= set(one)
    first = [(graph.operators.index(run[0]), len(run)) for run in found.runs]
    assert first == sorted(first)
    held = [any(set(run) <= set(suspect) for run in found.runs) for suspect in suspects]
    assert found.unexplained == tuple(suspect for suspect, explained in zip(suspects, held, strict=True) if not explained)
    assert not known & set(found.unexplained)


@given(st.data())
@settings(max_examples=400)
def test_any_answers_leave_the_search_lawful(data: st.DataObject) -> None:
    graph, suspects = data.draw(suspected())
    probe = RuleProbe(data.draw(rules(graph)))
    found = narrow(graph.operators, graph.readers, probe, suspects)
    check_lawful(graph, suspects, probe, found)


@given(st.data(), st.integers(2, 5), st.integers(1, 6), st.integers(1, 3), st.integers(1, 60))
@settings(max_examples=300)
def test_narrow_bounds_leave_the_search_lawful(data: st.DataObject, largest: int, most: int, fan: int, room: int) -> None:
    graph, suspects = data.draw(suspected())
    probe = RuleProbe(data.draw(rules(graph)))
    found = narrow(graph.operators, graph.readers, probe, suspects, largest=largest, most=most, fan=fan, room=room)
    check_lawful(graph, suspects, probe, found, most)


@given(st.data(), st.sampled_from([2, 4]))
@settings(max_examples=200)
def test_where_failing_is_monotone_nothing_but_what_was_planted_is_found(data: st.DataObject, largest: int) -> None:
    graph = data.draw(graphs(4).filter(lambda graph: graph.is_connected(frozenset(graph.operators))))
    planted = data.draw(st.lists(st.sampled_from(graph.runs([2, 3, 4, 5, 6])), min_size=1, max_size=3))
    probe = RuleProbe(holding(*planted))
    found = narrow(graph.operators, graph.readers, probe, [graph.operators], largest=largest)
    assert found.runs
    assert set(found.runs) <= set(planted)
    assert found.unexplained == ()
    smallest = min(len(run) for run in planted)
    if smallest <= largest:
        assert {run for run in planted if len(run) == smallest} <= set(found.runs)


@given(st.data())
def test_all_pairs_are_found_in_one_question(data: st.DataObject) -> None:
    graph = data.draw(graphs(3).filter(lambda graph: graph.runs([2])))
    planted = data.draw(st.sets(st.sampled_from(graph.runs([2])), min_size=1))
    probe = RuleProbe(holding(*planted))
    found = narrow(graph.operators, graph.readers, probe, [graph.operators])
    assert set(found.runs) == planted
    assert len(probe.questions) == 1
    assert set(probe.asked) == set(graph.runs([2])) - {graph.operators}


@given(graphs(3), st.integers(0, 100))
def test_growth_asks_about_all_runs_of_a_size(graph: Graph, fan: int) -> None:
    probe = RuleProbe(lambda run: AGREES)
    narrow(graph.operators, graph.readers, probe, [graph.operators], largest=4, fan=10 + fan)
    assert set(graph.runs([2, 3, 4])) - {graph.operators} <= set(probe.asked)


@given(st.data())
def test_a_masked_pair_is_found(data: st.DataObject) -> None:
    graph = data.draw(graphs(3).filter(lambda graph: graph.runs([2])))
    pair = data.draw(st.sampled_from(graph.runs([2])))
    mask = data.draw(st.sampled_from([id for id in graph.operators if id not in pair]))
    found = narrow(graph.operators, graph.readers, RuleProbe(masked(frozenset(pair), mask)), [graph.operators])
    assert pair in found.runs


@given(st.data())
def test_what_cannot_be_built_is_never_accused(data: st.DataObject) -> None:
    graph, suspects = data.draw(suspected())
    confused = Answer(diverges=True, unresolved=True)
    answer = data.draw(st.sampled_from([UNRESOLVED, confused]))
    found = narrow(graph.operators, graph.readers, RuleProbe(lambda run: answer), suspects)
    assert all(run in suspects for run in found.runs), "a suspect is known to fail"
    assert all(not graph.is_run(frozenset(suspect)) for suspect in found.unexplained)


LAYERS, DEPTH = 48, 12
"""A model of equal layers, each a chain with one path around it."""


def layered() -> tuple[Graph, list[list[str]]]:
    layers = [[f"{layer:02}.{number:02}" for number in range(DEPTH)] for layer in range(LAYERS)]
    graph = Graph(tuple(id for layer in layers for id in layer), {})
    readers = {one: [other] for one, other in pairwise(graph.operators)}
    for layer in layers:
        readers[layer[0]].append(layer[-1])
    return Graph(graph.operators, readers), layers


@pytest.mark.parametrize(("size", "questions"), [(2, 1), (3, 2)], ids=["a pair takes one question", "a triple takes two"])
def test_a_run_in_each_layer(size: int, questions: int) -> None:
    graph, layers = layered()
    planted = [tuple(layer[4 : 4 + size]) for layer in layers]
    probe = RuleProbe(holding(*planted))
    found = narrow(graph.operators, graph.readers, probe, [graph.operators, *map(tuple, layers)])
    assert list(found.runs) == planted
    assert found.unexplained == ()
    assert len(probe.questions) == questions


def test_larger_runs_are_asked_about_only_where_nothing_is_found_yet() -> None:
    graph, layers = layered()
    pair, triple = tuple(layers[3][4:6]), tuple(layers[30][4:7])
    probe = RuleProbe(holding(pair, triple))
    found = narrow(graph.operators, graph.readers, probe, [graph.operators, tuple(layers[3]), tuple(layers[30])])
    assert list(found.runs) == [pair, triple]
    assert all(set(run) <= set(layers[30]) for run in probe.questions[1])
    assert len(probe.questions) == 2


def test_a_run_too_long_for_growth_is_found_in_every_layer_at_once() -> None:
    graph, layers = layered()
    planted = [tuple(layer[2:8]) for layer in layers]
    probe = RuleProbe(holding(*planted))
    found = narrow(graph.operators, graph.readers, probe, [graph.operators, *map(tuple, layers)])
    assert list(found.runs) == planted
    assert len(probe.questions) <= 6


@given(st.integers(0, 193))
@settings(max_examples=30, deadline=None)
def test_seven_in_a_chain_of_two_hundred_take_five_questions(begin: int) -> None:
    graph = chained(200)
    planted = graph.operators[begin : begin + 7]
    probe = RuleProbe(holding(planted))
    found = narrow(graph.operators, graph.readers, probe, [graph.operators])
    assert found.runs == (planted,)
    assert len(probe.questions) <= 5, "three to grow, one to find where, one to find it and that nothing less fails"


@given(st.integers(0, 390), st.integers(5, 200), st.integers(0, 9))
@settings(max_examples=25, deadline=None)
def test_long_runs_take_few_questions(begin: int, length: int, extra: int) -> None:
    """Also where a run must be long to fail, and where one beside it hides it."""
    graph = chained(400)
    planted = frozenset(graph.operators[begin : begin + length])
    for rule in (holding(graph.run(planted)), longer(length), shorter(planted, 2 * length + extra + 8)):
        probe = RuleProbe(rule)
        found = narrow(graph.operators, graph.readers, probe, [graph.operators])
        assert len(found.runs) == 1
        assert len(probe.questions) <= 30


def test_leaves_that_go_one_by_one_go_together() -> None:
    """Each operator of a chain reads a constant of its own, and the constants come just before."""
    chain = [f"op{number:02}" for number in range(24)]
    ids = [id for name in chain for id in (f"const {name}", name)]
    readers = {f"const {name}": [name] for name in chain} | {one: [other] for one, other in pairwise(chain)}
    planted = tuple(chain[7:17])
    probe = RuleProbe(holding(planted))
    found = narrow(ids, readers, probe, [tuple(ids)])
    assert found.runs == (planted,)
    assert len(probe.questions) <= 7


def test_only_as_many_runs_at_once_as_allowed() -> None:
    graph = chained(30)
    planted = graph.operators[9:11]
    probe = RuleProbe(holding(planted))
    found = narrow(graph.operators, graph.readers, probe, [graph.operators], most=10)
    assert found.runs == (planted,)
    assert [len(question) for question in probe.questions] == [10, 10, 9]


def test_growth_leaves_a_suspect_that_has_too_many_runs_to_the_other_way() -> None:
    graph = chained(30)
    suspects = [graph.operators[:20], graph.operators[20:]]
    planted = [graph.operators[9:12], graph.operators[23:26]]
    probe = RuleProbe(holding(*planted))
    found = narrow(graph.operators, graph.readers, probe, suspects, most=17)
    assert list(found.runs) == planted
    assert [len(run) for run in probe.questions[2]] == [3] * 8, "of the small suspect alone"
    check_lawful(graph, suspects, probe, found, 17)


def test_an_operator_that_many_read_does_not_blow_up_growth() -> None:
    ids = ["hub", *(f"{number:03} {end}" for number in range(300) for end in ("a", "b"))]
    readers = {"hub": [id for id in ids if id.endswith("a")]} | {id: [id.replace("a", "b")] for id in ids if id.endswith("a")}
    planted = ("hub", "250 a", "250 b")
    probe = RuleProbe(holding(planted))
    found = narrow(ids, readers, probe, [tuple(ids)])
    assert found.runs == (planted,)
    assert len(probe.questions) == 2
    assert len(probe.asked) < 600 + 300 * 12


def test_a_suspect_in_several_parts() -> None:
    """All calls of one module: the fault is in one of them."""
    graph = chained(60)
    suspect = tuple(id for number, id in enumerate(graph.operators) if number % 20 < 12)
    planted = graph.operators[43:49]
    probe = RuleProbe(holding(planted))
    found = narrow(graph.operators, graph.readers, probe, [suspect])
    assert found.runs == (planted,)
    check_lawful(graph, [suspect], probe, found)


def test_a_suspect_that_fails_only_as_a_whole_is_left_to_the_caller() -> None:
    graph = chained(10)
    scattered = graph.operators[0:3] + graph.operators[6:9]
    found = narrow(graph.operators, graph.readers, RuleProbe(holding(scattered)), [scattered])
    assert found.runs == ()
    assert found.unexplained == (scattered,)


def test_a_run_that_fails_only_as_a_whole_is_found_as_such() -> None:
    graph = chained(10)
    probe = RuleProbe(holding(graph.operators))
    found = narrow(graph.operators, graph.readers, probe, [graph.operators])
    assert found.runs == (graph.operators,)
    assert graph.operators not in found.answers
    assert {graph.operators[1:], graph.operators[:-1]} <= set(probe.asked)


def test_a_pair_with_a_way_around_it_is_no_run() -> None:
    readers = {"a": ["b", "c"], "b": ["c"]}
    probe = RuleProbe(holding(("a", "c")))
    assert narrow("abc", readers, probe, [("a", "b", "c")]).runs == (("a", "b", "c"),)
    assert set(probe.asked) == {("a", "b"), ("b", "c")}


def test_a_suspect_with_two_operators_is_its_own_answer() -> None:
    probe = RuleProbe(holding())
    found = narrow("ab", {"a": ["b"]}, probe, [("a", "b")])
    assert found.runs == (("a", "b"),)
    assert probe.questions == []


@pytest.mark.parametrize("suspects", [[], [()], [("a",)], [("a", "c")]])
def test_suspects_without_runs(suspects: list[Run]) -> None:
    probe = RuleProbe(holding(("a",), ("c",)))
    found = narrow("abc", {"a": ["b"], "b": ["c"]}, probe, suspects)
    assert found == Narrowed((), {}, tuple(suspects))
    assert probe.questions == []


def deep(count: int) -> Graph:
    """A chain with ways around and constants."""
    ids = chained(count).operators
    readers: dict[str, list[str]] = {one: [other] for one, other in pairwise(ids)}
    for number in range(0, count - 10, 10):
        readers[ids[number]].append(ids[number + 7])
    for number in range(5, count, 10):
        readers[ids[number - 1]] = [ids[number + 2]] if number + 2 < count else []
    return Graph(ids, readers)


@pytest.mark.parametrize("graph", [chained(5000), deep(5000)], ids=["chain", "around"])
@pytest.mark.parametrize("nested", [True, False])
def test_five_thousand_operators(graph: Graph, nested: bool) -> None:
    spans = [graph.operators[25 * number : 5000 - 25 * number] for number in range(100)]
    suspects = spans if nested else [graph.operators[begin : begin + 50] for begin in range(0, 5000, 50)]
    planted = [suspect[len(suspect) // 2 - 6 : len(suspect) // 2 + 6] for suspect in suspects]
    began = time.monotonic()
    probe = RuleProbe(holding(*dict.fromkeys(planted)))
    found = narrow(graph.operators, graph.readers, probe, suspects)
    assert time.monotonic() - began < 10
    assert len(probe.asked) == len(set(probe.asked))
    assert len(probe.questions) <= 20
    assert all(any(set(run) <= set(suspect) for run in found.runs) for suspect in suspects if suspect not in found.unexplained)


@pytest.mark.parametrize("length", [3, 12, 3000])
def test_one_suspect_of_five_thousand_operators(length: int) -> None:
    graph = chained(5000)
    planted = graph.operators[1234 : 1234 + length]
    probe = RuleProbe(holding(planted))
    found = narrow(graph.operators, graph.readers, probe, [graph.operators])
    assert found.runs == (planted,)
    assert len(probe.questions) <= 40
