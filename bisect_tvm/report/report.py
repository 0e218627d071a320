"""The answer of `locate`: plain, frozen data that is printed, saved, loaded and compared.

`Report` holds one `Entry` for each component that was measured. Everything else (culprits, unresolved components, the
root) are entries too, so that each number is stored once.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bisect_tvm.numerics.verdict import Element, Verdict
from bisect_tvm.report import storage, text

Effect = Literal["introduces", "inherits", "amplifies", "attenuates"]
"""It deviates by itself, or passes a deviation on: as it is, more than twice as large, or less than half as large."""

Stage = Literal["importer or lowering", "pass", "code generation", "unknown"]
"""Of TVM's compilation. The first is where also the shortest pipeline at opt-level 0 diverges."""


INTERRUPTED = "interrupted"
"""Begins the reason why a search ended early, if it was Ctrl-C."""


@dataclass(frozen=True)
class Entry:
    """One measured component: the model, one call of a submodule, one operator, or a run of operators that fail together.

    Deviations are isolated: the component read the reference's values at its own boundary; `cumulative32` and `cumulative64` are
    those of its outputs inside the whole model, where it reads what TVM computed before it. Deviations are the largest
    absolute error over the largest absolute expected value; `excess` is the largest error over the noise floor,
    element by element (1 is perfect). Both are None where nothing was computed, and the verdict then is UNRESOLVED.
    """

    id: str
    """Unique in the report: the path, then ``/`` and the graph node for an operator; for a run, those of all its operators."""
    parent: str | None
    """`id` of the smallest measured component that contains it; None for the model."""
    depth: int
    """0 for the model, 1 for what it contains, and so on."""
    kind: Literal["model", "module", "operator", "run"]
    path: str
    """Path of the submodule (for an operator: of the module whose forward ran it), ``""`` for the model itself."""
    operator: str | None
    """Such as ``aten.gelu.default``; for a run all of them, ``a + b``; None for modules and the model."""
    module_class: str
    """Class of the submodule at `path`, such as ``torch.nn.modules.activation.GELU``."""
    source: str | None
    """The user's file and line that ran it, as ``file:line``, if export recorded one."""
    verdict: Verdict
    reason: str
    """One sentence with the numbers that led to the verdict (UNRESOLVED: why it could not be judged)."""
    deviation32: float | None
    """In the model's own precision (float32 unless the model is float16 or bfloat16), as the user builds it."""
    deviation64: float | None
    """In float64, after widening."""
    excess32: float | None
    excess64: float | None
    worst: Element | None
    """The element that deviates most, None if all agree to the last bit or nothing was computed."""
    operators: int
    """How many operators the component holds (1 for an operator)."""
    stated: tuple[Verdict, ...]
    """Every verdict that applies, the leading one first."""
    undecided: int = 0
    """Elements that were not judged: rounding alone flips their value (a comparison, argmax, round)."""
    cumulative32: float | None = None
    cumulative64: float | None = None
    effect: Effect | None = None
    """What the component does to the deviation inside the whole model; None where none reaches it, or nothing was measured."""
    parts: tuple[str, ...] = ()
    """Of operators that fail only together: the `id` of each, in execution order. Empty for whatever else."""
    sample: int = 0
    """Which sample of `inputs` the numbers are of, counted from 0: the one that deviates most."""
    samples: tuple[int, ...] = ()
    """The samples on which the component diverges."""
    conclusive: bool = True
    """False if float64 could be judged to the model's own precision only."""
    doubtful: bool = False
    """It diverges at first sight; a closer look, which may have cleared it, was not needed or not taken."""
    strictest: float = 0.0
    """Largest excess of either precision, with nothing excused in elements that are tiny beside the largest."""


@dataclass(frozen=True)
class Kept:
    """The whole model with all culprits replaced by the reference but those of one kind."""

    culprit_ids: tuple[str, ...]
    """The culprits that were left in."""
    deviation32: float | None
    deviation64: float | None
    necessary: bool | None
    """True if the model still deviates: they are to blame, too. None if that could not be computed."""


@dataclass(frozen=True)
class Proof:
    """The whole model, built with the culprits' outputs replaced by reference values."""

    sufficient: bool | None
    """True if the deviation then falls to its noise floor: the culprits explain all of it. None if it could not be computed."""
    reason: str
    """One sentence with the numbers, or why it could not be computed."""
    deviation32: float | None
    deviation64: float | None
    excess64: float | None
    kept: tuple[Kept, ...]
    """The same with one kind of culprit left in at a time."""


