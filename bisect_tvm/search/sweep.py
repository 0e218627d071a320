"""All small runs of operators, whatever is around them: faults that only show in company and that nothing else shows.

`narrow` looks inside components that fail. A run of operators that fails together may stand in none: its error dies out before it
leaves the component, or a fault of a single operator in the same component explains that already.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from bisect_tvm.search.runs import Graph, Run
from bisect_tvm.search.walk import EXPLAINS, A


def sweep(
    operators: Sequence[str],
    readers: Mapping[str, Sequence[str]],
    probe: Callable[[Sequence[Run]], Mapping[Run, A]],
    alone: Mapping[str, A],
    *,
    largest: int,
    most: int = 4096,
    fan: int = 8,
) -> dict[Run, A]:
    """Ask about all small runs, in one question, and return the failing ones that hold no other.

    Args:
        operators: those that may be in a run, in execution order; they agree alone.
        readers: which operators read an operator.
        probe: judges many runs at once.
        alone: what is known of operators by themselves: a run that fails by no more than that is not accused.
        largest: operators of a run at most.
        most: runs at most; of a size of which there are more, none are asked about.
        fan: a run grows to so many neighbours of an operator at most, the nearest in execution order.
    """
    answers = probe(runs) if (runs := _small_runs(Graph(operators, readers), largest, most, fan)) else {}
    found: dict[Run, A] = {}
    for run in sorted(runs, key=len):
        answer = answers[run]
        if answer.diverges and not answer.unresolved and not _is_explained(run, answer, alone) and not _holds_any(run, found):
            found[run] = answer
    return found


def _small_runs(graph: Graph, largest: int, most: int, fan: int) -> list[Run]:
    runs: list[Run] = []
    larger = graph.pairs()
    for _ in range(2, largest + 1):
        if len(runs) + len(larger) > most:
            break
        runs += [graph.named(graph.members(run)) for run in larger]
        larger = list(dict.fromkeys(more for run in larger for more in graph.one_more(run, fan)))
    return runs


def _holds_any(run: Run, others: Mapping[Run, A]) -> bool:
    return any(part in others for size in range(2, len(run)) for part in combinations(run, size))


def _is_explained(run: Run, answer: A, alone: Mapping[str, A]) -> bool:
    """What single operators are off by adds up, and what comes after a decision that went the other way is another computation."""
    inside = [alone[id] for id in run if id in alone]
    return any(each.undecided or each.strictest * EXPLAINS >= answer.excess for each in inside)
