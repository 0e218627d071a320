"""Step 4a: cut a component out of the graph as a program of its own, reading the reference's values at its boundary.

Parameters and boundary values alike are inputs of the cut, so nothing is baked in, identical layers give identical cuts, and no
component sees another's error.
"""

import hashlib
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.utils import _pytree as pytree  # private, see containers.py

from bisect_tvm.model.capture import Program
from bisect_tvm.model.exact import is_steady
from bisect_tvm.model.hierarchy import Component, user_outputs
from bisect_tvm.model.reference import Value, is_assertion, is_uninitialised


@dataclass(frozen=True)
class Boundary:
    """What enters and leaves a component; with the values of one run, all that a cut is made of."""

    nodes: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    """Graph nodes whose values enter, in the order of the cut's inputs."""
    outputs: tuple[fx.Node, ...]
    """Graph nodes whose values leave and are compared, in the order of the cut's outputs."""
    judged: int | None = None
    """How many of the outputs the verdict rests on, the first ones; None for all."""

    @property
    def is_operator(self) -> bool:
        """True if it holds a single operator (and the `getitem`s that take its outputs apart)."""
        return sum(node.target is not operator.getitem for node in self.nodes) == 1


def boundary(program: Program, component: Component, values: Mapping[str, Value]) -> Boundary:
    """Find the tensors that enter and leave `component`.

    Leaving values are those that something outside reads or that the user gets, in the order in which they are computed.
    Arbitrary ones (`aten.empty`) are not compared.
    """
    nodes = _computing(program, component.nodes)
    inside, returned = set(nodes), set(user_outputs(program))
    outputs = tuple(
        node
        for node in nodes
        if isinstance(values[node.name], torch.Tensor)
        and not is_uninitialised(node)
        and (node.name in returned or any(user not in inside and user.op != "output" for user in node.users))
    )
    return Boundary(nodes, _entering(nodes, values), outputs)


def whole(program: Program, component: Component, values: Mapping[str, Value]) -> Boundary:
    """The boundary of the model itself: what the user passes in (first) and parameters, and what the user gets back."""
    nodes = _computing(program, component.nodes)
    given = tuple(program.nodes[name] for name in program.inputs)
    inputs = dict.fromkeys((*given, *_entering(nodes, values)))
    return Boundary(nodes, tuple(inputs), tuple(program.nodes[name] for name in user_outputs(program)))


def tapped(edge: Boundary, taps: Iterable[fx.Node]) -> Boundary:
    """The same component, that also gives values from inside it, which its verdict does not rest on."""
    more = dict.fromkeys(node for node in taps if node not in edge.outputs)
    return replace(edge, outputs=(*edge.outputs, *more), judged=len(edge.outputs))


def copies_of_parameters(program: Program) -> set[str]:
    """Graph nodes that give the numbers of a parameter or buffer in another shape or order, by name: large, and always the same."""
    copies = set(program.bindings) - set(program.inputs)
    for name, node in program.nodes.items():
        sources = {source.name for source in node.all_input_nodes}
        if node.op == "call_function" and sources and sources <= copies and is_steady(node):
            copies.add(name)
    return copies


def swapped(program: Program, edge: Boundary, replaced: Iterable[str], values: Mapping[str, Value]) -> Boundary:
    """The same component with the named graph nodes left out: whatever reads them reads the reference's values instead.

    What only they read is left out too, but for the values that enter them: these are given out as well, so that a fault before
    them does not hide behind what replaces them.
    """
    gone = {program.nodes[name] for name in replaced}
    kept = [node for node in edge.nodes if node not in gone]
    entering = (source for node in edge.nodes if node in gone for source in node.all_input_nodes)
    inside = set(kept)
    seen = tuple(dict.fromkeys(n for n in entering if n in inside and isinstance(values[n.name], torch.Tensor)))
    outputs = tuple(node for node in edge.outputs if node in inside)
    needed, waiting = set[fx.Node](), [*outputs, *seen]
    while waiting:
        if (node := waiting.pop()) in inside and node not in needed:
            needed.add(node)
            waiting.extend(node.all_input_nodes)
    nodes = tuple(node for node in kept if node in needed)
    return Boundary(nodes, _entering(nodes, values), tuple(dict.fromkeys((*outputs, *seen))))


def showing(edge: Boundary, outputs: Iterable[fx.Node]) -> Boundary:
    """The same component, judged by values inside it instead of by what it gives."""
    first = dict.fromkeys(outputs)
    return replace(edge, outputs=tuple({**first, **dict.fromkeys(edge.outputs)}), judged=len(first))


def _computing(program: Program, names: Iterable[str]) -> tuple[fx.Node, ...]:
    return tuple(node for node in (program.nodes[name] for name in names) if not is_assertion(node))


def _entering(nodes: Iterable[fx.Node], values: Mapping[str, Value]) -> tuple[fx.Node, ...]:
    """Tensors that the nodes read and do not compute, in the order in which they are first read."""
    nodes = tuple(nodes)
    inside = set(nodes)
    sources = (source for node in nodes for source in node.all_input_nodes if source not in inside)
    return tuple(dict.fromkeys(source for source in sources if isinstance(values[source.name], torch.Tensor)))


