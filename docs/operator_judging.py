"""What this project finds about samples of operators: how far TVM comes with each, and the verdict."""

import functools
import operator
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument
from torch.utils import _pytree as pytree  # private, see bisect_tvm/model/containers.py

from bisect_tvm.errors import BisectError, one_line
from bisect_tvm.evidence import as_array
from bisect_tvm.lowering.build import Builder, BuildError, RunError, parse_target
from bisect_tvm.lowering.importer import ImporterError, import_program
from bisect_tvm.lowering.workshop import Workshop
from bisect_tvm.measure import Ruler
from bisect_tvm.model.capture import Program
from bisect_tvm.model.hierarchy import component_tree
from bisect_tvm.model.reference import Reference, run_reference
from bisect_tvm.model.untouched import untouched
from bisect_tvm.numerics.judge import Judgement
from bisect_tvm.parts import Cutter
from bisect_tvm.probe import Probe
from bisect_tvm.stopwatch import Stopwatch
from docs.operator_samples import Sample

TARGET = {"kind": "llvm", "opt-level": 0}
CRASHED = "the process died"
"""The reason for a sample that nothing was found about, because TVM ended the process with a signal."""


@dataclass(frozen=True)
class Result:
    """What was found about one sample."""

    key: str
    shown: str
    origin: str
    tried: bool = True
    """False where PyTorch itself refuses the sample, or has no numbers for it that could be compared."""
    imports: bool = False
    builds: bool = False
    runs: bool = False
    """It runs in the sample's own precision."""
    judgement: Judgement | None = None
    reason: str = ""
    """Why there is no judgement."""


def judge_samples(samples: Sequence[Sample]) -> list[Result]:
    """Judge samples side by side: one program that holds all, cut at its operators, one build where TVM can build them all."""
    results: dict[int, Result] = {}
    sound = []
    with untouched(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i, sample in enumerate(samples):
            try:
                alone = program_of([sample])
                _require_numbers(alone, run_reference(alone))
                sound.append(i)
            except Exception as error:
                results[i] = result_of(sample, tried=False, reason=f"PyTorch: {one_line(error)}")
        if sound:
            results.update(zip(sound, _judge_together([samples[i] for i in sound]), strict=True))
    return [results[i] for i in range(len(samples))]


def _require_numbers(program: Program, reference: Reference) -> None:
    if not component_tree(program).children:
        raise BisectError("it gives no numbers that could be compared")
    for value in reference.values.values():
        for leaf in pytree.tree_leaves(value):
            if isinstance(leaf, torch.Tensor) and (leaf.is_complex() or leaf.layout is not torch.strided):
                raise BisectError("complex and sparse tensors are not compared")


def _judge_together(samples: Sequence[Sample]) -> list[Result]:
    program = program_of(samples)
    tree = component_tree(program)
    clock = Stopwatch()
    workshop = Workshop(Builder(parse_target(TARGET)), None, clock)
    reference = run_reference(program)
    cutter, ruler = Cutter(program, reference.values, workshop, clock), Ruler(program, reference, clock)
    probe = Probe(program, tree, cutter, [ruler], lambda: "not built", lambda: None, lambda line: None)
    by_node = {component.nodes[0]: component for component in tree.children}
    answers = probe(list(by_node.values()))
    results = []
    for i, sample in enumerate(samples):
        judgement = answers[by_node[f"sample_{i}"].id]
        if not judgement.unresolved:
            results.append(result_of(sample, imports=True, builds=True, runs=True, judgement=judgement))
        else:
            results.append(_natively(sample, judgement.reason))
    return results


def _natively(sample: Sample, reason: str) -> Result:
    """How far a sample that was not judged comes in its own precision, where nothing is widened."""
    program = program_of([sample])
    inputs = [as_array(program.bindings[name]) for name in program.inputs]
    try:
        imported = import_program(program.exported, None)
    except ImporterError:
        return result_of(sample, reason=reason)
    try:
        executable = Builder(parse_target(TARGET)).build_as_given(dict(imported.module.functions_items()))
    except BuildError:
        return result_of(sample, imports=True, reason=reason)
    try:
        executable.run("main", inputs)
    except RunError:
        return result_of(sample, imports=True, builds=True, reason=reason)
    return result_of(sample, imports=True, builds=True, runs=True, reason=reason)


def result_of(sample: Sample, **found: Any) -> Result:
    """What was found about `sample`; what is not named is False or empty."""
    return Result(sample.key, sample.shown(), sample.origin, **found)


def program_of(samples: Sequence[Sample]) -> Program:
    """One captured program that calls all samples side by side, each on inputs of its own."""
    graph, bindings, outputs = fx.Graph(), dict[str, torch.Tensor](), list[fx.Node]()
    placeholders = [_placeholders(graph, i, sample, bindings) for i, sample in enumerate(samples)]
    for i, (sample, (args, kwargs)) in enumerate(zip(samples, placeholders, strict=True)):
        node = graph.create_node("call_function", sample.function(), args, kwargs, f"sample_{i}")
        node.meta["val"] = _declared(sample)
        outputs += _outputs(graph, node, sample)
    graph.output(tuple(outputs))
    signature = ExportGraphSignature(
        [InputSpec(InputKind.USER_INPUT, TensorArgument(name), None) for name in bindings],
        [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), None) for node in outputs],
    )
    exported = ExportedProgram(
        root=torch.nn.Module(),
        graph=graph,
        graph_signature=signature,
        state_dict={},
        range_constraints={},
        module_call_graph=[],
        example_inputs=None,
        verifiers=_undecomposed().verifiers,
    )
    return Program(exported, bindings, (bindings,), tuple(bindings), "", frozenset())


@functools.cache
def _undecomposed() -> ExportedProgram:
    """Any program as `torch.export` makes it, for what it allows in a graph: operators that work in place, too."""
    return torch.export.export(torch.nn.Identity(), (torch.ones(1),))


def _placeholders(graph: fx.Graph, i: int, sample: Sample, bindings: dict[str, torch.Tensor]) -> Any:
    """The arguments of a call with a placeholder for each tensor."""

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        node = graph.placeholder(f"in_{i}_{len(bindings)}")
        node.meta["val"] = torch.empty_like(leaf, device="meta")
        bindings[node.name] = leaf
        return node

    return pytree.tree_map(one, (sample.args, sample.kwargs))


def _declared(sample: Sample) -> Any:
    """What the call gives, without its numbers."""
    args, kwargs = pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, (sample.args, sample.kwargs))
    with torch.no_grad():
        value = sample.function()(*args, **kwargs)
    return pytree.tree_map(lambda v: torch.empty_like(v, device="meta") if isinstance(v, torch.Tensor) else v, value)


def _outputs(graph: fx.Graph, node: fx.Node, sample: Sample) -> list[fx.Node]:
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        return [node]
    found = []
    for i in sample.taken or ():
        taken = graph.call_function(operator.getitem, (node, i))
        taken.meta["val"] = value[i]
        found.append(taken)
    return found
