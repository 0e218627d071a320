"""The last step of the flow: from what the search found to the report."""

import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from bisect_tvm import __version__
from bisect_tvm.model.hierarchy import Component
from bisect_tvm.numerics.judge import Judgement
from bisect_tvm.numerics.verdict import Verdict
from bisect_tvm.report.report import Cost, Entry, Report
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


def assemble(
    tree: Component,
    found: Found[Judgement],
    *,
    environment: Mapping[str, str],
    builds: int,
    seconds: Mapping[str, float],
) -> Report:
    """Make the report of everything that was measured."""
    # Components that nobody asked about are not in the report; what they hold stands under the next one that is.
    nearest: dict[str | None, str | None] = {None: None}
    for component in tree.walk():
        nearest[component.id] = component.id if component.id in found.answers else nearest[component.parent]
    entries = tuple(
        _entry(component, nearest[component.parent], _judgement(component.id, found), component.id in found.interactions)
        for component in tree.walk()
        if component.id in found.answers
    )
    culprits = set(found.culprits)
    verdict = _overall(entries, culprits)
    report = Report(
        verdict=verdict,
        summary="",
        tree=entries,
        culprit_ids=found.culprits,
        environment={
            "bisect_tvm": __version__,
            "torch": torch.__version__,
            **environment,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
        },
        cost=Cost(builds, dict(seconds)),
    )
    return replace(report, summary=summarize(report))


def _judgement(id: str, found: Found[Judgement]) -> Judgement:
    """The probe's judgement, unless the search acquitted the component."""
    judgement = found.answers[id]
    if id not in found.acquitted:
        return judgement
    reason = f"its operators, each within its own noise floor or undecided, add up to it: {judgement.reason}"
    return replace(judgement, verdict=Verdict.ROUNDING, stated=(Verdict.ROUNDING,), reason=reason)


def _entry(component: Component, parent: str | None, judgement: Judgement, interaction: bool) -> Entry:
    verdict = Verdict.INTERACTION if interaction else judgement.verdict
    reason = f"its parts agree alone, together they do not: {judgement.reason}" if interaction else judgement.reason
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
        reason=reason,
        deviation32=judgement.deviation32,
        deviation64=judgement.deviation64,
        excess32=judgement.excess32,
        excess64=judgement.excess64,
        worst=judgement.worst,
        operators=sum(not part.children for part in component.walk()),
        stated=(verdict, *judgement.stated) if interaction else judgement.stated,
        undecided=judgement.undecided,
    )


def _overall(entries: tuple[Entry, ...], culprits: set[str]) -> Verdict:
    """The most telling culprit's verdict; else what is said of the whole."""
    found = {entry.verdict for entry in entries if entry.id in culprits}
    for verdict in TELLING:
        if verdict in found:
            return verdict
    return entries[0].verdict


def summarize(report: Report) -> str:
    """The answer in a sentence or two, from the report's own numbers."""
    root, culprits, unresolved = report.root, report.culprits, report.unresolved
    parts = []
    if root.verdict is Verdict.UNRESOLVED:
        parts.append("The model as a whole could not be compared")
    elif root.verdict.is_divergence or culprits:
        parts.append(f"The model is off by {_number(root.deviation32)} ({_number(root.deviation64)} in float64)")
    else:
        parts.append(
            f"TVM computes the model as PyTorch does on these inputs: off by {_number(root.deviation32)}, "
            f"{_number(root.deviation64)} in float64, which rounding explains"
        )
    if culprits:
        parts.append(f"{_count(len(culprits), 'component')} {_verb(len(culprits))}: {_grouped(culprits)}")
    elif root.verdict.is_divergence:
        parts.append("no part fails alone" if not unresolved else "no part that could be judged fails alone")
    elif root.verdict is Verdict.UNRESOLVED:
        parts.append("every part that could be judged agrees")
    text = "; ".join(parts) + "."
    smallest = [entry for entry in unresolved if entry is not root]
    if smallest:
        text += f" {_count(len(smallest), 'component')} could not be judged: {_grouped(tuple(smallest))}."
    return text


def _grouped(entries: tuple[Entry, ...]) -> str:
    counts = Counter(entry.operator or entry.module_class.rpartition(".")[2] for entry in entries)
    return ", ".join(f"{name} ({count})" if count > 1 else name for name, count in counts.most_common())


def _verb(count: int) -> str:
    return "deviates by itself" if count == 1 else "deviate by themselves"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _number(value: float | None) -> str:
    if value is None:
        return "an unknown amount"
    return f"{value:.1e}" if value else "0"
