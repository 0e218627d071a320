"""What a user can change, and the code for it."""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bisect_tvm.explain.formulas import FORMULAS
from bisect_tvm.explain.kinds import Kind
from bisect_tvm.explain.setting import Setting
from bisect_tvm.model.decompose import Operator, can_be_decomposed
from bisect_tvm.report.report import Stage

MOST_INSIDE = 8
"""Operators inside a decomposition that are tried to be decomposed, too."""


@dataclass(frozen=True)
class Remedy:
    """A change, or several at once. Fields that are empty change nothing."""

    what: str
    converters: frozenset[str] = frozenset()
    """Of the user's convert map, to leave out."""
    decomposed: tuple[Operator, ...] = ()
    """Operators to decompose by PyTorch's own decompositions, beside those that are by default."""
    rewritten: tuple[Operator, ...] = ()
    """Operators to decompose by `FORMULAS`."""
    decompose: bool | None = None
    """The other value of the option `decompose`."""
    without: frozenset[str] = frozenset()
    """Passes to leave out of the user's list."""
    default_pipeline: bool = False
    unoptimised: bool = False
    """Target at opt-level 0."""

    @property
    def changes_graph(self) -> bool:
        """The program that is imported is another one."""
        return bool(self.decomposed or self.rewritten) or self.decompose is not None

    def joined(self, other: "Remedy") -> "Remedy":
        """Both at once."""
        return Remedy(
            what="; ".join(dict.fromkeys([self.what, other.what])),
            converters=self.converters | other.converters,
            decomposed=tuple(dict.fromkeys((*self.decomposed, *other.decomposed))),
            rewritten=tuple(dict.fromkeys((*self.rewritten, *other.rewritten))),
            decompose=self.decompose if other.decompose is None else other.decompose,
            without=self.without | other.without,
            default_pipeline=self.default_pipeline or other.default_pipeline,
            unoptimised=self.unoptimised or other.unoptimised,
        )


def candidates(kind: Kind, stage: Stage, culprit_pass: str, setting: Setting) -> Iterator[Remedy]:
    """What may help against a kind of culprit, the simplest first."""
    if own := setting.converters.intersection(kind.converted_as):
        yield Remedy(f"leave your own converter of {', '.join(sorted(own))} out of convert_map", converters=own)
    if stage == "pass":
        if setting.is_list:
            yield Remedy(f"leave the pass {culprit_pass} out of the pipeline", without=frozenset({culprit_pass}))
        yield Remedy("use TVM's default pipeline", default_pipeline=True)
    if stage == "code generation":
        yield Remedy("compile at opt-level 0", unoptimised=True)
    for operator in kind.operators:
        if can_be_decomposed(operator):
            yield Remedy(f"have PyTorch decompose {operator}", decomposed=(operator,))
    for operator in kind.operators:
        if operator in FORMULAS:
            yield Remedy(f"compute {operator} by another formula", rewritten=(operator,))
    if not setting.decompose:
        yield Remedy("decompose the program before it is imported, as TVM does by default (decompose=True)", decompose=True)


def deeper(kind: Kind, inside: Sequence[Operator]) -> Iterator[Remedy]:
    """Decompositions of two operators: the first one of the kind, the second one among those `inside` its decomposition."""
    of_kind = [operator for operator in kind.operators if can_be_decomposed(operator)]
    others = [operator for operator in inside if operator not in of_kind and can_be_decomposed(operator)]
    for operator in others[:MOST_INSIDE]:
        names = " and ".join(map(str, (*of_kind, operator)))
        yield Remedy(f"have PyTorch decompose {names}", decomposed=(*of_kind, operator))


def flipped() -> Remedy:
    """The program as exported, for whom TVM's importer decomposes it."""
    return Remedy("import the program without decomposing it (decompose=False)", decompose=False)


def code(remedy: Remedy, setting: Setting) -> str:
    """A script that converts the model with the change; it reads what the user passed: `model`, `inputs`, and so on."""
    return "\n".join([*_imports(remedy), "", *_formulas(remedy), *_export(remedy, setting), *_build(remedy, setting)])


def _imports(remedy: Remedy) -> list[str]:
    lines = ["import torch", "import tvm"]
    if remedy.decomposed:
        lines.append("from torch._decomp import get_decompositions")
    return [*lines, "from tvm.relax.frontend.torch import from_exported_program"]


def _formulas(remedy: Remedy) -> list[str]:
    lines = []
    for operator in remedy.rewritten:
        source = inspect.getsource(FORMULAS[operator]).replace(": Any", "").replace(" -> Any", "")
        lines += [*source.rstrip().splitlines(), "", ""]
    return lines


def _export(remedy: Remedy, setting: Setting) -> list[str]:
    lines = ["exported = model" if setting.model == "program" else f"exported = torch.export.export(model, {setting.inputs})"]
    if remedy.decomposed or remedy.rewritten:
        lines.append("table = torch.export.default_decompositions()")
        if remedy.decomposed:
            names = ", ".join(f"torch.ops.{operator}" for operator in remedy.decomposed)
            lines.append(f"table.update(get_decompositions([{names}]))")
        lines += [f"table[torch.ops.{operator}] = {FORMULAS[operator].__name__}" for operator in remedy.rewritten]
        lines.append("exported = exported.run_decompositions(table)")
    return lines


def _build(remedy: Remedy, setting: Setting) -> list[str]:
    options, lines = "", []
    left = setting.converters - remedy.converters
    if left and remedy.converters:
        lines.append(f"convert_map = {{name: f for name, f in convert_map.items() if name not in {sorted(remedy.converters)!r}}}")
    if left:
        options += ", custom_convert_map=convert_map"
    by_importer = setting.decompose if remedy.decompose is None else remedy.decompose
    if remedy.decomposed or remedy.rewritten or not by_importer:
        options += ", run_ep_decomposition=False"
    lines.append(f"module = from_exported_program(exported{options})")
    target = setting.target_unoptimised if remedy.unoptimised else setting.target
    lines.append(f"target = tvm.target.Target({target})")
    pipeline = "" if remedy.default_pipeline else setting.pipeline
    if pipeline and remedy.without:
        rest = f"each for each in getattr(pipeline, 'passes', pipeline) if each.info.name not in {sorted(remedy.without)!r}"
        pipeline = f"tvm.transform.Sequential([{rest}])"
    if not pipeline:
        return [*lines, "executable = tvm.compile(module, target=target)"]
    if setting.is_complete:
        return [*lines, f"executable = tvm.compile(module, target=target, relax_pipeline={pipeline})"]
    return [*lines, "with target:", f"    module = {pipeline}(module)", "executable = tvm.compile(module, target=target)"]
