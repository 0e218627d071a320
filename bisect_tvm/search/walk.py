"""The search: from a component tree and a probe to the smallest components that fail.

Pure: it knows components by `id` and `children` only, and answers by three booleans' worth. The probe answers for many
components at once and independently (each reads the reference's values), so nothing is assumed about how errors add up,
cancel or saturate: many faults are found in one pass, and a failure need not be monotone in size.

    1. the whole: if it agrees, and that means something, stop (unless `exhaustive`)
    2. all operators: each that fails is a culprit
    3. the hierarchy, level by level, under whatever fails or could not be judged: for the table, and for components that fail
       although all their parts agree alone
    4. what fails at first sight although its parts agree is looked at closely
    5. what is less than perfect under such a component is asked again, strictly: digits that an operator loses in elements that are
       nothing beside the rest can be what the component makes visible (x - tanh(x) near zero). What is left is an interaction
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar


class Node(Protocol):
    """One component, as far as the search looks."""

    @property
    def id(self) -> str:
        """Unique name."""

    @property
    def children(self) -> Sequence[Self]:
        """What it contains; empty for an operator."""


class Answer(Protocol):
    """What the probe says about one component."""

    @property
    def diverges(self) -> bool:
        """The component is accused."""

    @property
    def unresolved(self) -> bool:
        """The component could not be judged."""

    @property
    def conclusive(self) -> bool:
        """That it agrees means something."""

    @property
    def excess(self) -> float:
        """How far it is above its noise floor."""

    @property
    def strictest(self) -> float:
        """The same, with nothing excused."""

    @property
    def doubtful(self) -> bool:
        """It diverges at first sight, and a closer look may clear it."""

    @property
    def undecided(self) -> int:
        """Elements that differ and were not judged, because rounding alone decides them."""


N = TypeVar("N", bound=Node)
A = TypeVar("A", bound=Answer)
"""What a probe answers."""

Probe = Callable[[Sequence[N]], Mapping[str, A]]
"""Answers for all the components at once, by id."""


@dataclass(frozen=True)
class Found(Generic[A]):
    """What the search found."""

    answers: Mapping[str, A]
    """Every component that was asked about."""
    culprits: tuple[str, ...]
    """Smallest components that fail, in execution order."""
    interactions: frozenset[str]
    """Those culprits whose parts all agree alone."""
    acquitted: frozenset[str] = frozenset()
    """Components that fail by no more than what their operators, all below the threshold, add up to or leave undecided."""


EXPLAINS = 8.0
"""A component's excess is explained by an operator's up to so many times: what single operators are off by adds up."""
IMPERFECT = 4.0
"""Excess below which nothing is asked again."""


@dataclass(frozen=True)
class Looks(Generic[N, A]):
    """The ways in which a probe can look at components."""

    probe: Probe[N, A]
    """At first sight."""
    closely: Probe[N, A] | None = None
    """At what is doubtful; without it first sight decides."""
    strictly: Probe[N, A] | None = None
    """With nothing excused; without it what was excused stays so."""


def walk(root: N, looks: Looks[N, A], answers: dict[str, A] | None = None, *, exhaustive: bool = False) -> Found[A]:
    """Find the smallest failing components under `root`.

    Args:
        root: the tree.
        looks: judge components.
        answers: filled as answers come, so that what is known is not lost if the probe raises.
        exhaustive: look at everything, even if the whole agrees.
    """
    answers = {} if answers is None else answers
    answers.update(looks.probe([root]))
    if agrees(answers[root.id]) and answers[root.id].conclusive and not exhaustive:
        return Found(answers, (), frozenset())
    if root.children:
        answers.update(looks.probe(leaves(root)))
    _descend(root, looks.probe, answers, everything=exhaustive)
    if looks.closely is not None:
        _look_closely(root, answers, looks.closely)
    acquitted = _look_again(root, answers, looks.strictly) if looks.strictly is not None else frozenset[str]()
    return conclude(root, answers, acquitted)


def conclude(root: N, answers: Mapping[str, A], acquitted: Set[str] = frozenset()) -> Found[A]:
    """What the answers amount to, also where some are missing."""
    culprits, interactions = _culprits(root, answers, acquitted)
    return Found(answers, culprits, interactions, frozenset(acquitted))


def _look_closely(root: N, answers: dict[str, A], closely: Probe[N, A]) -> None:
    """Look closely at what fails although its parts agree, until none is doubtful: what is cleared uncovers what holds it."""
    nodes = {node.id: node for node in preorder(root)}
    looked: set[str] = set()
    while doubtful := [id for id in _culprits(root, answers, frozenset())[0] if answers[id].doubtful and id not in looked]:
        looked.update(doubtful)
        answers.update(closely([nodes[id] for id in doubtful]))


def _descend(root: N, probe: Probe[N, A], answers: dict[str, A], *, everything: bool) -> None:
    """Ask level by level about the children of every component that does not agree, or that holds an operator that does not."""
    suspects = _holders(root, answers)
    level = [root]
    while level:
        children = [child for node in level for child in node.children]
        unasked = [child for child in children if child.id not in answers]
        if unasked:
            answers.update(probe(unasked))
        level = [c for c in children if c.children and (everything or c.id in suspects or not agrees(answers[c.id]))]


def _holders(root: N, answers: Mapping[str, A]) -> set[str]:
    """Components that hold an operator that does not agree. A fault can vanish on the way out, so the whole may still agree."""
    holders: set[str] = set()
    for node in reversed(preorder(root)):
        if (not node.children and not agrees(answers[node.id])) or any(child.id in holders for child in node.children):
            holders.add(node.id)
    return holders


def _culprits(root: N, answers: Mapping[str, A], acquitted: Set[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Failing components none of whose parts fails, could not be judged or was not asked about: such a part may hold the fault."""
    explained: set[str] = set()
    culprits: list[str] = []
    for node in reversed(preorder(root)):
        if any(child.id in explained or (_suspect(answers.get(child.id)) and child.id not in acquitted) for child in node.children):
            explained.add(node.id)
        elif _fails(answers.get(node.id)) and node.id not in acquitted and all(child.id in answers for child in node.children):
            culprits.append(node.id)
    operators = {node.id for node in leaves(root)}
    return tuple(reversed(culprits)), frozenset(id for id in culprits if id not in operators)


