"""The last step of the flow: from what the search found to the report."""

import platform
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
import torch

from bisect_tvm import __version__
from bisect_tvm.measure import Drift
from bisect_tvm.model.hierarchy import Component
from bisect_tvm.numerics.judge import Judgement, unresolved
from bisect_tvm.numerics.verdict import Verdict
from bisect_tvm.report.report import Cost, Effect, Entry, Explanation, Proof, Report
from bisect_tvm.report.typeset import count, grouped, largest, number
from bisect_tvm.search.walk import Found

TELLING = (
    Verdict.NONFINITE,
    Verdict.FORMULA,
    Verdict.TYPE,
    Verdict.UNSTABLE,
    Verdict.FLOAT32_ONLY,
    Verdict.INTERACTION,
)
"""Which culprit's verdict leads where there are several kinds."""


TOGETHER = "its parts agree alone, together they do not: "
"""Before the reason of a verdict INTERACTION."""


@dataclass(frozen=True)
class Findings:
    """Everything that was found out, by whatever found it."""

    found: Found[Judgement]
    culprits: tuple[str, ...]
    """By id: operators, modules and runs."""
    runs: tuple[Component, ...]
    """Runs of operators that fail together."""
    run_judgements: Mapping[str, Judgement]
    drifts: Mapping[str, tuple[Drift | None, Drift | None]]
    """By component: the largest deviation that enters it and that leaves it inside the whole model."""
    proof: Proof | None
    explanations: tuple[Explanation, ...]


def assemble(
    tree: Component,
    findings: Findings,
    *,
    environment: Mapping[str, str],
    cost: Cost,
    unfinished: str = "",
    fingerprint: str = "",
    before: Report | None = None,
) -> Report:
    """Make the report of everything that was measured.

    Args:
        tree: all components.
        findings: what is known of them.
        environment: versions, target and options.
        cost: builds and seconds.
        unfinished: why the search ended early, and what was not looked at.
        fingerprint: of model, inputs and options.
        before: the report that this one continues.
    """
    answers = {**findings.found.answers, **findings.run_judgements}
    if tree.id not in answers:
        answers[tree.id] = unresolved(unfinished or "it was not looked at")
    entries = [
        _entry(component, parent, _judgement(component.id, answers, findings.found.acquitted), findings)
        for component, parent in _placed(tree, findings.runs, answers.keys())
    ]
    if before is not None:
        old = {entry.id: entry for entry in before.tree}
        entries = [_with_drift(entry, old) for entry in entries]
    report = Report(
        verdict=_overall(tuple(entries), set(findings.culprits)),
        summary="",
        tree=tuple(entries),
        culprit_ids=findings.culprits,
        environment={
            "bisect_tvm": __version__,
            "torch": torch.__version__,
            **environment,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
        },
        cost=cost,
        proof=findings.proof,
        explanations=findings.explanations,
        unfinished=unfinished,
        fingerprint=fingerprint,
    )
    return replace(report, summary=summarize(report))


def _placed(tree: Component, runs: Sequence[Component], measured: Set[str]) -> list[tuple[Component, str | None]]:
    """The measured components, parents first, each with the smallest one that holds it; runs before what stands beside them."""
    inside: dict[str | None, list[Component]] = {}
    for run in runs:
        inside.setdefault(run.parent, []).append(run)
    nearest: dict[str | None, str | None] = {None: None}
    placed: list[tuple[Component, str | None]] = []
    for component in tree.walk():
        nearest[component.id] = component.id if component.id in measured else nearest[component.parent]
        if component.id in measured:
            placed.append((component, nearest[component.parent]))
        placed += [(run, nearest[component.id]) for run in inside.get(component.id, ())]
    return placed


def _judgement(id: str, answers: Mapping[str, Judgement], acquitted: Set[str]) -> Judgement:
    """The probe's judgement, unless the search acquitted the component."""
    judgement = answers[id]
    if id not in acquitted:
        return judgement
    reason = f"its operators, each within its own noise floor or undecided, add up to it: {judgement.reason}"
    return replace(judgement, verdict=Verdict.ROUNDING, stated=(Verdict.ROUNDING,), reason=reason)


def _entry(component: Component, parent: str | None, judgement: Judgement, findings: Findings) -> Entry:
    interaction = (component.id in findings.found.interactions and component.id in findings.culprits) or component.kind == "run"
    verdict = Verdict.INTERACTION if interaction else judgement.verdict
    before, after = findings.drifts.get(component.id, (None, None))
    return Entry(
        id=component.id,
        parent=parent,
        depth=component.depth,
        kind=component.kind,
        path=component.path,
        operator=component.operator,
        module_class=component.module_class,
        source=component.source,
        verdict=verdict,
        reason=f"{TOGETHER}{judgement.reason}" if interaction else judgement.reason,
        deviation32=judgement.deviation32,
        deviation64=judgement.deviation64,
        excess32=judgement.excess32,
        excess64=judgement.excess64,
        worst=judgement.worst,
        operators=sum(not part.children for part in component.walk()),
        stated=(verdict, *judgement.stated) if interaction else judgement.stated,
        undecided=judgement.undecided,
        cumulative32=after.deviation32 if after else None,
        cumulative64=after.deviation64 if after else None,
        effect=effect_of(judgement.diverges, before, after),
        parts=tuple(part.id for part in component.walk() if not part.children) if interaction else (),
        sample=judgement.sample,
        samples=judgement.samples,
        conclusive=judgement.conclusive,
        doubtful=judgement.doubtful,
        strictest=judgement.strictest,
    )


