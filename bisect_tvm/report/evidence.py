"""What stands below the tables: the proof, where in TVM the culprits go wrong, what helps, and what could not be judged."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from bisect_tvm.report.typeset import MORE, both, count, fit, grouped, largest, number, wrap

# report.py imports text.py, which imports this module, so its types are known here to the type checker only.
if TYPE_CHECKING:
    from bisect_tvm.report.report import Entry, Explanation, Kept, Proof, Report, Workaround

_MARGIN = "  "


def proof_lines(report: "Report", width: int, most: int) -> list[Text]:
    """What becomes of the whole model without the culprits, and with each of at most `most` kinds of them left in."""
    proof = report.proof
    if proof is None:
        return []
    lines = [Text(line) for line in wrap(f"proof: {_proved(proof, len(report.culprits))}", width, 2, _MARGIN)]
    if len(proof.kept) < 2:
        return lines  # all culprits are of one kind: the model with that left in is the model as it is
    by_id = {entry.id: entry for entry in report.tree}
    for kept in proof.kept[:most]:
        names = grouped([by_id[id] for id in kept.culprit_ids if id in by_id], 3)
        lines.append(Text(fit(f"{_MARGIN}with {names} left in, {_left_in(kept)}", width)))
    if len(proof.kept) > most:
        lines.append(Text(_MARGIN + MORE.format(len(proof.kept) - most)))
    return lines


def _proved(proof: "Proof", culprits: int) -> str:
    replaced = "the culprit" if culprits == 1 else f"the {culprits} culprits"
    replaced = f"with {replaced} replaced by PyTorch's values the model"
    numbers = both(proof.deviation32, proof.deviation64)
    if proof.sufficient is None:
        return f"none: {replaced} could not be judged: {proof.reason}"
    if not numbers:  # nothing is left to run, or to compare by size
        return f"{replaced} {'agrees: sufficient' if proof.sufficient else 'still deviates: not sufficient'}: {proof.reason}"
    if proof.sufficient:
        return f"{replaced} agrees to {numbers}: sufficient"
    return f"{replaced} is still off by {numbers}: not sufficient, what remains is unexplained"


def _left_in(kept: "Kept") -> str:
    if kept.necessary is None:
        return "it could not be judged"
    far = largest((kept.deviation32, kept.deviation64))
    if kept.necessary:
        return f"it is off by {number(far)}: necessary" if far is not None else "it deviates: necessary"
    return f"it agrees{f' to {number(far)}' if far is not None else ''}: not seen in the whole model"


def explanation_lines(report: "Report", width: int, most: int, room: int) -> list[Text]:
    """Stage and first workaround of at most `most` kinds of culprits, with its code as far as `room` lines for code reach."""
    by_id = {entry.id: entry for entry in report.tree}
    known = [
        each for each in report.explanations if each.workarounds or each.tried or each.stage != "unknown" or not report.unfinished
    ]
    several = len(known) > 1
    lines: list[Text] = []
    for explanation in known[:most]:
        entries = [by_id[id] for id in explanation.culprit_ids if id in by_id]
        name = f"{grouped(entries, 2)}: " if several and entries else ""
        lines += [Text(line) for line in wrap(f"{name}{_stage(explanation)}", width, 2, _MARGIN)]
        helped = explanation.workarounds
        if not helped:
            lines += [Text(line) for line in wrap(_tried(explanation), width, 1)]
            continue
        code = _code(helped[0], width)
        fits = code is not None and len(code) <= room
        told = _workaround(helped[0]) + ("" if fits else " (code in the JSON)")
        lines += [Text(line, style="green") for line in wrap(told, width, 2, _MARGIN)]
        if code is not None and fits:
            lines += code
            room -= len(code)
    if len(known) > most:
        lines.append(Text(MORE.format(len(known) - most)))
    return lines


def _stage(explanation: "Explanation") -> str:
    told = f"stage: {explanation.stage}"
    if explanation.converters:
        told += f"; converted by {_converter(explanation.converters[0])}"
        if len(explanation.converters) > 1:
            told += f" and {count(len(explanation.converters) - 1, 'more function')}"
    return f"{told}; {explanation.where.rstrip('.')}" if explanation.where else told


def _converter(told: str) -> str:
    """The function and where it stands, of ``operator: file:line (function)``; without the folders before the file."""
    place, _, function = told.partition(": ")[2].partition(" (")
    place = place.replace("\\", "/").rpartition("/")[2]
    return f"{function.removesuffix(')')} at {place}" if function else place or told


def _workaround(workaround: "Workaround") -> str:
    numbers = both(workaround.deviation32, workaround.deviation64)
    outcome = f": {'the model' if workaround.whole else 'the culprit alone'} then deviates by {numbers}" if numbers else ""
    return f"workaround (checked): {workaround.what.rstrip('.')}{outcome}"


def _tried(explanation: "Explanation") -> str:
    tried = ", ".join(each.rstrip(".") for each in explanation.tried)
    return f"no workaround found; tried: {tried}" if tried else "no workaround was tried"


def _code(workaround: "Workaround", width: int) -> list[Text] | None:
    """Its lines, indented; None if one of them is too long, for code that is cut cannot be pasted."""
    lines = [f"{_MARGIN * 2}{line}".rstrip() for line in workaround.code.expandtabs(4).strip("\n").splitlines()]
    safe = all(line.isprintable() and cell_len(line) <= width for line in lines)
    return [Text(line, style="cyan") for line in lines] if safe else None


def unresolved_lines(report: "Report", width: int, most: int) -> list[Text]:
    """What could not be judged and why, at most `most` reasons."""
    unresolved = report.unresolved
    if not unresolved:
        return []

    def group(entry: "Entry") -> tuple[str, str]:
        return entry.operator or "", entry.reason

    groups = [tuple(twins) for _, twins in groupby(sorted(unresolved, key=group), key=group)]
    groups.sort(key=len, reverse=True)
    lines = [Text(f"{len(unresolved)} unresolved", style="underline")]
    for twins in groups[:most]:
        lines += [Text(line, style="yellow") for line in wrap(_unjudged(twins), width, 2 if len(groups) <= 2 < most else 1)]
    if len(groups) > most:
        lines.append(Text(MORE.format(sum(len(twins) for twins in groups[most:]))))
    return lines


def _unjudged(twins: Sequence["Entry"]) -> str:
    first = twins[0]
    times = f" x{len(twins)}" if len(twins) > 1 else ""
    where = f"{first.operator or first.module_class}{times} at {first.path or 'the top level'}"
    return f"{where}{', ...' if len(twins) > 1 else ''}: {first.reason}"
