import itertools
import sys
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bisect_tvm.search.walk import Looks, walk
from tests.search.trees import (
    AGREES,
    FAILS,
    UNRESOLVED,
    Answer,
    Node,
    PlantedProbe,
    answered,
    depth,
    leaves,
    numbered,
    planted,
    preorder,
    spread_up,
)

Tree = tuple[Node, dict[str, Answer]]


@given(planted())
def test_planted_operators_are_found_exactly_and_in_order(case: tuple[Node, list[str], list[str]]) -> None:
    root, failing, unresolved = case
    answers = spread_up(root, {**dict.fromkeys(failing, FAILS), **dict.fromkeys(unresolved, UNRESOLVED)})
    found = walk(root, Looks(PlantedProbe(answers)))
    assert list(found.culprits) == failing
    assert found.interactions == frozenset()


@given(planted())
def test_planted_operators_are_found_also_where_nothing_around_them_shows_it(case: tuple[Node, list[str], list[str]]) -> None:
    root, failing, unresolved = case
    answers = {root.id: FAILS, **dict.fromkeys(failing, FAILS), **dict.fromkeys(unresolved, UNRESOLVED)}
    found = walk(root, Looks(PlantedProbe(answers)))
    assert [id for id in found.culprits if id != root.id] == [id for id in failing if id != root.id]
    assert root.id in found.answers


@given(answered(), st.booleans())
def test_any_answers_leave_the_search_lawful(case: Tree, exhaustive: bool) -> None:
    """What holds whatever the probe says."""
    root, answers = case
    probe = PlantedProbe(answers)
    found = walk(root, Looks(probe), exhaustive=exhaustive)
    nodes = {node.id: node for node in preorder(root)}
    order = list(nodes)
    assert len(probe.asked) == len(set(probe.asked)), "asked twice"
    assert set(found.answers) == set(probe.asked)
    assert all(found.answers[id] == answers[id] for id in probe.asked)
    assert [] not in probe.questions, "an empty question"
    assert len(probe.questions) <= depth(root) + 2
    assert list(found.culprits) == sorted(found.culprits, key=order.index), "not in execution order"
    assert len(set(found.culprits)) == len(found.culprits)
    for id in found.culprits:
        assert answers[id].diverges, "accused without evidence"
        assert not any(answers[below.id] != AGREES for below in leaves(nodes[id]) if below.id != id), "a part may hold the fault"
    assert found.interactions == {id for id in found.culprits if nodes[id].children}
    if exhaustive:
        assert set(probe.asked) == set(nodes)


@given(answered())
def test_every_part_of_what_does_not_agree_is_asked(case: Tree) -> None:
    root, answers = case
    probe = PlantedProbe(answers)
    walk(root, Looks(probe))
    for node in preorder(root):
        if node.id in probe.asked and answers[node.id] != AGREES:
            assert all(child.id in probe.asked for child in node.children)


@given(answered())
def test_the_way_to_every_culprit_is_in_the_table(case: Tree) -> None:
    root, answers = case
    found = walk(root, Looks(PlantedProbe(answers)))
    for node in preorder(root):
        if any(below.id in found.culprits for below in preorder(node)):
            assert node.id in found.answers


@given(answered())
def test_an_unresolved_component_is_never_a_culprit(case: Tree) -> None:
    root, answers = case
    found = walk(root, Looks(PlantedProbe(answers)), exhaustive=True)
    assert not any(answers[id].unresolved for id in found.culprits)


@given(answered())
def test_all_failing_operators_are_culprits_once_the_root_does_not_agree(case: Tree) -> None:
    root, answers = case
    answers = {**answers, root.id: UNRESOLVED if root.children else FAILS}
    found = walk(root, Looks(PlantedProbe(answers)))
    failing = [leaf.id for leaf in leaves(root) if answers[leaf.id].diverges]
    assert [id for id in found.culprits if id not in found.interactions] == failing


@given(planted())
def test_a_root_that_agrees_ends_the_search(case: tuple[Node, list[str], list[str]]) -> None:
    root, failing, unresolved = case
    answers = {**dict.fromkeys(failing, FAILS), **dict.fromkeys(unresolved, UNRESOLVED), root.id: AGREES}
    probe = PlantedProbe(answers)
    found = walk(root, Looks(probe))
    assert probe.questions == [[root.id]]
    assert found.culprits == ()
    assert list(found.answers) == [root.id]


