"""Which components of a large tree to show, so that the jump stands out on one screen.

`outline` keeps what the reader needs: the culprits, everything that contains them, and a few siblings that agree, for
contrast. Siblings that look alike (same classes, operators and verdicts all the way down) are shown once, for the
worst of them; the rest of the agreeing siblings are folded into one row with their largest deviations. Pure: no
formatting, no I/O.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bisect_tvm.numerics.verdict import Verdict

# report.py imports text.py, which imports this module, so its types are known here to the type checker only.
if TYPE_CHECKING:
    from bisect_tvm.report.report import Entry, Report


@dataclass(frozen=True)
class Row:
    """One line of the outline."""

    entry: "Entry"
    """The component; the worst one if the row stands for several."""
    depth: int
    twins: tuple["Entry", ...]
    """All components that the row stands for, in execution order."""
    is_culprit: bool
    is_rest: bool
    """True for the row into which agreeing siblings are folded; its `twins` need not look alike."""


@dataclass(frozen=True)
class Outline:
    """The rows to show, and how many more there would be without the limit."""

    rows: tuple[Row, ...]
    hidden: int


@dataclass(frozen=True)
class _Group:
    """Siblings that look alike."""

    twins: tuple["Entry", ...]
    position: int
    """Of the first one among its siblings."""

    @property
    def worst(self) -> "Entry":
        return max(self.twins, key=badness)


def badness(entry: "Entry") -> tuple[float, float]:
    """Orders components by how far they deviate; NaN is worst, unmeasured is least."""
    return _rank(entry.deviation64), _rank(entry.deviation32)


def _rank(number: float | None) -> float:
    if number is None:
        return -1.0
    return math.inf if math.isnan(number) else number


class _Tree:
    """The report's flat tree, indexed; `shape` is equal for components that look alike all the way down."""

    def __init__(self, report: "Report") -> None:
        self.root = report.root
        self.culprits = frozenset(report.culprit_ids)
        self.children: dict[str, list[Entry]] = {entry.id: [] for entry in report.tree}
        for entry in report.tree:
            if entry.parent is not None:
                self.children[entry.parent].append(entry)
        self.parent = {entry.id: entry.parent for entry in report.tree}
        self.shape: dict[str, int] = {}
        numbers: dict[tuple[object, ...], int] = {}
        # Children come after their parents, so backwards every child's shape is known before its parent's.
        for entry in reversed(report.tree):
            inner = tuple(self.shape[child.id] for child in self.children[entry.id])
            # One layer's norm may be ROUNDING where its neighbour's is FAITHFUL; that does not make the layers
            # different.
            verdict = Verdict.FAITHFUL if entry.verdict is Verdict.ROUNDING else entry.verdict
            look = (entry.kind, entry.operator or entry.module_class, verdict, entry.id in self.culprits, inner)
            self.shape[entry.id] = numbers.setdefault(look, len(numbers))

    def groups(self, parent: "Entry") -> list[_Group]:
        """The children of `parent`, those that look alike together."""
        alike: dict[tuple[int, Verdict], list[tuple[int, Entry]]] = {}
        for position, child in enumerate(self.children[parent.id]):
            alike.setdefault((self.shape[child.id], child.verdict), []).append((position, child))
        return [_Group(tuple(child for _, child in group), group[0][0]) for group in alike.values()]

    def ancestry(self, identities: Iterable[str]) -> frozenset[str]:
        """`identities` and everything that contains them."""
        found: set[str] = set()
        for identity in identities:
            step: str | None = identity
            while step is not None and step not in found:
                found.add(step)
                step = self.parent[step]
        return frozenset(found)


def outline(report: "Report", limit: int) -> Outline:
    """Choose at most `limit` rows of `report`'s tree (one fewer if `hidden` is not 0)."""
    tree = _Tree(report)
    accused = [entry.id for entry in report.tree if entry.id in tree.culprits or entry.verdict.is_divergence]
    unresolved = [entry.id for entry in report.tree if entry.verdict is Verdict.UNRESOLVED]
    suspects = tree.ancestry([*accused, *unresolved])
    if not accused and not unresolved:
        # Nothing to accuse: show the way to the component that came nearest to it.
        leaves = (entry for entry in report.tree if not tree.children[entry.id])
        suspects = tree.ancestry([max(leaves, key=lambda entry: _rank(entry.excess64)).id])
    rows: list[Row] = []
    # Ever less company, until the suspects fit; the unresolved ones are also listed below the tree.
    for contrast, rest, hot in (
        (2, True, suspects),
        (1, True, suspects),
        (0, True, suspects),
        (0, True, tree.ancestry(accused) or suspects),
        (0, False, tree.ancestry(accused) or suspects),
    ):
        rows = _rows(tree, hot, contrast, rest)
        if len(rows) <= limit:
            return Outline(tuple(rows), hidden=0)
    return Outline(tuple(rows[: limit - 1]), hidden=len(rows) - limit + 1)


def _rows(tree: _Tree, hot: frozenset[str], contrast: int, rest: bool) -> list[Row]:
    """Preorder over one representative of each group; only suspects are opened."""
    rows: list[Row] = []
    # A stack and no recursion, for a tree may be deeper than Python's stack.
    stack = [Row(tree.root, 0, (tree.root,), tree.root.id in tree.culprits, is_rest=False)]
    while stack:
        row = stack.pop()
        rows.append(row)
        if row.entry.id in hot and not row.is_rest:
            shown, folded = _select(tree.groups(row.entry), hot, contrast)
            below = [
                Row(group.worst, row.depth + 1, group.twins, group.worst.id in tree.culprits, is_rest=False) for group in shown
            ]
            if folded and rest:
                twins = tuple(entry for group in folded for entry in group.twins)
                below.append(Row(max(twins, key=badness), row.depth + 1, twins, is_culprit=False, is_rest=True))
            stack.extend(reversed(below))
    return rows


def _select(groups: Sequence[_Group], hot: frozenset[str], contrast: int) -> tuple[list[_Group], list[_Group]]:
    """The groups to show, in execution order, and those to fold: suspects, and their nearest agreeing neighbours."""
    suspects: list[_Group] = []
    others: list[_Group] = []
    for group in groups:
        (suspects if any(entry.id in hot for entry in group.twins) else others).append(group)
    places = [group.position for group in suspects] or [0]

    def distance(group: _Group) -> tuple[bool, int]:
        return group.twins[0].verdict is Verdict.UNRESOLVED, min(abs(group.position - place) for place in places)

    nearest = sorted(others, key=distance)
    if len(nearest) == contrast + 1:
        contrast += 1  # Folding a single group would save no line.
    shown = sorted([*suspects, *nearest[:contrast]], key=lambda group: group.position)
    return shown, nearest[contrast:]
