"""How numbers and names are written, and how they are made to fit a line."""

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from bisect_tvm.numerics.verdict import Scalar

# report.py imports what imports this module, so its types are known here to the type checker only.
if TYPE_CHECKING:
    from bisect_tvm.report.report import Entry

MORE = "... {} more (see the JSON)"
JOINT = " + "
"""Between the operators of a run."""


def number(value: float | None) -> str:
    """Deviations: two digits are all that is known of them."""
    if value is None:
        return "-"
    return "0" if value == 0 else f"{value:.1e}" if math.isfinite(value) else str(value)


def excess(value: float | None) -> str:
    """Shorter than a deviation, where it is near 1."""
    return f"{value:.2g}" if value is not None and 0.01 <= value < 99.5 else number(value)


def scalar(value: Scalar, digits: int) -> str:
    """One element of a tensor."""
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def both(deviation32: float | None, deviation64: float | None) -> str:
    """A deviation in the two precisions, as far as they are known."""
    known = (
        f"{number(value)} ({name})" for value, name in ((deviation64, "float64"), (deviation32, "float32")) if value is not None
    )
    return ", ".join(known)


def largest(numbers: Iterable[float | None]) -> float | None:
    """None counts as nothing, NaN as most."""
    known = [value for value in numbers if value is not None]
    return max(known, key=lambda value: math.inf if math.isnan(value) else value, default=None)


def count(many: int, noun: str) -> str:
    """``1 culprit``, ``2 culprits``."""
    return f"{many} {noun}" if many == 1 else f"{many} {noun}s"


def what(entry: "Entry") -> str:
    """The operator, or the class of a module."""
    return entry.operator or entry.module_class.rpartition(".")[2] or "the model"


def grouped(entries: Sequence["Entry"], most: int | None = None) -> str:
    """``aten.gelu.default (6), aten.elu.default``."""
    counts = Counter(map(what, entries)).most_common()
    shown = [f"{name} ({times})" if times > 1 else name for name, times in counts[:most]]
    return ", ".join(shown) + (f" and {len(counts) - len(shown)} more" if len(counts) > len(shown) else "")


def fit_operators(names: str, width: int) -> str:
    """The names of one operator or of a run, as much of them as there is room for."""
    parts = names.split(JOINT)
    short = [part.removeprefix("aten.") for part in parts]
    shorter = [part.partition(".")[0] for part in short]
    ends = [shorter[0], "...", f"{shorter[-1]} ({len(parts)} operators)"]
    choices = [names] if len(parts) == 1 else [names, JOINT.join(short), JOINT.join(shorter), JOINT.join(ends)]
    return fit(next((choice for choice in choices if cell_len(printable(choice)) <= width), choices[-1]), width)


def printable(text: str) -> str:
    """On one line, without control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))


def fit(text: str, width: int) -> str:
    """`text` on one line, cut at its end if it is wider than `width`."""
    margin = len(text) - len(text.lstrip(" "))
    text = " " * margin + printable(text)
    return text if cell_len(text) <= width else set_cell_size(text, width - 3).rstrip() + "..."


def fit_end(text: str, width: int) -> str:
    """The same, cut at its beginning: the end of a path says more."""
    margin = len(text) - len(text.lstrip(" "))
    text = " " * margin + printable(text)
    if cell_len(text) <= width:
        return text
    return " " * margin + "..." + set_cell_size(text[::-1], width - 3 - margin).rstrip()[::-1]


def wrap(text: str, width: int, most: int, indent: str = "") -> list[str]:
    """`text` on at most so many lines; `indent` stands before all but the first."""
    lines = textwrap.wrap(printable(text), width, max_lines=most, placeholder=" ...", subsequent_indent=indent)
    return lines or [""]
