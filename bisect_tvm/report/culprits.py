"""The culprits in a table: where each is, what TVM computed there and what it should have, and the line of source that ran it."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from bisect_tvm.numerics.verdict import Element
from bisect_tvm.report.outline import badness
from bisect_tvm.report.typeset import MORE, fit, fit_end, fit_operators, scalar

# report.py imports text.py, which imports this module, so its types are known here to the type checker only.
if TYPE_CHECKING:
    from bisect_tvm.report.report import Entry, Report


def culprit_lines(report: "Report", width: int, most: int, sources: int) -> list[RenderableType]:
    """A table of at most `most` culprits, and at most `sources` lines of source."""
    culprits = report.culprits
    if not culprits:
        return []
    # All of them in execution order if they fit, else the worst ones.
    chosen = culprits
    if len(culprits) > most:
        worst = {entry.id for entry in sorted(culprits, key=badness, reverse=True)[:most]}
        chosen = tuple(entry for entry in culprits if entry.id in worst)
    header = "culprit" if len(culprits) == 1 else f"{len(culprits)} culprits"
    lines: list[RenderableType] = [_table(chosen, header, report.environment.get("samples"), width)]
    if len(culprits) > len(chosen):
        lines.append(Text(MORE.format(len(culprits) - len(chosen))))
    return [*lines, *_sources(chosen, width, sources)]


def _table(chosen: Sequence["Entry"], header: str, samples: str | None, width: int) -> Table:
    names = ["worst at", "TVM", "reference"]
    cells = []
    for entry in chosen:
        at, actual, expected = _element(entry.worst)
        cells.append([fit(at, 18), actual, expected])
    if samples is not None:
        names.insert(0, "on sample")
        cells = [[fit(_samples(entry.samples, samples), 12), *row] for entry, row in zip(chosen, cells, strict=True)]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    left = width - sum(widths) - 2 * (len(names) + 1)
    longest_path = max(cell_len(entry.path or "(the model)") for entry in chosen)
    # A run of operators has a long name and a short path, or none.
    operator_width = max(left // 2, left - max(longest_path, len(header)))
    operator_width = min(max(cell_len(entry.operator or "operator") for entry in chosen), operator_width)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="underline")
    table.add_column(header, width=left - operator_width, no_wrap=True)
    table.add_column("operator", width=operator_width, no_wrap=True)
    for name, column_width in zip(names, widths, strict=True):
        table.add_column(name, width=column_width, no_wrap=True)
    for entry, row in zip(chosen, cells, strict=True):
        path = Text(fit_end(entry.path or "(the model)", left - operator_width), style="bold red")
        table.add_row(path, Text(fit_operators(entry.operator or "-", operator_width)), *map(Text, row))
    return table


def _samples(shown: Sequence[int], count: str) -> str:
    """Those on which the culprit shows, counted from 0."""
    if not shown:
        return "-"
    return "all" if str(len(shown)) == count else ", ".join(map(str, shown))


def _sources(culprits: Iterable["Entry"], width: int, most: int) -> list[Text]:
    """Where the user's code ran the culprits: one line if it is the same for all."""
    by_source: dict[str, list[Entry]] = {}
    for entry in culprits:
        if entry.source is not None:
            by_source.setdefault(entry.source, []).append(entry)
    if len(by_source) == 1:
        return [Text(fit_end(f"  source: {source}", width)) for source in by_source]
    lines = []
    for source, entries in list(by_source.items())[:most]:
        times = f" (and {len(entries) - 1} more)" if len(entries) > 1 else ""
        half = width // 2
        where = fit_end(f"  {entries[0].path}{times}:", half - 1)
        lines.append(Text(f"{where} {fit_end(source, half)}"))
    if len(by_source) > most:
        lines.append(Text(f"  {MORE.format(len(by_source) - most)}"))
    return lines


def _element(element: Element | None) -> tuple[str, str, str]:
    if element is None:
        return "-", "-", "-"
    index = ", ".join(str(position) for position in element.index)
    at = f"[{index}]" if element.output == 0 else f"{element.output}: [{index}]"
    actual, expected = scalar(element.actual, 7), scalar(element.expected, 7)
    if actual == expected and element.actual != element.expected:
        return at, scalar(element.actual, 17), scalar(element.expected, 17)
    return at, actual, expected
