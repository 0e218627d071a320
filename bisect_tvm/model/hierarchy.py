"""Step 2: the component tree and the dataflow graph of a captured program.

Every operator of the flat graph carries the chain of submodule calls that ran it (`nn_module_stack`). The chain gives the tree; the
arguments give the dataflow. Both are built in networkx here and handed out as frozen `Component`s.
"""

import itertools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import networkx as nx
import torch
from torch import fx
from torch.export.graph_signature import OutputKind
from torch.utils import _pytree as pytree  # private, see containers.py

from bisect_tvm.model.capture import TORCH_FOLDER, Program
from bisect_tvm.model.reference import is_assertion, is_uninitialised

JOINT = " + "
"""Between the operators of a run."""


@dataclass(frozen=True)
class Component:
    """One node of the hierarchy: the model, one call of a submodule, or one operator."""

    id: str
    parent: str | None
    depth: int
    kind: Literal["model", "module", "operator", "run"]
    path: str
    """Path of the submodule, ``@1`` behind the name where it is called a second time; ``""`` for the model."""
    operator: str | None
    """Such as ``aten.gelu.default``; of a run of operators, all of them, joined by `JOINT`."""
    module_class: str
    source: str | None
    nodes: tuple[str, ...]
    """Graph nodes that belong to the component, in execution order; the `getitem`s of a tuple belong to its producer."""
    children: tuple["Component", ...] = field(compare=False, repr=False, default=())

    def walk(self) -> list["Component"]:
        """The component and all below it, parents before children, siblings in execution order."""
        found, waiting = [], [self]
        while waiting:
            found.append(component := waiting.pop())
            waiting.extend(reversed(component.children))
        return found


@dataclass(frozen=True)
class _Call:
    """One call of a submodule, as the chain of calls that led to it."""

    chain: tuple[str, ...]
    path: str
    module_class: str


def component_tree(program: Program) -> Component:
    """Arrange the operators that the user's outputs depend on under the submodule calls that ran them.

    Operators that nothing uses, or that only feed a mutated buffer, are left out: TVM returns neither.
    """
    flow = dataflow(program)
    live = _live(program, flow)
    tree: nx.DiGraph[tuple[str, ...]] = nx.DiGraph()
    calls: dict[tuple[str, ...], _Call] = {}
    owned: dict[tuple[str, ...], list[fx.Node]] = {}
    root = _chain(None, program.prefix)[0]
    calls[root.chain] = root
    tree.add_node(root.chain)
    for node in program.exported.graph.nodes:
        if node.name not in live or _producer(node) is not node or not _computes(node):
            continue
        chain = _chain(node, program.prefix)
        calls[root.chain] = chain[0]
        for outer, inner in itertools.pairwise(chain):
            calls.setdefault(inner.chain, inner)
            tree.add_edge(outer.chain, inner.chain)
        leaf = (*chain[-1].chain, f"/{node.name}")
        tree.add_edge(chain[-1].chain, leaf)
        owned[leaf] = [node, *(user for user in node.users if user.target is operator.getitem and user.name in live)]
    return _freeze(tree, calls, owned)


def joined(tree: Component, run: Sequence[str]) -> Component:
    """Operators of `tree`, given by their ids in execution order, as one component, inside the smallest that holds them all."""
    by_id = {component.id: component for component in tree.walk()}
    parts = tuple(by_id[id] for id in run)
    around = [_holders(part, by_id) for part in parts]
    holder = next(each for each in around[0] if all(each in others for others in around))
    return Component(
        id=JOINT.join(run), parent=holder.id, depth=holder.depth + 1, kind="run", path=holder.path,
        operator=JOINT.join(str(part.operator) for part in parts), module_class=holder.module_class,
        source=next((part.source for part in parts if part.source), None),
        nodes=tuple(name for part in parts for name in part.nodes), children=parts,
    )  # fmt: skip


def _holders(component: Component, by_id: Mapping[str, Component]) -> list[Component]:
    """What holds a component, the smallest first."""
    found = []
    while (parent := component.parent) is not None:
        found.append(component := by_id[parent])
    return found


def operator_readers(program: Program, tree: Component) -> dict[str, tuple[str, ...]]:
    """For each operator of `tree`, by id and in execution order: the operators that read what it gives.

    Values that are looked at by numbers only (sizes) connect nothing.
    """
    operators = [component for component in tree.walk() if component.kind == "operator"]
    position = {name: i for i, name in enumerate(program.nodes)}
    order = sorted(operators, key=lambda leaf: position[leaf.nodes[0]])
    owner = {name: leaf.id for leaf in order for name in leaf.nodes}
    readers: dict[str, tuple[str, ...]] = {}
    for leaf in order:
        users = (owner[user.name] for name in leaf.nodes for user in program.nodes[name].users if user.name in owner)
        readers[leaf.id] = tuple(user for user in dict.fromkeys(users) if user != leaf.id)
    return readers