def judgement_of(entry: Entry) -> Judgement:
    """What an entry of a saved report says, as it was found."""
    stated = entry.stated[1:] if entry.verdict is Verdict.INTERACTION else entry.stated
    reason = entry.reason.removeprefix(TOGETHER)
    return Judgement(
        verdict=stated[0], stated=stated, reason=reason, deviation32=entry.deviation32, deviation64=entry.deviation64,
        excess32=entry.excess32, excess64=entry.excess64, worst=entry.worst, undecided=entry.undecided, sample=entry.sample,
        samples=entry.samples, conclusive=entry.conclusive, doubtful=entry.doubtful, strictest=entry.strictest,
    )  # fmt: skip


def _with_drift(entry: Entry, old: Mapping[str, Entry]) -> Entry:
    """Cumulative deviations of the report before, where this time none were measured."""
    known = old.get(entry.id)
    if known is None or entry.cumulative64 is not None or entry.cumulative32 is not None:
        return entry
    return replace(entry, cumulative32=known.cumulative32, cumulative64=known.cumulative64, effect=known.effect)


NO_DRIFT = Drift(0.0, 0.0, False)
AS_MUCH = 4.0
"""A deviation that leaves a component so many times larger than it came in is amplified, so many times smaller attenuated."""
AS_MUCH_ABSOLUTELY = 8.0
"""The same for the absolute error, where the deviation, which is relative, is kept: a component may scale what it reads."""


def effect_of(diverges: bool, before: Drift | None, after: Drift | None) -> Effect | None:
    """What a component does to the deviation, from its own verdict and from what enters and leaves it inside the whole model."""
    if diverges:
        return "introduces"
    if after is None or not (after.diverges or (before and before.diverges)):
        return None
    entering, leaving = (drift if drift and drift.diverges else NO_DRIFT for drift in (before, after))
    relative = _change(_size(entering), _size(leaving), AS_MUCH)
    return relative if relative != "inherits" else _change(entering.error, leaving.error, AS_MUCH_ABSOLUTELY)


def _change(entering: float, leaving: float, as_much: float) -> Effect:
    if leaving > as_much * entering:
        return "amplifies"
    return "attenuates" if leaving * as_much < entering else "inherits"


def _size(drift: Drift) -> float:
    return drift.deviation64 if drift.deviation64 is not None else drift.deviation32 or 0.0


def _overall(entries: tuple[Entry, ...], culprits: set[str]) -> Verdict:
    """The most telling culprit's verdict; else what is said of the whole."""
    found = {entry.verdict for entry in entries if entry.id in culprits}
    for verdict in TELLING:
        if verdict in found:
            return verdict
    return entries[0].verdict


def summarize(report: Report) -> str:
    """The answer in one to three sentences, from the report's own numbers."""
    root, culprits, unresolved = report.root, report.culprits, report.unresolved
    parts = [_of_the_whole(report)]
    if culprits:
        parts.append(f"{count(len(culprits), 'component')} {_verb(len(culprits))}: {grouped(culprits)}")
    elif root.verdict.is_divergence or root.verdict is Verdict.UNRESOLVED:
        parts.append(_no_culprit(report))
    if report.proof is not None:
        parts.append(_proved(report.proof, len(culprits)))
    text = "; ".join(part for part in parts if part) + "."
    smallest = [entry for entry in unresolved if entry is not root]
    if smallest:
        text += f" {count(len(smallest), 'component')} could not be judged: {grouped(smallest)}."
    return text + (" The search did not come to its end." if report.unfinished else "")


def _of_the_whole(report: Report) -> str:
    root = report.root
    if root.verdict is Verdict.UNRESOLVED:
        if root.deviation32 is not None:
            return (
                f"The model is off by {_number(root.deviation32)} as you build it, and whether rounding explains that is not known"
            )
        return f"The model as a whole {'was not compared' if report.unfinished else 'could not be compared'}"
    if root.verdict.is_divergence or report.culprits:
        return f"The model is off by {_number(root.deviation32)} ({_number(root.deviation64)} in float64)"
    return (
        f"TVM computes the model as PyTorch does on these inputs: off by {_number(root.deviation32)}, "
        f"{_number(root.deviation64)} in float64, which rounding explains"
    )


def _no_culprit(report: Report) -> str:
    """What is known of the parts where none is accused; empty if nothing is."""
    looked_at_parts = len(report.tree) > 1
    if report.unfinished:
        return "no part that was looked at fails alone" if looked_at_parts else "no part was looked at yet"
    if not report.root.verdict.is_divergence:
        return "every part that could be judged agrees" if looked_at_parts else ""
    return "no part that could be judged fails alone" if report.unresolved else "no part fails alone"


def _proved(proof: Proof, culprits: int) -> str:
    """Whether the culprits are to blame for all of it."""
    replaced = "it" if culprits == 1 else "them"
    if proof.sufficient is None:
        return f"what the model gives with {replaced} replaced by PyTorch's values could not be judged"
    replaced = f"with {replaced} replaced by PyTorch's values the model"
    if proof.sufficient:
        return f"{replaced} agrees" + ("" if proof.deviation64 is None else f" to {number(proof.deviation64)} in float64")
    far = largest((proof.deviation32, proof.deviation64))  # what remains may show in the model's own precision only
    return f"{replaced} is still off by {_number(far)}, which is unexplained"


def _verb(count: int) -> str:
    return "deviates by itself" if count == 1 else "deviate by themselves"


def _number(value: float | None) -> str:
    return "an unknown amount" if value is None else number(value)
