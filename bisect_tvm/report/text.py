"""A report on one screen: the answer in a sentence, then the evidence.

Every number and name comes from the `Report`. Names come from the user's model, so they are handed to rich as `Text`,
which is never read as markup, and characters that would move the cursor are replaced.
"""

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from bisect_tvm.numerics.verdict import Verdict
from bisect_tvm.report.culprits import culprit_lines
from bisect_tvm.report.evidence import explanation_lines, proof_lines, unresolved_lines
from bisect_tvm.report.outline import Row, outline
from bisect_tvm.report.typeset import MORE, count, excess, fit, fit_operators, largest, number, wrap

# report.py imports this module, so its types are known here to the type checker only.
if TYPE_CHECKING:
    from bisect_tvm.report.report import Entry, Report

HEIGHT = 40
"""Lines that a rendered report never exceeds."""

_NARROWEST = 80  # Below this the columns of numbers leave no room for names.
_ROOMY = 94
"""Width from which the tree has room for one column more."""


@dataclass(frozen=True)
class _Detail:
    """How many lines the sections may take at most, by what they list."""

    culprits: int
    sources: int
    kept: int
    explanations: int
    reasons: int
    cost: int
    rows: int
    """Rows of the tree that must find room, or as many as it has."""


_DETAILS = (
    _Detail(culprits=8, sources=3, kept=4, explanations=3, reasons=3, cost=3, rows=12),
    _Detail(culprits=8, sources=2, kept=3, explanations=2, reasons=3, cost=2, rows=10),
    _Detail(culprits=6, sources=2, kept=3, explanations=2, reasons=2, cost=2, rows=8),
    _Detail(culprits=4, sources=1, kept=2, explanations=1, reasons=1, cost=1, rows=6),
    _Detail(culprits=2, sources=1, kept=1, explanations=1, reasons=1, cost=1, rows=3),
)
"""The first that leaves the tree its rows is taken."""


def render_text(report: "Report", width: int = 100, colour: bool = False) -> str:
    """The report in at most `HEIGHT` lines of `width` (at least 80) columns; with `colour`, in ANSI colours."""
    width = max(width, _NARROWEST)
    page = _Page(width, colour)
    head = page.lines(_summary(report, width))
    wanted = len(outline(report, HEIGHT).rows)
    room = HEIGHT - len(head) - 2  # A blank line and the table's header.
    for detail in _DETAILS:
        tail = page.sections(_tail(report, width, detail, code=0))
        if room - len(tail) >= min(wanted, detail.rows):
            break
    # What the tree leaves is for code, which is of use only as a whole.
    tail = page.sections(_tail(report, width, detail, code=max(0, room - len(tail) - wanted)))
    return "\n".join([*head, "", *page.lines([_tree(report, room - len(tail), width)]), *tail])


def _tail(report: "Report", width: int, detail: _Detail, code: int) -> list[Sequence[RenderableType]]:
    """All that stands below the tree."""
    return [
        culprit_lines(report, width, detail.culprits, detail.sources),
        [*proof_lines(report, width, detail.kept), *explanation_lines(report, width, detail.explanations, code)],
        unresolved_lines(report, width, detail.reasons),
        _cost(report, width, detail.cost),
    ]


class _Page:
    """Renders rich objects into lines of a fixed width, the same in a terminal, a pipe and a notebook."""

    def __init__(self, width: int, colour: bool) -> None:
        self._file = io.StringIO()
        self._console = Console(
            file=self._file,
            width=width,
            color_system="standard" if colour else None,
            force_terminal=colour,
            # In a notebook rich would display, and write nothing into the file.
            force_jupyter=False,
            legacy_windows=False,
            highlight=False,
        )

    def lines(self, parts: Iterable[RenderableType]) -> list[str]:
        self._file.seek(0)
        self._file.truncate()
        for part in parts:
            self._console.print(part, no_wrap=True, overflow="crop")
        return [line.rstrip() for line in self._file.getvalue().splitlines()]

    def sections(self, sections: Iterable[Sequence[RenderableType]]) -> list[str]:
        """Each after a blank line, those that hold nothing left out."""
        return [line for section in sections if section for line in ("", *self.lines(section))]


def _summary(report: "Report", width: int) -> list[Text]:
    root = report.root
    lines = [Text(line, style="bold") for line in wrap(report.summary, width, most=4)]
    numbers = f"float32 {number(root.deviation32)}, float64 {number(root.deviation64)}"
    lines.append(Text(f"{report.verdict}; deviation of the whole model: {numbers}."))
    if report.unfinished:
        lines += [Text(line, style="bold yellow") for line in wrap(f"Incomplete: {report.unfinished.rstrip('.')}.", width, most=2)]
    return lines


