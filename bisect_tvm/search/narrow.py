"""Inside a component that fails although its operators agree: the smallest runs of operators that still fail together.

A run is a set of operators that is connected in the dataflow graph and convex: no path leaves it and comes back. Nothing is
assumed about which runs fail. A run that holds a failing one may agree, a part of a failing one may agree and a part of that
fail again, and what could not be judged accuses nothing. Asking is what costs, so every question asks about as much as is useful.

    1. growth: all runs of two operators inside any suspect; then all of three, of four, inside suspects in which none failed yet
    2. from the top, for what is left: the suspect, or the smallest failing one of its windows in execution order; then
       windows of that, what is left of it without an operator at its rim, and what runs that failed have in common; and so on
       with the smallest that fails
    3. a run is returned once all that it leaves when one operator is dropped have been asked about, and none fails

Sets of operators are whole numbers here, see `runs`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, groupby
from math import isqrt
from operator import and_
from typing import Generic

from bisect_tvm.search.runs import Graph, Run
from bisect_tvm.search.walk import A

MOST_CELLS = 32
"""Windows begin and end at so many places of a run at most; all windows of a shorter run are asked about."""
FEWEST_CELLS = 4
"""And at so many at least: each question then halves a run, whatever its length."""


@dataclass(frozen=True)
class Narrowed(Generic[A]):
    """What was found inside the suspects."""

    runs: tuple[Run, ...]
    """Minimal failing runs, by their first operator and then by size; none holds another."""
    answers: Mapping[Run, A]
    """Every run that was asked about. A suspect that is a run itself is known to fail, and was not."""
    unexplained: tuple[Run, ...]
    """Suspects that hold none of `runs`, as they were given."""


def narrow(
    operators: Sequence[str],
    readers: Mapping[str, Sequence[str]],
    probe: Callable[[Sequence[Run]], Mapping[Run, A]],
    suspects: Sequence[Run],
    *,
    largest: int = 4,
    most: int = 4096,
    fan: int = 8,
    room: int = 20_000,
) -> Narrowed[A]:
    """Find minimal failing runs inside `suspects`, at least one in each suspect that is a run itself.

    Args:
        operators: all of the graph, in execution order.
        readers: which operators read an operator.
        probe: judges many runs at once; never asked about the same run twice, nor about one that is not inside a suspect.
        suspects: sets of operators known to fail, all of whose operators agree alone.
        largest: size up to which all runs are asked about.
        most: runs in one question. A suspect with more runs of three or of four operators than fit is narrowed from the top.
        fan: runs of three and more grow to so many neighbours of an operator at most, the nearest in execution order.
        room: operators, counted in each run that holds them, that windows in one question may have.
    """
    graph = Graph(operators, readers)
    sets = [graph.set_of(suspect) for suspect in suspects]
    search = _Search(graph, probe, sets, most, fan, room)
    found = _smallest(search.reduced(search.grown(largest)))
    tried: set[int] = set()
    while waiting := _innermost([one for one in _unexplained(sets, found) if one not in tried]):
        tried.update(waiting)
        found = _smallest([*found, *search.reduced(search.starts(waiting))])
    runs = sorted((graph.members(run) for run in found), key=lambda run: (run[0], len(run), run))
    left = set(_unexplained(sets, found))
    return Narrowed(
        tuple(graph.named(run) for run in runs),
        search.answers,
        tuple(suspect for suspect, one in zip(suspects, sets, strict=True) if one in left),
    )


def _holds(one: int, other: int) -> bool:
    return other & ~one == 0


def _unexplained(suspects: Sequence[int], runs: Sequence[int]) -> list[int]:
    return [one for one in dict.fromkeys(suspects) if not any(_holds(one, run) for run in runs)]


def _innermost(sets: Sequence[int]) -> list[int]:
    """Those that hold no other: a run found inside one explains all around it."""
    return [one for one in sets if not any(_holds(one, other) for other in sets if other != one)]


def _smallest(runs: Iterable[int]) -> list[int]:
    """Those that hold no other."""
    kept: list[int] = []
    for _, same in groupby(sorted(set(runs), key=int.bit_count), key=int.bit_count):
        kept += [run for run in same if not any(_holds(run, smaller) for smaller in kept)]  # `kept` is still without this size
    return kept


@dataclass(frozen=True)
class _Lead:
    """A failing run on its way down."""

    run: int
    drops: tuple[int, ...]
    """What it leaves without one operator."""
    common: tuple[int, ...] = ()
    """What several failing runs have in common: what each of them can do without may be of no use at all."""
    stuck: bool = False
    """Windows lead no further, or less than the least of their steps."""


class _Search(Generic[A]):
    """What is known so far, and what to ask next."""

    def __init__(
        self,
        graph: Graph,
        probe: Callable[[Sequence[Run]], Mapping[Run, A]],
        suspects: Sequence[int],
        most: int,
        fan: int,
        room: int,
    ) -> None:
        self._graph, self._probe, self._most, self._fan, self._room = graph, probe, most, fan, room
        self._suspects = sorted(set(suspects), key=lambda one: (one.bit_count(), one))
        self._fails = {suspect: True for suspect in self._suspects if graph.is_run(suspect)}
        self.answers: dict[Run, A] = {}

    def _ask(self, runs: Iterable[int]) -> None:
        unasked = [run for run in dict.fromkeys(runs) if run not in self._fails]
        for begin in range(0, len(unasked), self._most):
            question = {run: self._graph.named(self._graph.members(run)) for run in unasked[begin : begin + self._most]}
            answers = self._probe(list(question.values()))
            for run, named in question.items():
                self.answers[named] = answer = answers[named]
                self._fails[run] = answer.diverges and not answer.unresolved

    def _failing(self, runs: Iterable[int]) -> list[int]:
        return [run for run in runs if self._fails.get(run, False)]

    def grown(self, largest: int) -> list[int]:
        """Failing runs of two operators; in suspects without any, of three; and so on."""
        growing, runs = self._suspects, self._pairs()
        found: list[int] = []
        for size in range(2, largest + 1):
            self._ask(runs)
            found += (failing := self._failing(runs))
            growing = _unexplained(growing, failing)
            if size < largest:
                growing, runs = self._larger(growing, runs)
        return found

    def _pairs(self) -> list[int]:
        return [pair for pair in self._graph.pairs() if any(_holds(suspect, pair) for suspect in self._suspects)]

    def _larger(self, suspects: Sequence[int], runs: Sequence[int]) -> tuple[list[int], list[int]]:
        """Suspects whose runs of one operator more fit one question, small suspects first, and these runs.

        None is missing (up to `fan`): every run is one of an operator less and a neighbour of it, see `Graph.drops`.
        """
        fitting: list[int] = []
        larger: dict[int, None] = {}  # in the order in which they are found
        known: dict[int, list[int]] = {}
        for suspect in suspects:
            added: dict[int, None] = {}
            for run in runs:
                if _holds(suspect, run):
                    if run not in known:
                        known[run] = self._graph.one_more(run, self._fan)
                    added.update(dict.fromkeys(more for more in known[run] if more not in larger and _holds(suspect, more)))
                    if len(larger) + len(added) > self._most:
                        break
            else:
                fitting.append(suspect)
                larger.update(added)
        return fitting, list(larger)

    def starts(self, suspects: Sequence[int]) -> list[int]:
        """A failing run inside each suspect: itself, or else the smallest that fails of its windows in execution order."""
        found = [suspect for suspect in suspects if suspect in self._fails]
        waiting = {suspect: _halvings(suspect.bit_count()) for suspect in suspects if suspect not in self._fails}
        while waiting := {suspect: sizes for suspect, sizes in waiting.items() if sizes}:
            pieces = {}
            for suspect, sizes in waiting.items():
                now = max(1, self._room // (2 * sizes[0] * len(waiting)))  # windows of one size overlap by half
                pieces[suspect] = [piece for size in sizes[:now] for piece in self._windows_of(suspect, size)]
                waiting[suspect] = sizes[now:]
            self._ask(chain(*pieces.values()))
            for suspect, asked in pieces.items():
                if failing := self._failing(asked):
                    found.append(min(failing, key=_size_and_place))
                    del waiting[suspect]
        return found

    def _windows_of(self, suspect: int, size: int) -> Iterator[int]:
        """Runs of about this size in a suspect that is none."""
        members, step = self._graph.members(suspect), max(1, size // 2)
        for begin in range(0, len(members) - size + step, step):
            for piece in self._graph.pieces(members[begin : begin + size]):
                hull = self._graph.hull(piece)
                if hull.bit_count() > 1 and _holds(suspect, hull):  # operators outside need not agree alone
                    yield hull

    def reduced(self, runs: Iterable[int]) -> list[int]:
        """Minimal failing runs inside failing ones, one in each."""
        leads = [self._lead(run) for run in dict.fromkeys(runs)]
        minimal: list[int] = []
        while leads:
            minimal += [lead.run for lead in leads if self._is_minimal(lead)]
            leads = [lead for lead in leads if not self._is_minimal(lead)]
            smaller = [list(self._smaller(lead, self._room // len(leads))) for lead in leads]
            self._ask(chain(*smaller))
            further = [self._further(lead, asked) for lead, asked in zip(leads, smaller, strict=True)]
            leads = list({lead.run: lead for lead in further}.values())
        return minimal

    def _lead(self, run: int, common: tuple[int, ...] = (), stuck: bool = False) -> _Lead:
        return _Lead(run, self._graph.drops(run), common, stuck)

    def _is_minimal(self, lead: _Lead) -> bool:
        return all(drop in self._fails and not self._fails[drop] for drop in lead.drops)

    def _further(self, lead: _Lead, asked: Sequence[int]) -> _Lead:
        failing = sorted(set(self._failing((*asked, *lead.drops))), key=_size_and_place)
        if not failing:
            return replace(lead, stuck=True)
        slow = (lead.run ^ failing[0]).bit_count() * MOST_CELLS < lead.run.bit_count()
        return self._lead(failing[0], _common(failing), lead.stuck or slow)

    def _smaller(self, lead: _Lead, room: int) -> Iterator[int]:
        """Runs inside a failing one that are worth asking about.

        All are convex: a window in execution order like the run it is of, and what convex runs have in common; and connected
        parts of what is convex.
        """
        members = self._graph.members(lead.run)
        if lead.stuck or len(lead.drops) * len(members) <= room:
            yield from lead.drops
        shortened = _shortened(members) if lead.stuck else ()
        for part in chain(_windows(members, room), shortened, map(self._graph.members, lead.common)):
            yield from (piece for piece in self._graph.pieces(part) if piece.bit_count() > 1)


def _size_and_place(run: int) -> tuple[int, int]:
    return run.bit_count(), run


def _halvings(size: int) -> list[int]:
    """The size, half of it, and so on down to three: of two, all were asked about."""
    sizes = [size] if size > 1 else []
    while size > 3:
        sizes.append(size := max(3, -(-size // 2)))
    return sizes


def _windows(members: Sequence[int], room: int) -> Iterator[Sequence[int]]:
    """All windows that begin and end on a grid, as fine as there is room for: g cells make windows of g * g / 6 times all."""
    size = len(members)
    cells = min(MOST_CELLS, max(FEWEST_CELLS, isqrt(6 * room // size)))
    step = -(-size // cells)
    for begin in range(0, size, step):
        for end in range(begin + step, size + step, step):
            if end - begin < size:
                yield members[begin:end]


def _shortened(members: Sequence[int]) -> Iterator[Sequence[int]]:
    """Without 1, 2, 4, ... operators at either end."""
    count = 1
    while count < len(members):
        yield from (members[count:], members[:-count])
        count *= 2


def _common(runs: Sequence[int]) -> tuple[int, ...]:
    """What the first 2, 4, 8, ... of them and all have in common."""
    met = list(accumulate(runs, and_))
    return tuple(dict.fromkeys(met[min(2**power, len(met)) - 1] for power in range(1, len(met).bit_length() + 1)))