@given(planted())
def test_exhaustive_goes_on_though_the_root_agrees(case: tuple[Node, list[str], list[str]]) -> None:
    root, failing, unresolved = case
    answers = {**dict.fromkeys(failing, FAILS), **dict.fromkeys(unresolved, UNRESOLVED)}
    if root.children:
        answers[root.id] = AGREES
    found = walk(root, Looks(PlantedProbe(answers)), exhaustive=True)
    assert list(found.culprits) == failing


TREE = numbered(((None, None), (None, (None, None))))
"""0 holds 1 (2, 3) and 4 (5, 6 (7, 8))."""


def ask(**planted: Answer) -> tuple[tuple[str, ...], frozenset[str]]:
    found = walk(TREE, Looks(PlantedProbe({id.removeprefix("_"): answer for id, answer in planted.items()})))
    return found.culprits, found.interactions


def test_a_failing_module_whose_parts_agree_is_an_interaction() -> None:
    assert ask(_0=FAILS, _4=FAILS, _6=FAILS) == (("6",), frozenset({"6"}))


def test_a_failing_model_whose_parts_agree_is_an_interaction() -> None:
    assert ask(_0=FAILS) == (("0",), frozenset({"0"}))


def test_an_interaction_beside_a_failing_operator() -> None:
    assert ask(_0=FAILS, _1=FAILS, _2=FAILS, _4=FAILS) == (("2", "4"), frozenset({"4"}))


IMPERFECT = Answer(excess=2.0, strictest=100.0)
"""Accused of nothing, but only because something was excused."""


@pytest.mark.parametrize(
    ("component", "strict", "culprits", "interactions", "acquitted"),
    [
        # The operator, judged strictly, is off by as much as the component around it: it is the culprit.
        (70.0, Answer(diverges=True, excess=50.0), ("3",), (), ()),
        # It is below the threshold even strictly, and the component is not far above it: what operators are off by adds up.
        (70.0, Answer(excess=20.0), (), (), ("0", "1")),
        # The component is off by far more than anything in it.
        (1e9, Answer(diverges=True, excess=50.0), ("1",), ("1",), ()),
        (1e9, Answer(excess=20.0), ("1",), ("1",), ()),
        (70.0, AGREES, ("1",), ("1",), ()),
    ],
)
def test_what_is_not_perfect_is_asked_again_under_a_component_that_fails_alone(
    component: float, strict: Answer, culprits: tuple[str, ...], interactions: tuple[str, ...], acquitted: tuple[str, ...]
) -> None:
    fails = Answer(diverges=True, excess=component)
    strictly = PlantedProbe({"3": strict, "5": FAILS})
    found = walk(TREE, Looks(PlantedProbe({"0": fails, "1": fails, "3": IMPERFECT, "5": AGREES}), strictly=strictly))
    assert strictly.asked == ["3"]
    assert (found.culprits, found.interactions) == (culprits, set(interactions))
    assert found.acquitted == set(acquitted)
    assert found.answers["3"] == (strict if culprits == ("3",) else IMPERFECT)


def test_a_component_is_acquitted_where_a_part_of_it_is_undecided() -> None:
    strictly = PlantedProbe({})
    found = walk(TREE, Looks(PlantedProbe({"0": FAILS, "1": FAILS, "3": Answer(undecided=2)}), strictly=strictly))
    assert (found.culprits, found.acquitted) == ((), {"0", "1"})
    assert strictly.asked == []


def test_without_a_strict_probe_nothing_is_asked_again() -> None:
    fails = Answer(diverges=True, excess=70.0)
    assert walk(TREE, Looks(PlantedProbe({"0": fails, "1": fails, "3": IMPERFECT}))).interactions == {"1"}


@given(answered())
def test_a_second_look_asks_about_operators_that_were_not_accused(case: Tree) -> None:
    root, answers = case
    answers = {id: replace(answer, strictest=9.0) for id, answer in answers.items()}
    strictly = PlantedProbe({})
    found = walk(root, Looks(PlantedProbe(answers), strictly=strictly))
    plain = walk(root, Looks(PlantedProbe(answers)))
    assert (found.culprits, found.interactions, found.acquitted) == (plain.culprits, plain.interactions, frozenset())
    assert len(set(strictly.asked)) == len(strictly.asked)
    assert not any(answers[id].diverges or answers[id].unresolved for id in strictly.asked)