def _tree(report: "Report", room: int, width: int) -> Table:
    shown = outline(report, max(room, 2))
    measured = any(entry.cumulative64 is not None or entry.cumulative32 is not None for entry in report.tree)
    names = _columns(measured, width)
    ending = 19 if measured else 17
    left = width - 10 * len(names) - 2 - ending
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="underline")
    table.add_column("component", width=left, no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", width=8, no_wrap=True)
    table.add_column("verdict", width=ending, no_wrap=True)
    paths = {entry.id: entry.path for entry in report.tree}
    # Deep trees are indented less, so that names stay readable.
    indent = "  " if max((row.depth for row in shown.rows), default=0) <= 8 else " "
    for row in shown.rows:
        margin = indent * row.depth
        label = _label(row, paths.get(row.entry.parent or "", ""), left - len(margin))
        numbers = (_NUMBERS[name](row.twins if row.is_rest else (row.entry,)) for name in names)
        table.add_row(Text(fit(margin + label, left)), *numbers, _ending(row), style=_style(row))
    if shown.hidden:
        table.add_row(Text(MORE.format(shown.hidden)))
    return table


_NUMBERS = {
    "float32": lambda entries: number(largest(entry.deviation32 for entry in entries)),
    "float64": lambda entries: number(largest(entry.deviation64 for entry in entries)),
    "excess64": lambda entries: excess(largest(entry.excess64 for entry in entries)),
    "in model": lambda entries: number(largest(_cumulative(entry) for entry in entries)),
}


def _columns(measured: bool, width: int) -> list[str]:
    """The excess, which the verdict tells as well, makes room for the deviation inside the whole model."""
    if not measured:
        return ["float32", "float64", "excess64"]
    return ["float32", "float64", "in model"] if width < _ROOMY else ["float32", "float64", "excess64", "in model"]


def _cumulative(entry: "Entry") -> float | None:
    return entry.cumulative64 if entry.cumulative64 is not None else entry.cumulative32


def _ending(row: Row) -> str:
    """The verdict, and the mark of a culprit, or what a component that agrees does to the deviation that reaches it."""
    verdicts = {entry.verdict for entry in row.twins}
    verdict = str(row.entry.verdict) if len(verdicts) == 1 else "mixed"
    if row.is_culprit:
        return f"{verdict:<12}  <--"
    effects = {entry.effect for entry in row.twins}
    effect = row.entry.effect if len(effects) == 1 and not row.entry.verdict.is_divergence else None
    return f"{verdict} {effect}" if effect else verdict


def _style(row: Row) -> str:
    if row.is_culprit:
        return "bold red"
    return "yellow" if row.entry.verdict is Verdict.UNRESOLVED else ""


def _label(row: Row, parent_path: str, width: int) -> str:
    """What the row is called, relative to the component above it."""
    entry = row.entry
    if row.is_rest:
        return f"... {len(row.twins)} more"
    paths = [_relative(twin.path, parent_path) for twin in row.twins]
    places = list(dict.fromkeys(path for path in paths if path))
    times = f" x{len(row.twins)}" if len(row.twins) > 1 else ""
    if entry.kind == "run":
        return fit_operators(entry.operator or "", width - len(times)) + times
    if entry.operator is not None:
        # Usually of the module above it; if not, the module between them was not measured.
        return f"{entry.operator}{times}" + (f" ({_span(places)})" if places else "")
    name = f"{_relative(entry.path, parent_path)} {entry.module_class.rpartition('.')[2]}".strip()
    return f"{name}{times}" + (f" ({_span(places)})" if times and places else "")


def _relative(path: str, parent_path: str) -> str:
    return "" if path == parent_path else path.removeprefix(f"{parent_path}.") if parent_path else path


def _span(paths: Sequence[str]) -> str:
    """``layer.0..5`` if the last parts count up by one, else ``query, key, value`` or ``first, ..., last``."""
    if len(paths) == 1:
        return paths[0]
    stem, dot, first = paths[0].rpartition(".")
    tails = [path.removeprefix(stem + dot) for path in paths[1:]]
    if first.isdecimal() and tails == [str(int(first) + step) for step in range(1, len(paths))]:
        return f"{paths[0]}..{tails[-1]}"
    return ", ".join([paths[0], *tails] if len(paths) <= 4 else [paths[0], "...", tails[-1]])


def _cost(report: "Report", width: int, most: int) -> list[Text]:
    cost = report.cost
    steps = ", ".join(f"{step} {seconds:.1f}" for step, seconds in cost.seconds.items() if seconds >= 0.05)
    builds = count(cost.builds, "TVM build")
    if cost.further_builds:
        builds += f" to find, {cost.further_builds} to prove and explain"
    line = f"{builds}, {sum(cost.seconds.values()):.1f} s" + (f" ({steps})" if steps else "")
    environment = ", ".join(f"{name} {value}" for name, value in report.environment.items())
    return [Text(text, style="dim") for text in (*wrap(line, width, most), *wrap(environment, width, most)) if text]