def cut(program: Program, edge: Boundary, values: Mapping[str, Value]) -> ExportedProgram:
    """Build a component as a program of its own; `values` are the reference's (for shapes, and for numbers that enter)."""
    graph = fx.Graph()
    copied: dict[fx.Node, Any] = {}
    for source in edge.inputs:
        copied[source] = graph.placeholder(f"in_{source.name}")
        copied[source].meta["val"] = _concrete(source, values)
    for node in edge.nodes:
        copied[node] = _copy(graph, node, copied, values)
    graph.output(tuple(copied[node] for node in edge.outputs))
    entering = [TensorArgument(copied[node].name) for node in edge.inputs]
    leaving = [TensorArgument(copied[node].name) for node in edge.outputs]
    signature = ExportGraphSignature(
        [InputSpec(InputKind.USER_INPUT, argument, None) for argument in entering],
        [OutputSpec(OutputKind.USER_OUTPUT, argument, None) for argument in leaving],
    )
    return ExportedProgram(
        root=torch.nn.Module(),
        graph=graph,
        graph_signature=signature,
        state_dict={},
        range_constraints={},
        module_call_graph=[_call(len(entering), len(leaving))],
        example_inputs=None,
        verifiers=program.exported.verifiers,  # an undecomposed program may hold operators that work in place
    )


def _call(entering: int, leaving: int) -> ModuleCallEntry:
    """How the program is called: with so many tensors, returning a tuple.

    The values are not named: a program that is decomposed keeps these names, and not what bore them.
    """
    nothing: dict[str, Any] = {}
    in_spec, out_spec = pytree.tree_structure(((0.0,) * entering, nothing)), pytree.tree_structure((0.0,) * leaving)
    return ModuleCallEntry("", ModuleCallSignature([], [], in_spec, out_spec))


def created(edge: Boundary, values: Mapping[str, Value]) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
    """What operators of a component make from nothing but numbers (`arange`, `linspace`), in float64."""
    made = (values[node.name] for node in edge.nodes if not node.all_input_nodes)
    return [value.numpy() for value in made if isinstance(value, torch.Tensor) and value.dtype is torch.float64]


def signature_of(edge: Boundary, values: Mapping[str, Value], by_name: Iterable[str] = ()) -> str:
    """A digest that is equal for components that give the same cut, so that identical layers are imported once.

    Args:
        edge: what enters and leaves the component.
        values: the reference's values.
        by_name: operators whose converter is the user's own. It may look at anything, the node's name included, so components that
            hold one are never taken for identical.
    """
    own = set(by_name)
    local: dict[fx.Node, str] = {source: f"i{i}" for i, source in enumerate(edge.inputs)}
    text = [f"{_type_of(values[source.name], source)}" for source in edge.inputs]
    for i, node in enumerate(edge.nodes):
        local[node] = f"n{i}"
        name = node.name if getattr(node.target, "__name__", "") in own else ""
        shown = _mapped((node.args, node.kwargs), lambda source: _Local(local.get(source) or repr(values[source.name])))
        text.append(f"{name}{node.op}{node.target}{shown!r}{_type_of(values[node.name], node)}")
    text.append(",".join(local[node] for node in edge.outputs))
    return hashlib.sha256("\n".join(text).encode()).hexdigest()


def _mapped(arguments: Any, replace: Callable[[fx.Node], Any]) -> Any:
    """The arguments of a node with every node among them replaced by anything."""
    return fx.map_arg(arguments, replace)


@dataclass(frozen=True)
class _Local:
    """Stands for a graph node in a signature, where only its `repr` is used."""

    shown: str

    def __repr__(self) -> str:
        return self.shown


def _type_of(value: Value, node: fx.Node) -> str:
    declared = node.meta.get("val")
    dtype = declared.dtype if isinstance(declared, torch.Tensor) else None
    return f"{dtype}{tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__


def _copy(graph: fx.Graph, node: fx.Node, copied: Mapping[fx.Node, Any], values: Mapping[str, Value]) -> fx.Node:
    def local(source: fx.Node) -> Any:
        # Symbolic sizes and other numbers take the sample's value.
        return copied[source] if source in copied else values[source.name]

    # The node keeps its name and meta: a user's own converter may look at them.
    made = graph.create_node(node.op, node.target, _mapped(node.args, local), _mapped(node.kwargs, local), node.name, node.type)
    made.meta = dict(node.meta)
    if isinstance(values[node.name], torch.Tensor):
        made.meta["val"] = _concrete(node, values)
    return made


def _concrete(node: fx.Node, values: Mapping[str, Value]) -> Any:
    """The node's `meta["val"]`, with the sample's sizes in place of symbolic ones."""
    declared = node.meta["val"]
    if not any(isinstance(size, torch.SymInt) for size in declared.shape):
        return declared
    return torch.empty(values[node.name].shape, dtype=declared.dtype, device="meta")
