"""Converters that replace an operator by an approximation of it, as entries for a convert map.

They stand for a fault that is easy to make and hard to see: the result looks right, and is off by more than rounding.
The demo and the tests put them into a model to have a fault whose place is known.
"""

from typing import Any

from tvm import relax


def gelu_tanh(node: Any, importer: Any) -> Any:
    """Convert ``gelu`` by its tanh approximation, whatever approximation `node` asks for.

    Args:
        node: The `torch.fx.Node` of ``aten.gelu.default``.
        importer: TVM's `ExportedProgramImporter`, which calls this.

    Returns:
        The Relax variable that holds the result.
    """
    return importer.block_builder.emit(relax.op.nn.gelu_tanh(importer.env[node.args[0]]))
