"""Which stage of TVM's compilation makes a culprit deviate: it is built with less and less done to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bisect_tvm.explain.bench import Bench, Variant
from bisect_tvm.explain.kinds import Kind, off
from bisect_tvm.lowering.build import is_unoptimised
from bisect_tvm.lowering.evidence import relax_operators
from bisect_tvm.lowering.importer import reason_of
from bisect_tvm.lowering.pipeline import Pipeline, Snapshot
from bisect_tvm.numerics.judge import Judgement
from bisect_tvm.report.report import Stage

SHORTEST = Pipeline()
"""TVM's default: it lowers each operator by itself and fuses nothing; nothing shorter can be compiled."""


@dataclass(frozen=True)
class Located:
    """The stage, and how it was found."""

    stage: Stage
    where: str
    culprit_pass: str = ""


def stages(kinds: Sequence[Kind], bench: Bench) -> dict[str, Located]:
    """Find the stage for each kind of culprit, by its name: all in one build, or none where the search has shown it already."""
    builder = bench.workshop.builder
    if builder.pipeline.is_default and is_unoptimised(builder.target):
        known = "as it is built, which is with TVM's shortest pipeline at opt-level 0"
        return {kind.name: _importer(bench.unchanged(kind), known, kind.worst.judgement) for kind in kinds}
    variants = {kind.name: bench.unchanged(kind) for kind in kinds}
    passes = {kind.name: _snapshots(bench.unchanged(kind), bench) for kind in kinds}
    for kind in kinds:
        for number, snapshot in enumerate(_known(passes[kind.name])):
            variants[_after(kind, number)] = _with(bench.unchanged(kind), snapshot)
    measured = bench.measure(variants, pipeline=SHORTEST, at_level_0=True)
    return {kind.name: _located(kind, passes[kind.name], measured, bench) for kind in kinds}


def _located(kind: Kind, passes: Sequence[Snapshot] | str, measured: Mapping[str, Judgement], bench: Bench) -> Located:
    """Read off the first step after which the culprit deviates."""
    before = measured[kind.name]
    if before.unresolved:
        return Located("unknown", f"it could not be built with TVM's shortest pipeline at opt-level 0: {before.reason}")
    if before.diverges:
        return _importer(bench.unchanged(kind), "also with TVM's shortest pipeline at opt-level 0", before)
    if isinstance(passes, str):
        return Located("unknown", f"it agrees with TVM's shortest pipeline at opt-level 0; the passes cannot be watched: {passes}")
    for number, snapshot in enumerate(passes):
        after = measured[_after(kind, number)]
        if after.diverges:
            place = f"pass {number + 1} of {len(passes)} that changed it"
            where = f"it is {off(before)} before the pass {snapshot.after} ({place}) and {off(after)} after it"
            return Located("pass", where, snapshot.after)
        before = after
    if is_unoptimised(bench.workshop.builder.target):
        return Located("unknown", f"it agrees after each of the {len(passes)} passes that changed it; what follows plans memory")
    target = bench.workshop.builder.target
    where = f"with the same passes it is {off(before)} at opt-level 0 and {off(kind.worst.judgement)} for {target}"
    return Located("code generation", where)


def _importer(variant: Variant, how: str, judgement: Judgement) -> Located:
    became = ", ".join(relax_operators(variant.imported)) if not isinstance(variant.imported, str) else ""
    makes = f"the importer made {became} of it; " if became else ""
    return Located("importer or lowering", f"{makes}it is {off(judgement)} {how}")


def _snapshots(variant: Variant, bench: Bench) -> tuple[Snapshot, ...] | str:
    """What each of the user's passes makes of the culprit; or why that cannot be known."""
    builder = bench.workshop.builder
    if builder.pipeline.is_default or isinstance(variant.imported, str):
        return ()
    try:
        return builder.pipeline.snapshots(variant.imported.module, builder.target)
    except Exception as error:  # whatever a user's pass raises
        return reason_of(error)


def _known(passes: Sequence[Snapshot] | str) -> Sequence[Snapshot]:
    return () if isinstance(passes, str) else passes


def _after(kind: Kind, number: int) -> str:
    return f"{kind.name} after pass {number}"


def _with(variant: Variant, snapshot: Snapshot) -> Variant:
    if isinstance(variant.imported, str):
        return variant
    return replace(variant, imported=replace(variant.imported, module=snapshot.module))
