"""A report on one screen: the answer in a sentence, then the evidence.

Every number and name comes from the `Report`. Names come from the user's model, so they are handed to rich as `Text`,
which is never read as markup, and characters that would move the cursor are replaced.
"""

import io
import math
import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from bisect_tvm.numerics.verdict import Element, Scalar, Verdict
from bisect_tvm.report.outline import Row, badness, outline

# report.py imports this module, so its types are known here to the type checker only.
if TYPE_CHECKING:
    from bisect_tvm.report.report import Entry, Report

HEIGHT = 40
"""Lines that a rendered report never exceeds."""

_NARROWEST = 80  # Below this the columns of numbers leave no room for names.
_MORE = "... {} more (see the JSON)"
_CULPRITS_SHOWN = 8
_REASONS_SHOWN = 3
_SOURCES_SHOWN = 3


def render_text(report: "Report", width: int = 100, colour: bool = False) -> str:
    """The report in at most `HEIGHT` lines of `width` (at least 80) columns; with `colour`, in ANSI colours."""
    width = max(width, _NARROWEST)
    page = _Page(width, colour)
    head = page.lines(_summary(report, width))
    tail: list[str] = []
    for section in (_culprits(report, width), _unresolved(report, width), _cost(report, width)):
        if section:
            tail += ["", *page.lines(section)]
    room = HEIGHT - len(head) - len(tail) - 2  # A blank line and the table's header.
    return "\n".join([*head, "", *page.lines([_tree(report, room, width)]), *tail])


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


def _summary(report: "Report", width: int) -> list[Text]:
    root = report.root
    lines = [Text(line, style="bold") for line in _wrap(report.summary, width, most=4)]
    numbers = f"float32 {_number(root.deviation32)}, float64 {_number(root.deviation64)}"
    lines.append(Text(f"{report.verdict}; deviation of the whole model: {numbers}."))
    return lines


def _tree(report: "Report", room: int, width: int) -> Table:
    shown = outline(report, max(room, 2))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="underline")
    table.add_column("component", width=width - 54, no_wrap=True)
    for name in ("float32", "float64", "excess64"):
        table.add_column(name, justify="right", width=8, no_wrap=True)
    table.add_column("verdict", width=12, no_wrap=True)
    table.add_column("", width=3, no_wrap=True)
    paths = {entry.id: entry.path for entry in report.tree}
    # Deep trees are indented less, so that names stay readable.
    indent = "  " if max((row.depth for row in shown.rows), default=0) <= 8 else " "
    for row in shown.rows:
        label = _label(row, paths.get(row.entry.parent or "", ""))
        worst = row.entry
        verdicts = dict.fromkeys(entry.verdict for entry in row.twins)
        table.add_row(
            Text(_fit(indent * row.depth + label, width - 54)),
            _number(_largest(entry.deviation32 for entry in row.twins) if row.is_rest else worst.deviation32),
            _number(_largest(entry.deviation64 for entry in row.twins) if row.is_rest else worst.deviation64),
            _excess(_largest(entry.excess64 for entry in row.twins) if row.is_rest else worst.excess64),
            str(worst.verdict) if len(verdicts) == 1 else "mixed",
            "<--" if row.is_culprit else "",
            style=_style(row),
        )
    if shown.hidden:
        table.add_row(Text(_MORE.format(shown.hidden)))
    return table


def _style(row: Row) -> str:
    if row.is_culprit:
        return "bold red"
    return "yellow" if row.entry.verdict is Verdict.UNRESOLVED else ""


def _label(row: Row, parent_path: str) -> str:
    """What the row is called, relative to the component above it."""
    entry = row.entry
    if row.is_rest:
        return f"... {len(row.twins)} more"
    paths = [_relative(twin.path, parent_path) for twin in row.twins]
    places = list(dict.fromkeys(path for path in paths if path))
    count = f" x{len(row.twins)}" if len(row.twins) > 1 else ""
    if entry.operator is not None:
        # Usually of the module above it; if not, the module between them was not measured.
        return f"{entry.operator}{count}" + (f" ({_span(places)})" if places else "")
    name = f"{_relative(entry.path, parent_path)} {entry.module_class.rpartition('.')[2]}".strip()
    return f"{name}{count}" + (f" ({_span(places)})" if count and places else "")


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


