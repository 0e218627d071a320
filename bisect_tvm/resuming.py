"""Going on from a saved report: what was found is not looked for again, if the question is the same."""

import hashlib
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from bisect_tvm.assemble import judgement_of
from bisect_tvm.errors import CaptureError, InputError
from bisect_tvm.evidence import as_array
from bisect_tvm.model.capture import Program
from bisect_tvm.numerics.judge import Judgement
from bisect_tvm.numerics.verdict import Verdict
from bisect_tvm.report.report import Kept, Proof, Report


def fingerprint(program: Program, options: Mapping[str, str]) -> str:
    """A digest of the graph, all parameters, all samples, and the options that a verdict depends on."""
    digest = hashlib.sha256(str(program.exported.graph).encode())
    for name, tensor in program.bindings.items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} {_checksum(tensor)}\n".encode())
    for sample in program.samples[1:]:
        digest.update(" ".join(str(_checksum(tensor)) for tensor in sample.values()).encode())
    digest.update(repr(sorted(options.items())).encode())
    return digest.hexdigest()


def _checksum(tensor: torch.Tensor) -> int:
    try:
        return zlib.crc32(as_array(tensor).reshape(-1).view(np.uint8).data)
    except CaptureError:  # sparse: it has no memory of its own
        return zlib.crc32(str(tensor).encode())


def report_before(resume: Report | str | Path | None, now: str) -> Report | None:
    """The report to go on from.

    Args:
        resume: the report or its file.
        now: the fingerprint of the present question.

    Raises:
        InputError: it is the report of another question.
        ReportError: the file is no report.
    """
    if resume is None:
        return None
    if not isinstance(resume, Report | str | Path):
        raise InputError(f"`resume` must be a Report or the path of a saved one, but it is of type {type(resume).__name__}.")
    report = resume if isinstance(resume, Report) else Report.load(resume)
    if report.fingerprint != now:
        what = "is one of another model, other inputs or other options" if report.fingerprint else "does not say what it is of"
        raise InputError(f"The report to resume {what}; leave `resume` out, or pass what it was made with.")
    return report


def known_answers(report: Report | None) -> dict[str, Judgement]:
    """What need not be asked again, by component."""
    entries = report.tree if report is not None else ()
    found = {entry.id: judgement_of(entry) for entry in entries}
    return {id: judgement for id, judgement in found.items() if not judgement.unresolved}


def known_swaps(report: Report | None) -> dict[frozenset[str], Judgement]:
    """What is known of the whole model with components replaced by the reference, by the ids of what was replaced."""
    proof = report.proof if report is not None else None
    if report is None or proof is None:
        return {}
    every = frozenset(report.culprit_ids)
    found = {every - frozenset(kept.culprit_ids): _swapped(kept.necessary, kept) for kept in proof.kept}
    found[every] = _swapped(None if proof.sufficient is None else not proof.sufficient, proof)
    return {replaced: judgement for replaced, judgement in found.items() if judgement is not None}


def _swapped(diverges: bool | None, known: Proof | Kept) -> Judgement | None:
    """As much of the judgement as the report keeps."""
    if diverges is None:
        return None
    verdict = Verdict.FORMULA if diverges else Verdict.FAITHFUL
    reason, excess64 = (known.reason, known.excess64) if isinstance(known, Proof) else ("", None)
    return Judgement(verdict, (verdict,), reason, known.deviation32, known.deviation64, excess64=excess64)
