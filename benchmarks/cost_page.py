"""What benchmarks.cost measured: kept as JSON, told in Markdown."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import cattrs

from benchmarks.by_hand import TOLERANCE, Outcome
from benchmarks.measuring import table, write

METHODS = {
    "submodules": "every call of a submodule alone",
    "top_down": "submodules, top down",
    "sequential": "PyTorch's minimizer, operator by operator",
    "binary": "PyTorch's minimizer, binary search",
}
"""What the rivals of benchmarks.by_hand do, in a few words."""
SCOPES = {"search": "locate without explanations", "everything": "locate"}
TEXT = """# What an answer costs

Made by `python -m benchmarks.cost`{options}; do not edit.

Each model is converted with one wrong converter (`benchmarks/cost_models.py`). Seconds are wall time.

## Against one plain conversion

A plain conversion is export, import, default build, load and one run. It alternates with `locate` in one process, after a warm-up;
times are medians, and the ratio is that of the medians. Without explanations, `locate` judges the model in both precisions, every
operator and the hierarchy, and proves that the culprits are to blame. To be reached: 2.0 or less; the aim is below 1.0.

{plain}

## Against converting part by part

The same search as it is done today (`benchmarks/by_hand.py`): parts are converted one by one, each on the values that PyTorch feeds
it, and compared with PyTorch's result in float32; a part is found if its largest error is above {tolerance:g} of its largest value.
They neither prove nor explain. Both factors are relative to the first row of the table, all of whose builds count. To be reached: 4
times slower, 20 times more builds. What was stopped at its cap stands with ≥: so much was spent, and the search had not ended.

{rivals}

## Where the time goes

Seconds by step, of the last of the runs above. Steps of `locate` can overlap.

{steps}

## Measured on