def _look_again(root: N, answers: dict[str, A], strictly: Probe[N, A]) -> frozenset[str]:
    """Look for operators that explain why a component fails whose parts agree.

    Accuses them in `answers`; returns the components that fail by no more than what their operators add up to.
    """
    nodes = {node.id: node for node in preorder(root)}
    again: dict[str, A] = {}
    acquitted: set[str] = set()
    looked: set[str] = set()
    while waiting := _culprits(root, answers, acquitted)[1] - looked:
        for id in sorted(waiting):
            looked.add(id)
            operators = [leaf for leaf in leaves(nodes[id]) if leaf.id in answers]
            if any(answers[leaf.id].undecided for leaf in operators):
                acquitted.add(id)  # what comes after a decision that went the other way is another computation
                continue
            inside = [leaf for leaf in operators if answers[leaf.id].strictest > IMPERFECT]
            if unasked := [leaf for leaf in inside if leaf.id not in again]:
                again.update(strictly(unasked))
            explaining = [leaf.id for leaf in inside if again[leaf.id].excess * EXPLAINS >= answers[id].excess]
            accused = [leaf for leaf in explaining if again[leaf].diverges]
            answers.update({leaf: again[leaf] for leaf in accused})
            if explaining and not accused:
                acquitted.add(id)
    return frozenset(acquitted)


def _fails(answer: Answer | None) -> bool:
    return answer is not None and answer.diverges


def _suspect(answer: Answer | None) -> bool:
    return answer is not None and not agrees(answer)


def agrees(answer: Answer) -> bool:
    """The component was judged, and is not accused."""
    return not answer.diverges and not answer.unresolved


def preorder(root: N) -> list[N]:
    """The component and all below it, parents before children."""
    found, waiting = [], [root]
    while waiting:
        found.append(node := waiting.pop())
        waiting.extend(reversed(node.children))
    return found


def leaves(root: N) -> list[N]:
    """The operators in a component, in execution order."""
    return [node for node in preorder(root) if not node.children]