def test_nothing_is_asked_again_where_the_parts_explain_it() -> None:
    strictly = PlantedProbe({"3": FAILS})
    found = walk(TREE, Looks(PlantedProbe({"0": FAILS, "1": FAILS, "2": FAILS, "3": IMPERFECT}), strictly=strictly))
    assert strictly.questions == []
    assert found.culprits == ("2",)


def test_no_interaction_above_an_unresolved_part() -> None:
    """The part that could not be judged may hold the fault."""
    assert ask(_0=FAILS, _4=FAILS, _6=FAILS, _7=UNRESOLVED) == ((), frozenset())
    assert ask(_0=FAILS, _4=FAILS, _6=UNRESOLVED) == ((), frozenset())


def test_an_unresolved_part_hides_no_failing_one() -> None:
    assert ask(_0=UNRESOLVED, _2=UNRESOLVED, _8=FAILS) == (("8",), frozenset())


def test_questions_go_level_by_level_and_operators_first() -> None:
    probe = PlantedProbe({"0": FAILS, "4": FAILS, "6": FAILS, "8": FAILS})
    walk(TREE, Looks(probe))
    assert probe.questions == [["0"], ["2", "3", "5", "7", "8"], ["1", "4"], ["6"]]


def test_a_root_that_agrees_without_meaning_much_does_not_end_the_search() -> None:
    found = walk(TREE, Looks(PlantedProbe({"0": Answer(conclusive=False), "7": FAILS})))
    assert found.culprits == ("7",)


def test_what_agrees_is_not_taken_apart() -> None:
    probe = PlantedProbe({"0": FAILS, "2": FAILS, "1": FAILS})
    walk(TREE, Looks(probe))
    assert "4" in probe.asked  # for the table
    assert "6" not in probe.asked


def test_a_model_of_a_single_operator() -> None:
    probe = PlantedProbe({"0": FAILS})
    assert walk(Node("0"), Looks(probe)).culprits == ("0",)
    assert probe.questions == [["0"]]


SHAPES = [None, (None,), (None, None), ((None,),), ((None, None), None), (None, (None, (None,))), ((None, None), (None, None))]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_set_of_answers_of_small_trees(shape: object) -> None:
    """Every assignment of the three answers to every component: culprits are what their definition says."""
    root = numbered(shape)
    nodes = list(preorder(root))
    for chosen in itertools.product([AGREES, FAILS, UNRESOLVED], repeat=len(nodes)):
        answers = {node.id: answer for node, answer in zip(nodes, chosen, strict=True)}
        for exhaustive in (False, True):
            found = walk(root, Looks(PlantedProbe(answers)), exhaustive=exhaustive)
            wanted = [] if answers[root.id] == AGREES and not exhaustive else _by_definition(nodes, answers, found.answers)
            assert list(found.culprits) == wanted, (shape, answers, exhaustive)


def _by_definition(nodes: list[Node], answers: dict[str, Answer], asked: object) -> list[str]:
    """Failing components below which everything that was asked agrees."""
    return [
        node.id
        for node in nodes
        if answers[node.id].diverges
        and node.id in asked
        and all(answers[below.id] == AGREES for below in preorder(node) if below is not node and below.id in asked)
    ]


@settings(max_examples=5, deadline=None)
@given(st.sampled_from(["top", "middle", "bottom"]), st.booleans())
@example("bottom", True)
def test_deep_trees(place: str, exhaustive: bool) -> None:
    """10,000 wrappers around one operator, which Python's recursion limit would not allow."""
    levels = 10_000
    assert levels > sys.getrecursionlimit()
    node = Node(str(levels))
    for number in reversed(range(levels)):
        node = Node(str(number), (node,))
    fails_from = {"top": 0, "middle": levels // 2, "bottom": levels}[place]
    probe = PlantedProbe({str(number): FAILS for number in range(fails_from + 1)})
    found = walk(node, Looks(probe), exhaustive=exhaustive)
    assert found.culprits == (str(fails_from),)
    assert len(probe.questions) <= levels + 2
