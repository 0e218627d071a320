"""In-place operators in an undecomposed graph.

Decomposition makes a graph functional. With ``decompose=False`` in-place operators stay; a result that only they return can
be compared as any other, but a value that is changed and then read under its old name has no single reference value.
"""

from collections.abc import Mapping

from torch import fx

from bisect_tvm.errors import CaptureError


def refuse_aliased_mutation(nodes: Mapping[str, fx.Node]) -> None:
    """Raise `CaptureError` if a value is read, under its own or a view's name, after an operator changed it in place."""
    order = {node: position for position, node in enumerate(nodes.values())}
    for node in nodes.values():
        for source in _written(node):
            for alias in _aliases(source):
                late = next((user for user in alias.users if order[user] > order[node] and user is not node), None)
                if late is not None and late.op != "output":
                    raise CaptureError(
                        f"{node.target} ({node.name}) changes {alias.name} in place and {late.name} reads it afterwards, "
                        "so it has no single reference value; use decompose=True, which makes the graph functional."
                    )


def _written(node: fx.Node) -> list[fx.Node]:
    arguments = _schema_arguments(node)
    return [
        value
        for argument, value in zip(arguments, node.args, strict=False)
        if argument.alias_info is not None
        and argument.alias_info.is_write
        and isinstance(value, fx.Node)
        # detach_ changes nothing but the autograd record
        and "detach_" not in str(node.target)
    ]


def _aliases(node: fx.Node) -> set[fx.Node]:
    """`node` and all that share its storage: what it is a view of, and the views of that."""
    found: set[fx.Node] = set()
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if current in found:
            continue
        found.add(current)
        if _is_view(current) and isinstance(current.args[0], fx.Node):
            waiting.append(current.args[0])
        waiting.extend(user for user in current.users if _is_view(user) and user.args and user.args[0] is current)
    return found


def _is_view(node: fx.Node) -> bool:
    arguments = _schema_arguments(node)
    return bool(arguments) and arguments[0].alias_info is not None and not arguments[0].alias_info.is_write


def _schema_arguments(node: fx.Node) -> list:  # type: ignore[type-arg]  # torch._C.Argument has no public name
    schema = getattr(node.target, "_schema", None)
    return list(schema.arguments) if schema is not None else []