@dataclass(frozen=True)
class Workaround:
    """Something that the user can do about a kind of culprit, which was tried and seen to cure it."""

    what: str
    """In a few words."""
    code: str
    """Python, to be pasted."""
    deviation32: float | None
    """Of the whole model with it (of the culprit where `whole` is False), in the model's own precision."""
    deviation64: float | None
    whole: bool
    """The numbers are of the whole model, all kinds of culprits cured; else of the culprit alone."""


@dataclass(frozen=True)
class Explanation:
    """Where in TVM a kind of culprit goes wrong, with the evidence, and what helps."""

    culprit_ids: tuple[str, ...]
    """Culprits that are the same but for their place."""
    stage: Stage
    """Of TVM's compilation; see `where`."""
    where: str
    """One sentence: how the stage was found, and the pass if it is one."""
    aten: str
    """The calls in PyTorch's graph."""
    relax: str
    """What TVM's importer made of them."""
    tir: str
    """The kernels that they were lowered to."""
    converters: tuple[str, ...]
    """The functions that converted them, as ``operator: file:line (function)``."""
    workarounds: tuple[Workaround, ...]
    """Only what was seen to help; empty if nothing that was tried did."""
    tried: tuple[str, ...]
    """What was tried and did not help, each with its outcome."""


@dataclass(frozen=True)
class Cost:
    """What the answer cost."""

    builds: int
    """TVM builds (calls of `tvm.compile`) that found the culprits, failed ones included."""
    seconds: dict[str, float]
    """Wall time by step, in the order of the flow. Steps can overlap."""
    further_builds: int = 0
    """TVM builds that proved and explained what was found."""


@dataclass(frozen=True)
class Report:
    """Which part of the model TVM computes differently, how sure that is, and the evidence."""

    verdict: Verdict
    """Of the whole question; the most telling verdict among the culprits, else the root's."""
    summary: str
    """The answer in a sentence or two."""
    tree: tuple[Entry, ...]
    """Every component that was measured, parents before their children, siblings in execution order."""
    culprit_ids: tuple[str, ...]
    """Entries of `tree` that are smallest components with a deviation that rounding does not explain."""
    environment: dict[str, str]
    """Versions, target and options."""
    cost: Cost
    proof: Proof | None = None
    """That the culprits are to blame; None without culprits, or where the whole model does not deviate or cannot be compared."""
    explanations: tuple[Explanation, ...] = ()
    """One for each kind of culprit."""
    unfinished: str = ""
    """Why the search ended early (the budget, Ctrl-C) and what was not looked at; empty if it came to its end."""
    fingerprint: str = ""
    """Of model, inputs and options: a saved report is resumed only if it is the same."""

    @property
    def root(self) -> Entry:
        """The model as a whole, end to end."""
        return self.tree[0]

    @property
    def interrupted(self) -> bool:
        """True if Ctrl-C ended the search early."""
        return self.unfinished.startswith(INTERRUPTED)

    @property
    def culprits(self) -> tuple[Entry, ...]:
        """The smallest components that TVM computes differently, in execution order."""
        wanted = set(self.culprit_ids)
        return tuple(entry for entry in self.tree if entry.id in wanted)

    @property
    def unresolved(self) -> tuple[Entry, ...]:
        """The smallest components that could not be judged, each with its `reason`, in execution order."""
        containing: set[str | None] = set()
        for entry in reversed(self.tree):
            if entry.verdict is Verdict.UNRESOLVED or entry.id in containing:
                containing.add(entry.parent)
        return tuple(e for e in self.tree if e.verdict is Verdict.UNRESOLVED and e.id not in containing)

    def __str__(self) -> str:
        return text.render_text(self)

    def save(self, path: str | Path) -> Path:
        """Write the report as JSON, replacing what is at `path`, and return the path.

        Raises:
            InputError: The file cannot be written there. Nothing is left behind.
        """
        return storage.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "Report":
        """Read a report that `save` wrote.

        Raises:
            ReportError: The file is missing, damaged, no report, or of a newer version.
        """
        return storage.load(Path(path), cls)