{machines}
"""


@dataclass
class Ours:
    """Plain conversions and `locate` by turns."""

    plain: list[float]
    located: list[float]
    plain_steps: dict[str, float]
    """Of the last run, like all below."""
    steps: dict[str, float]
    builds: int
    further_builds: int
    culprits: int
    right: bool
    """In every run, the culprits are the planted operators and no others, and proven."""

    @property
    def ratio(self) -> float:
        """Of the medians."""
        return median(self.located) / median(self.plain)

    @property
    def ratios(self) -> list[float]:
        """Of each run to the plain conversion before it."""
        return [ours / plain for ours, plain in zip(self.located, self.plain, strict=True)]

    @property
    def all_builds(self) -> int:
        """Those of the proof and the explanations, too."""
        return self.builds + self.further_builds


@dataclass
class Measured:
    """Everything about one model."""

    title: str
    planted: int
    ours: dict[str, Ours] = field(default_factory=dict)
    """By scope (see `SCOPES`)."""
    rivals: dict[str, Outcome] = field(default_factory=dict)
    """By method (see `METHODS`)."""
    ours_on: str = ""
    """The machine and the versions."""
    rivals_on: str = ""


@dataclass
class Results:
    """All that the page tells."""

    small: bool
    models: dict[str, Measured] = field(default_factory=dict)

    @property
    def right(self) -> bool:
        """Whether `locate` was never wrong."""
        return all(ours.right for measured in self.models.values() for ours in measured.ours.values())


def load(page: Path, *, small: bool) -> Results:
    """What was kept next to the page; nothing if there is none.

    Raises:
        ValueError: it is of models of the other size.
    """
    kept = page.with_suffix(".json")
    if not kept.exists():
        return Results(small)
    results = cattrs.structure(json.loads(kept.read_text(encoding="utf-8")), Results)
    if results.small != small:
        raise ValueError(f"{kept} is of {'small' if results.small else 'full-size'} models; choose another page with --out")
    return results


def save(page: Path, results: Results) -> None:
    """Write the page and what it is made of."""
    write(page.with_suffix(".json"), json.dumps(cattrs.unstructure(results), indent=1) + "\n")
    write(page, render(results))


def render(results: Results) -> str:
    """The page, in Markdown."""
    models = results.models.values()
    plain = ("model", "call", "plain conversion", "locate", "ratio", "pairs", "builds", "culprits")
    return TEXT.format(
        options=" --small" if results.small else "",
        tolerance=TOLERANCE,
        plain=table(plain, [row for measured in models for row in _against_plain(measured)]),
        rivals="\n\n".join(f"**{measured.title}**\n\n{_against_rivals(measured)}" for measured in models if measured.rivals)
        or "Not measured yet.",
        steps="\n".join(line for measured in models for line in _steps(measured)),
        machines="\n\n".join(_machines(measured) for measured in models),
    )


def _against_plain(measured: Measured) -> Iterable[tuple[str, ...]]:
    for scope, ours in measured.ours.items():
        yield (
            measured.title, SCOPES[scope], f"{median(ours.plain):.1f} s", f"{median(ours.located):.1f} s", f"{ours.ratio:.2f}",
            f"{min(ours.ratios):.2f} to {max(ours.ratios):.2f}", f"{ours.builds} + {ours.further_builds}", _found(ours, measured),
        )  # fmt: skip


def _found(ours: Ours, measured: Measured) -> str:
    return f"{ours.culprits} of {measured.planted}, {'right and proven' if ours.right else '**wrong or unproven**'}"


def _against_rivals(measured: Measured) -> str:
    best = next(iter(measured.ours.values()), None)
    rows = [
        (
            SCOPES[scope], f"{median(ours.located):.0f}", str(ours.all_builds), "", _found(ours, measured),
            _times(median(ours.located), best and median(best.located)), _times(ours.all_builds, best and best.all_builds),
        )
        for scope, ours in measured.ours.items()
    ]  # fmt: skip
    rows += [_rival(method, outcome, measured.planted, best) for method, outcome in measured.rivals.items()]
    return table(
        ("method", "seconds", "builds", "conversions that failed", "found", "times slower than ours", "times more builds"), rows
    )


def _rival(method: str, outcome: Outcome, planted: int, best: Ours | None) -> tuple[str, ...]:
    least = "" if outcome.finished else "≥ "
    return (
        METHODS[method],
        f"{least}{outcome.seconds:.0f}{_expected(outcome)}",
        f"{least}{outcome.builds}",
        _failed(outcome),
        f"{outcome.right} of {planted} right, {outcome.wrong} wrong" + ("" if outcome.finished else " when stopped"),
        least + _times(outcome.seconds, best and median(best.located)),
        least + _times(outcome.builds, best and best.all_builds),
    )


def _expected(outcome: Outcome) -> str:
    """How far a pass came that was stopped."""
    if outcome.finished:
        return ""
    if not outcome.total or not outcome.conversions:
        return " (stopped)"
    all_of_it = outcome.seconds * outcome.total / outcome.conversions
    return f" (stopped after {outcome.conversions} of {outcome.total} conversions; all would take about {all_of_it:.0f})"


def _failed(outcome: Outcome) -> str:
    names = ", ".join(f"{count} {name}" for name, count in sorted(outcome.failures.items()))
    return f"{sum(outcome.failures.values())} of {outcome.conversions}" + (f" ({names})" if names else "")


def _times(theirs: float, ours: float | None) -> str:
    return f"{theirs / ours:.1f}" if ours else "?"


def _steps(measured: Measured) -> Iterable[str]:
    for scope, ours in measured.ours.items():
        for name, steps in (("plain conversion", ours.plain_steps), (SCOPES[scope], ours.steps)):
            yield f"- {measured.title}, {name}: {_list(steps)}"


def _list(steps: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.1f}" for name, seconds in steps.items())


def _machines(measured: Measured) -> str:
    by_machine: dict[str, list[str]] = {}
    for what, where in (("against one plain conversion", measured.ours_on), ("part by part", measured.rivals_on)):
        if where:
            by_machine.setdefault(where, []).append(what)
    return "\n\n".join(f"{measured.title}, {' and '.join(what)}:\n\n{where}" for where, what in by_machine.items())
