"""Synthetic component trees and a probe with planted answers: no torch, no TVM."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st


@dataclass(frozen=True)
class Node:
    id: str
    children: tuple["Node", ...] = ()


@dataclass(frozen=True)
class Answer:
    diverges: bool = False
    unresolved: bool = False
    conclusive: bool = True
    excess: float = 0.0
    strictest: float = 0.0
    undecided: int = 0
    doubtful: bool = False


AGREES, FAILS, UNRESOLVED = Answer(), Answer(diverges=True, excess=1e9), Answer(unresolved=True)


@dataclass
class PlantedProbe:
    """Answers as planted, agrees otherwise, and remembers what it was asked."""

    planted: Mapping[str, Answer]
    questions: list[list[str]] = field(default_factory=list)

    def __call__(self, nodes: Sequence[Node]) -> dict[str, Answer]:
        self.questions.append([node.id for node in nodes])
        return {node.id: self.planted.get(node.id, AGREES) for node in nodes}

    @property
    def asked(self) -> list[str]:
        return [id for question in self.questions for id in question]


def preorder(root: Node) -> Iterator[Node]:
    waiting = [root]
    while waiting:
        yield (node := waiting.pop())
        waiting.extend(reversed(node.children))


def leaves(root: Node) -> list[Node]:
    return [node for node in preorder(root) if not node.children]


def depth(root: Node) -> int:
    level, found = [root], -1
    while level:
        found, level = found + 1, [child for node in level for child in node.children]
    return found


def numbered(shape: object) -> Node:
    """A tree from nested tuples, its ids numbered in execution order."""
    count = iter(range(10**9))

    def make(part: object) -> Node:
        id = str(next(count))
        return Node(id, tuple(make(child) for child in part)) if isinstance(part, tuple) else Node(id)

    return make(shape)


def spread_up(root: Node, planted: Mapping[str, Answer]) -> dict[str, Answer]:
    """Answers that go together: what holds a failing part fails, and what holds one that is unresolved is so too."""
    answers = dict(planted)
    for node in reversed(list(preorder(root))):
        inside = [answers.get(child.id, AGREES) for child in node.children]
        if any(answer.unresolved for answer in inside):
            answers[node.id] = UNRESOLVED
        elif any(answer.diverges for answer in inside):
            answers[node.id] = FAILS
    return answers


trees = st.recursive(st.none(), lambda part: st.lists(part, min_size=1, max_size=4).map(tuple), max_leaves=25).map(numbered)
"""Any shape: a lone operator, chains of wrappers, operators beside modules."""


@st.composite
def answered(draw: st.DrawFn) -> tuple[Node, dict[str, Answer]]:
    """A tree and any answers whatever: nothing need be monotone, a whole may agree though its parts fail."""
    root = draw(trees)
    return root, {node.id: draw(st.sampled_from([AGREES, AGREES, FAILS, UNRESOLVED])) for node in preorder(root)}


@st.composite
def planted(draw: st.DrawFn) -> tuple[Node, list[str], list[str]]:
    """A tree, its failing operators and its unresolved ones, both in execution order."""
    root = draw(trees)
    kinds = [(leaf.id, draw(st.sampled_from([AGREES, AGREES, FAILS, UNRESOLVED]))) for leaf in leaves(root)]
    return root, [id for id, kind in kinds if kind is FAILS], [id for id, kind in kinds if kind is UNRESOLVED]
