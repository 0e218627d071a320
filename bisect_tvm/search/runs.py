"""Sets of operators in the dataflow graph: whether they are runs, and what is left of one without an operator.

Sets are whole numbers here, one bit for each operator in execution order: what lies between two operators is then one `&` of
what the one reaches and what reaches the other, also where graphs have thousands of operators.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_

Run = tuple[str, ...]
"""Operators by id, in execution order."""


class Graph:
    """Dataflow among operators, which are numbers in execution order."""

    def __init__(self, operators: Sequence[str], readers: Mapping[str, Sequence[str]]) -> None:
        self._names = tuple(operators)
        self._number = {name: number for number, name in enumerate(operators)}
        after = [sorted({self._number[r] for r in readers.get(name, ()) if r in self._number}) for name in operators]
        before: list[list[int]] = [[] for _ in operators]
        for number, reading in enumerate(after):
            for reader in reading:
                before[reader].append(number)
        self.edges = [(number, reader) for number, reading in enumerate(after) for reader in reading]
        self.near = [
            sorted((*before[number], *after[number]), key=lambda other: abs(other - number)) for number in range(len(operators))
        ]
        """Neighbours, the nearest in execution order first."""
        self._below = self._reached(reversed(range(len(operators))), after)
        self._above = self._reached(range(len(operators)), before)

    def _reached(self, order: Iterable[int], steps: Sequence[Sequence[int]]) -> list[int]:
        reached = [0] * len(steps)
        for number in order:
            reached[number] = reduce(or_, (reached[step] | 1 << step for step in steps[number]), 0)
        return reached

    def set_of(self, names: Iterable[str]) -> int:
        """The set of the operators of these names."""
        return reduce(or_, (1 << self._number[name] for name in names), 0)

    def named(self, members: Iterable[int]) -> Run:
        """The names of these operators."""
        return tuple(self._names[number] for number in members)

    @staticmethod
    def members(one: int) -> list[int]:
        """The operators of a set, in execution order."""
        found = []
        while one:
            found.append((lowest := one & -one).bit_length() - 1)
            one ^= lowest
        return found

    def hull(self, one: int) -> int:
        """`one` and all that lies between its operators."""
        members = self.members(one)
        below = reduce(or_, (self._below[number] for number in members), 0)
        above = reduce(or_, (self._above[number] for number in members), 0)
        return one | (below & above)

    def pairs(self) -> list[int]:
        """All runs of two operators."""
        pairs = (1 << one | 1 << other for one, other in self.edges)
        return [pair for pair in pairs if self.hull(pair) == pair]

    def one_more(self, run: int, fan: int) -> list[int]:
        """The runs of one operator more, which is among the `fan` nearest neighbours of one inside."""
        members = self.members(run)
        near = dict.fromkeys(other for number in members for other in self.near[number][:fan])
        return [more for other in near if other not in members and self.hull(more := run | 1 << other) == more]

    def is_run(self, one: int) -> bool:
        """Whether a set is connected and convex, and more than one operator."""
        return one.bit_count() > 1 and self.hull(one) == one and len(self.pieces(self.members(one))) == 1

    def pieces(self, members: Sequence[int]) -> list[int]:
        """The connected parts."""
        left, found = set(members), []
        for start in members:
            if start in left:
                left.discard(start)
                piece, waiting = 0, [start]
                while waiting:
                    piece |= 1 << (number := waiting.pop())
                    joined = [other for other in self.near[number] if other in left]
                    left.difference_update(joined)
                    waiting += joined
                found.append(piece)
        return found

    def drops(self, run: int) -> tuple[int, ...]:
        """The runs of one operator less. Only what is first or last on all its paths can go: the rest would not be convex."""
        members = self.members(run)
        if len(members) < 3:
            return ()  # single operators agree
        inside, found = set(members), []
        for number in members:
            beside = [other for other in self.near[number] if other in inside]
            first_or_last = all(other > number for other in beside) or all(other < number for other in beside)
            if first_or_last and (len(beside) == 1 or len(self.pieces([other for other in members if other != number])) == 1):
                found.append(run ^ 1 << number)
        return tuple(found)
