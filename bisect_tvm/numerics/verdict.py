"""The words in which an answer is given (design: section 6), and the element that bears it out.

Judging and telling share them, so nothing heavy is imported here.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Scalar = float | int | bool
"""One element of a tensor, as plain Python data."""


@dataclass(frozen=True)
class Element:
    """The element of a component's outputs that deviates most."""

    output: int
    """Which output of the component, counted from 0."""
    index: tuple[int, ...]
    """Its index in that output."""
    actual: Scalar
    """What TVM computed."""
    expected: Scalar
    """What the reference computed."""
    precision: Literal["float64", "native"]
    """Which of the two runs it is taken from."""


class Verdict(StrEnum):
    """What the evidence about one component, or about the whole model, amounts to."""

    FAITHFUL = "FAITHFUL"
    """Float32 and float64 both agree with PyTorch within the noise floor."""
    ROUNDING = "ROUNDING"
    """The float32 deviation is large, and rounding alone explains it: the computation amplifies it."""
    FORMULA = "FORMULA"
    """The float64 deviation is far above the noise floor: a wrong or approximate formula, constant or argument."""
    UNSTABLE = "UNSTABLE"
    """The deviation shrinks with precision but is above the floor in both: TVM's algorithm loses digits."""
    FLOAT32_ONLY = "FLOAT32_ONLY"
    """Float64 agrees, float32 does not: float32 intrinsics or fast math."""
    TYPE = "TYPE"
    """Declared dtype or shape differs from PyTorch's."""
    NONFINITE = "NONFINITE"
    """NaN or Inf stand at other places than PyTorch's."""
    INTERACTION = "INTERACTION"
    """The parts agree alone; compiled together they do not."""
    UNRESOLVED = "UNRESOLVED"
    """Could not be imported, built or run; the reason is given, never a guess."""

    @property
    def is_divergence(self) -> bool:
        """True for a verdict that accuses a component."""
        return self not in (Verdict.FAITHFUL, Verdict.ROUNDING, Verdict.UNRESOLVED)
