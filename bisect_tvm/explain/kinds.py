"""Culprits that are the same but for their place."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import fx

from bisect_tvm.model.cut import Boundary
from bisect_tvm.model.decompose import Operator, operator_of
from bisect_tvm.model.hierarchy import Component
from bisect_tvm.numerics.judge import Judgement
from bisect_tvm.numerics.verdict import Verdict


@dataclass(frozen=True)
class Culprit:
    """One culprit, what enters and leaves it, and what was found."""

    component: Component
    edge: Boundary
    judgement: Judgement

    @property
    def deviation(self) -> float:
        """How far it is off, in float64 if that is known."""
        return self.judgement.deviation64 or self.judgement.deviation32 or 0.0


@dataclass(frozen=True)
class Kind:
    """All culprits that run the same operators."""

    name: str
    culprits: tuple[Culprit, ...]

    @property
    def worst(self) -> Culprit:
        """The culprit that deviates most, for which all of them stand."""
        return max(self.culprits, key=lambda culprit: culprit.deviation)

    @property
    def nodes(self) -> tuple[fx.Node, ...]:
        """The graph nodes of the worst one."""
        return self.worst.edge.nodes

    @property
    def operators(self) -> tuple[Operator, ...]:
        """The operators that it runs, each once."""
        return tuple(dict.fromkeys(operator for node in self.nodes if (operator := operator_of(node)) is not None))

    @property
    def converted_as(self) -> tuple[str, ...]:
        """What TVM's convert map calls the operators."""
        return tuple(dict.fromkeys(getattr(node.target, "__name__", "") for node in self.nodes if operator_of(node)))


def kinds_of(culprits: Iterable[Culprit]) -> tuple[Kind, ...]:
    """Group culprits by the operators that they run, in execution order of the first of each."""
    kinds: dict[str, list[Culprit]] = {}
    for culprit in culprits:
        component = culprit.component
        kinds.setdefault(component.operator or component.module_class, []).append(culprit)
    return tuple(Kind(name, tuple(members)) for name, members in kinds.items())


def off(judgement: Judgement) -> str:
    """How far something is off, in the precision in which it is."""
    if judgement.verdict is Verdict.TYPE:
        return "of another dtype or shape"
    deviation = judgement.deviation64
    if judgement.verdict is Verdict.FLOAT32_ONLY or deviation is None:
        deviation = judgement.deviation32
    return "off by an unknown amount" if deviation is None else f"off by {deviation:.1e}"


def calls(edge: Boundary) -> str:
    """The calls of a component as PyTorch's graph holds them, with the types of what they read and give."""
    types = (f"# {node.name}: {_type_of(node)}" for node in edge.inputs)
    lines = (f"{node.name} = {_target(node)}({_arguments(node)})  # {_type_of(node)}" for node in edge.nodes)
    return "\n".join([*types, *lines])


def _target(node: fx.Node) -> str:
    operator = operator_of(node)
    return f"torch.ops.{operator}" if operator is not None else getattr(node.target, "__name__", str(node.target))


def _arguments(node: fx.Node) -> str:
    given = [_shown(argument) for argument in node.args]
    return ", ".join([*given, *(f"{name}={_shown(value)}" for name, value in node.kwargs.items())])


def _shown(argument: object) -> str:
    return f"{argument!r}" if isinstance(argument, str) else str(argument)


def _type_of(node: fx.Node) -> str:
    value = node.meta.get("val")
    if isinstance(value, tuple | list):
        return ", ".join(_type(each) for each in value)
    return _type(value)


def _type(value: object) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return f"{dtype} {tuple(shape)}" if shape is not None and dtype is not None else type(value).__name__