def dataflow(program: Program) -> "nx.DiGraph[str]":
    """The graph of values: an edge from each graph node to each node that reads it."""
    flow: nx.DiGraph[str] = nx.DiGraph()
    for node in program.exported.graph.nodes:
        flow.add_node(node.name)
        flow.add_edges_from((source.name, node.name) for source in node.all_input_nodes)
    return flow


def user_outputs(program: Program) -> tuple[str, ...]:
    """Names of the graph nodes that the model returns as tensors, in order."""
    return tuple(
        spec.arg.name
        for spec in program.exported.graph_signature.output_specs
        if spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
        and isinstance(spec.arg, torch.export.graph_signature.TensorArgument)
    )


def _live(program: Program, flow: "nx.DiGraph[str]") -> set[str]:
    outputs = [name for name in user_outputs(program) if name in flow]
    needed = set(outputs).union(*(nx.ancestors(flow, name) for name in set(outputs)))
    return {n.name for n in program.exported.graph.nodes if n.op == "call_function" and n.name in needed}


def _producer(node: fx.Node) -> fx.Node:
    source = node.args[0] if node.target is operator.getitem and node.args else None
    return source if isinstance(source, fx.Node) and source.op == "call_function" else node


def _computes(node: fx.Node) -> bool:
    """False for what gives no numbers to compare: symbolic sizes, checks, and memory that is arbitrary by design."""
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return any(isinstance(leaf, torch.Tensor) for leaf in leaves) and not is_assertion(node) and not is_uninitialised(node)


def _chain(node: fx.Node | None, prefix: str) -> list[_Call]:
    """The submodule calls around `node`, the model first. Paths are relative to the user's model."""
    stack = node.meta.get("nn_module_stack", {}) if node is not None else {}
    calls: list[_Call] = [_Call((), "", "")]
    for key, (path, module_class) in stack.items():
        name = module_class if isinstance(module_class, str) else f"{module_class.__module__}.{module_class.__qualname__}"
        if path in ("", prefix):
            calls[0] = _Call((), "", name)
            continue
        if key.startswith("_empty_nn_module_stack"):  # torch's mark of a node that it made itself
            continue
        # A repeated call of the same submodule is marked `@1`, `@2` in the key only, behind the path.
        repeat = key[key.rfind(path) + len(path) :]
        shown = path.removeprefix(f"{prefix}.") if prefix else path
        shown = f"{shown}{repeat}" if repeat[:1] == "@" and repeat[1:].isdigit() else shown
        calls.append(_Call((*calls[-1].chain, shown), shown, name))
    return calls


def _freeze(
    tree: "nx.DiGraph[tuple[str, ...]]",
    calls: dict[tuple[str, ...], _Call],
    owned: dict[tuple[str, ...], list[fx.Node]],
) -> Component:
    made: dict[tuple[str, ...], Component] = {}
    names = _unique_ids(calls)
    for chain in nx.dfs_postorder_nodes(tree, ()):
        parent = names[chain[:-1]] if chain else None
        if chain in owned:
            call, nodes = calls[chain[:-1]], owned[chain]
            made[chain] = Component(
                id=f"{parent}/{nodes[0].name}", parent=parent, depth=len(chain), kind="operator", path=call.path,
                operator=str(nodes[0].target), module_class=call.module_class, source=source_line(nodes[0]),
                nodes=tuple(node.name for node in nodes),
            )  # fmt: skip
            continue
        children = tuple(made[child] for child in tree.successors(chain))
        call = calls[chain]
        made[chain] = Component(
            id=names[chain], parent=parent, depth=len(chain), kind="module" if chain else "model", path=call.path,
            operator=None, module_class=call.module_class, source=children[0].source if children else None,
            nodes=tuple(name for child in children for name in child.nodes), children=children,
        )  # fmt: skip
    return made[()]


def _unique_ids(calls: dict[tuple[str, ...], _Call]) -> dict[tuple[str, ...], str]:
    """The path is the id, unless one path was reached by two chains of calls: then the whole chain is."""
    paths = [call.path for call in calls.values()]
    repeated = {path for path in paths if paths.count(path) > 1}
    return {chain: " > ".join(chain) if call.path in repeated else call.path for chain, call in calls.items()}


def source_line(node: fx.Node) -> str | None:
    """The innermost line of the user's code that ran `node`, as ``file:line``: torch's own frames are passed over."""
    trace = node.meta.get("stack_trace") or ""
    frames = [line.split('"') for line in trace.splitlines() if line.lstrip().startswith('File "')]
    places = [(parts[1], parts[2].split(",")[1].removeprefix(" line ")) for parts in frames if len(parts) > 2]
    outside = [(file, line) for file, line in places if not file.startswith(TORCH_FOLDER)]
    return "{}:{}".format(*outside[-1]) if outside else None
