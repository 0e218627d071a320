"""What the tests of this room share: capturing in one line, and running a captured graph as it is."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from bisect_tvm.model.capture import Program, capture
from bisect_tvm.model.hierarchy import Component, component_tree, user_outputs


def captured(model: Any, inputs: Any, kwargs: Mapping[str, Any] | None = None, *, decompose: bool = True) -> Program:
    return capture(model.eval() if isinstance(model, torch.nn.Module) else model, inputs, kwargs, decompose=decompose)


def tree_of(model: Any, inputs: Any, *, decompose: bool = True) -> Component:
    return component_tree(captured(model, inputs, decompose=decompose))


def values_of(program: Program) -> dict[str, Any]:
    """Every value of the graph in the model's own precision, by node, as torch.fx computes it."""
    interpreter = fx.Interpreter(program.exported.graph_module, garbage_collect_values=False)
    given = [program.bindings[node.name] for node in program.exported.graph.find_nodes(op="placeholder")]
    with torch.no_grad():
        interpreter.run(*given)
    return {node.name: value for node, value in interpreter.env.items()}


def results_of(program: Program) -> list[torch.Tensor]:
    """What the captured model returns, flat."""
    values = values_of(program)
    return [values[name] for name in user_outputs(program)]


def tensors_in(result: Any) -> list[torch.Tensor]:
    """The tensors that a model returned, in containers that torch knows."""
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def assert_equal(actual: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """The same tensors, to the last bit."""
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
