"""Runs the search, as far as it may go, and turns what it found into what the report says."""

from collections.abc import Hashable, Mapping, Sequence

from bisect_tvm.assemble import Findings
from bisect_tvm.errors import StoppedError
from bisect_tvm.explain.kinds import Culprit
from bisect_tvm.interrupts import seen
from bisect_tvm.measure import Drift, further
from bisect_tvm.model.capture import Program
from bisect_tvm.model.hierarchy import JOINT, Component, joined, operator_readers
from bisect_tvm.numerics.judge import Judgement
from bisect_tvm.probe import Probe
from bisect_tvm.report.report import INTERRUPTED, Explanation, Kept, Proof
from bisect_tvm.search.runs import Run
from bisect_tvm.search.search import Search
from bisect_tvm.search.walk import Looks

Searched = Search[Component, Judgement]
SWEEPING = 3
"""Operators in the runs that are looked at wherever they are: what fuses seldom needs more."""


def find(
    program: Program,
    tree: Component,
    probe: Probe,
    known_swaps: Mapping[frozenset[str], Judgement],
    *,
    exhaustive: bool,
) -> tuple[Searched, str]:
    """Search until all is found, or the budget is spent, or the user interrupts; also tells what was not looked at, if anything."""
    by_id = {component.id: component for component in tree.walk()}

    def swap(questions: Mapping[str, Sequence[Run]]) -> Mapping[str, Judgement]:
        replaced = {name: frozenset(JOINT.join(run) for run in runs) for name, runs in questions.items()}
        if known_swaps.keys() >= set(replaced.values()):
            return {name: known_swaps[ids] for name, ids in replaced.items()}
        return probe.swap({name: [by_id[id] for run in runs for id in run] for name, runs in questions.items()})

    def in_place(questions: Mapping[Run, Sequence[Run]]) -> Mapping[Run, Judgement]:
        return probe.in_place({run: [by_id[id] for other in others for id in other] for run, others in questions.items()})

    def operators(run: Run) -> Hashable:
        return tuple(by_id[id].operator or by_id[id].module_class for id in run)

    readers = operator_readers(program, tree)
    looks = Looks(probe, probe.closely, probe.strictly)
    kinds = (operators, lambda run: "all of them")
    sweeping = SWEEPING if probe.fuses else 0
    search = Search(tree, tuple(readers), readers, looks, probe.runs, swap, kinds, exhaustive, in_place, sweeping)
    try:
        search.run()
        probe.tap()
    except StoppedError as error:
        return search, _stopped(str(error), search, probe, by_id)
    except KeyboardInterrupt:
        seen()
        return search, _stopped(INTERRUPTED, search, probe, by_id)
    return search, ""


def _stopped(why: str, search: Searched, probe: Probe, by_id: Mapping[str, Component]) -> str:
    """Save what the probe knows and the search has not heard of yet."""
    search.answers.update({id: answer for id, answer in probe.answers.items() if id in by_id and id not in search.answers})
    left = sum(not component.children and id not in search.answers for id, component in by_id.items())
    missing = f"; {left} of {len(search.operators)} operators were not looked at" if left else ""
    return f"{why} while looking at {search.step or 'values inside the model'}{missing}"


def culprits_of(tree: Component, probe: Probe, search: Searched) -> tuple[Culprit, ...]:
    """What was found, with what enters and leaves it."""
    by_id = {component.id: component for component in tree.walk()}
    found = []
    for run in search.culprits:
        component = joined(tree, run) if len(run) > 1 else by_id[run[0]]
        judgement = search.run_answers[run] if len(run) > 1 else search.found.answers[run[0]]
        found.append(Culprit(component, probe.whole_edge if component is tree else probe.edge_of(component), judgement))
    return tuple(found)


def curable(tree: Component, search: Searched) -> bool:
    """True if the model as a whole deviates, and nothing speaks against the culprits being all of it."""
    root = search.found.answers.get(tree.id)
    return root is not None and root.diverges and not (search.proof and search.proof.swapped.diverges)


def findings_of(tree: Component, probe: Probe, search: Searched, explanations: tuple[Explanation, ...]) -> Findings:
    """What the report needs to know."""
    runs = {run: joined(tree, run) for run in search.run_answers}
    return Findings(
        found=search.found,
        culprits=tuple(JOINT.join(run) for run in search.culprits),
        runs=tuple(runs.values()),
        run_judgements={component.id: search.run_answers[run] for run, component in runs.items()},
        drifts=_drifts([*tree.walk(), *runs.values()], probe),
        proof=_proof(search),
        explanations=explanations,
    )


def _proof(search: Searched) -> Proof | None:
    if search.proof is None:
        return None
    swapped = search.proof.swapped
    kept = tuple(
        Kept(
            tuple(JOINT.join(run) for run in each.culprits),
            each.answer.deviation32,
            each.answer.deviation64,
            None if each.answer.unresolved else each.answer.diverges,
        )
        for each in search.proof.kept
    )
    return Proof(
        sufficient=None if swapped.unresolved else not swapped.diverges,
        reason=swapped.reason,
        deviation32=swapped.deviation32,
        deviation64=swapped.deviation64,
        excess64=swapped.excess64,
        kept=kept,
    )


def _drifts(components: Sequence[Component], probe: Probe) -> dict[str, tuple[Drift | None, Drift | None]]:
    """The largest deviation that enters and that leaves each component inside the whole model."""
    if not probe.drifts:
        return {}
    found = {}
    for component in components:
        edge = probe.edge_of(component)
        sides = ([probe.drifts[node.name] for node in side if node.name in probe.drifts] for side in (edge.inputs, edge.outputs))
        before, after = (_furthest(side) for side in sides)
        found[component.id] = before, after
    return found


def _furthest(side: Sequence[Drift]) -> Drift | None:
    largest = None
    for drift in side:
        largest = further(largest, drift)
    return largest