def _culprits(report: "Report", width: int) -> list[RenderableType]:
    culprits = report.culprits
    if not culprits:
        return []
    # All of them in execution order if they fit, else the worst ones.
    chosen = culprits
    if len(culprits) > _CULPRITS_SHOWN:
        worst = {entry.id for entry in sorted(culprits, key=badness, reverse=True)[:_CULPRITS_SHOWN]}
        chosen = tuple(entry for entry in culprits if entry.id in worst)
    cells = [(_fit(at, 18), actual, expected) for at, actual, expected in (_element(entry.worst) for entry in chosen)]
    widths = [max(len(cell) for cell in column) for column in zip(("worst at", "TVM", "reference"), *cells, strict=True)]
    left = width - sum(widths) - 4 * 2
    operator_width = min(max(cell_len(entry.operator or "operator") for entry in chosen), left // 2)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="underline")
    header = "culprit" if len(culprits) == 1 else f"{len(culprits)} culprits"
    table.add_column(header, width=left - operator_width, no_wrap=True)
    table.add_column("operator", width=operator_width, no_wrap=True)
    for name, column_width in zip(("worst at", "TVM", "reference"), widths, strict=True):
        table.add_column(name, width=column_width, no_wrap=True)
    for entry, (at, actual, expected) in zip(chosen, cells, strict=True):
        path = Text(_fit_end(entry.path or "(the model)", left - operator_width), style="bold red")
        table.add_row(path, Text(_fit(entry.operator or "-", operator_width)), Text(at), actual, expected)
    lines: list[RenderableType] = [table]
    if len(culprits) > len(chosen):
        lines.append(Text(_MORE.format(len(culprits) - len(chosen))))
    return [*lines, *_sources(chosen, width)]


def _sources(culprits: Iterable["Entry"], width: int) -> list[Text]:
    """Where the user's code ran the culprits: one line if it is the same for all."""
    by_source: dict[str, list[Entry]] = {}
    for entry in culprits:
        if entry.source is not None:
            by_source.setdefault(entry.source, []).append(entry)
    if len(by_source) == 1:
        return [Text(_fit_end(f"  source: {source}", width)) for source in by_source]
    lines = []
    for source, entries in list(by_source.items())[:_SOURCES_SHOWN]:
        times = f" (and {len(entries) - 1} more)" if len(entries) > 1 else ""
        half = width // 2
        where = _fit_end(f"  {entries[0].path}{times}:", half - 1)
        lines.append(Text(f"{where} {_fit_end(source, half)}"))
    if len(by_source) > _SOURCES_SHOWN:
        lines.append(Text(f"  {_MORE.format(len(by_source) - _SOURCES_SHOWN)}"))
    return lines


def _element(element: Element | None) -> tuple[str, str, str]:
    if element is None:
        return "-", "-", "-"
    index = ", ".join(str(position) for position in element.index)
    at = f"[{index}]" if element.output == 0 else f"{element.output}: [{index}]"
    actual, expected = _value(element.actual, 7), _value(element.expected, 7)
    if actual == expected and element.actual != element.expected:
        return at, _value(element.actual, 17), _value(element.expected, 17)
    return at, actual, expected


def _value(value: Scalar, digits: int) -> str:
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def _unresolved(report: "Report", width: int) -> list[Text]:
    unresolved = report.unresolved
    if not unresolved:
        return []

    def group(entry: "Entry") -> tuple[str, str]:
        return entry.operator or "", entry.reason

    groups = [tuple(twins) for _, twins in groupby(sorted(unresolved, key=group), key=group)]
    groups.sort(key=len, reverse=True)
    lines = [Text(f"{len(unresolved)} unresolved", style="underline")]
    for twins in groups[:_REASONS_SHOWN]:
        first = twins[0]
        times = f" x{len(twins)}" if len(twins) > 1 else ""
        where = f"{first.operator or first.module_class}{times} at {first.path or 'the top level'}"
        where += ", ..." if len(twins) > 1 else ""
        most = 2 if len(groups) <= 2 else 1
        lines += [Text(line, style="yellow") for line in _wrap(f"{where}: {first.reason}", width, most)]
    if len(groups) > _REASONS_SHOWN:
        lines.append(Text(_MORE.format(sum(len(twins) for twins in groups[_REASONS_SHOWN:]))))
    return lines


def _cost(report: "Report", width: int) -> list[Text]:
    cost = report.cost
    steps = ", ".join(f"{step} {seconds:.1f}" for step, seconds in cost.seconds.items() if seconds >= 0.05)
    builds = "1 TVM build" if cost.builds == 1 else f"{cost.builds} TVM builds"
    line = f"{builds}, {sum(cost.seconds.values()):.1f} s" + (f" ({steps})" if steps else "")
    environment = ", ".join(f"{name} {value}" for name, value in report.environment.items())
    return [Text(text, style="dim") for text in (*_wrap(line, width, most=3), *_wrap(environment, width, most=3)) if text]


def _largest(numbers: Iterable[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return max(known, key=lambda number: math.inf if math.isnan(number) else number, default=None)


def _number(number: float | None) -> str:
    """Deviations: two digits are all that is known of them."""
    if number is None:
        return "-"
    return "0" if number == 0 else f"{number:.1e}" if math.isfinite(number) else str(number)


def _excess(number: float | None) -> str:
    return f"{number:.2g}" if number is not None and 0.01 <= number < 99.5 else _number(number)


def _printable(text: str) -> str:
    """On one line, without control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))


def _fit(text: str, width: int) -> str:
    """`text` on one line, cut at its end if it is wider than `width`."""
    margin = len(text) - len(text.lstrip(" "))
    text = " " * margin + _printable(text)
    return text if cell_len(text) <= width else set_cell_size(text, width - 3).rstrip() + "..."


def _fit_end(text: str, width: int) -> str:
    """The same, cut at its beginning: the end of a path says more."""
    margin = len(text) - len(text.lstrip(" "))
    text = " " * margin + _printable(text)
    if cell_len(text) <= width:
        return text
    return " " * margin + "..." + set_cell_size(text[::-1], width - 3 - margin).rstrip()[::-1]


def _wrap(text: str, width: int, most: int) -> list[str]:
    return textwrap.wrap(_printable(text), width, max_lines=most, placeholder=" ...") or [""]
