"""The answer of `locate`: plain, frozen data that is printed, saved, loaded and compared.

`Report` holds one `Entry` for each component that was measured. Everything else (culprits, unresolved components, the
root) are entries too, so that each number is stored once.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bisect_tvm.numerics.verdict import Element, Verdict
from bisect_tvm.report import storage, text


@dataclass(frozen=True)
class Entry:
    """One measured component: the model, one call of a submodule, or one operator.

    Deviations are isolated: the component read the reference's values at its own boundary. Deviations are the largest
    absolute error over the largest absolute expected value; `excess` is the largest error over the noise floor,
    element by element (1 is perfect). Both are None where nothing was computed, and the verdict then is UNRESOLVED.
    """

    id: str
    """Unique in the report: the path, then ``/`` and the graph node for an operator."""
    parent: str | None
    """`id` of the smallest measured component that contains it; None for the model."""
    depth: int
    """0 for the model, 1 for what it contains, and so on."""
    kind: Literal["model", "module", "operator"]
    path: str
    """Path of the submodule (for an operator: of the module whose forward ran it), ``""`` for the model itself."""
    operator: str | None
    """Such as ``aten.gelu.default``; None unless `kind` is ``"operator"``."""
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


@dataclass(frozen=True)
class Cost:
    """What the answer cost."""

    builds: int
    """TVM builds (calls of `tvm.compile`), failed ones included."""
    seconds: dict[str, float]
    """Wall time by step, in the order of the flow."""


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

    @property
    def root(self) -> Entry:
        """The model as a whole, end to end."""
        return self.tree[0]

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
