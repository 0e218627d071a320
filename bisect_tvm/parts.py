"""All parts of a program, cut, imported and built side by side.

The search asks about parts as it goes, but they are built once: building costs little for parts that are not run, since equal parts
share a function and equal kernels are compiled once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bisect_tvm.lowering.workshop import Runnable, Workshop
from bisect_tvm.model.capture import Program
from bisect_tvm.model.cut import Boundary, boundary, created, cut, signature_of
from bisect_tvm.model.hierarchy import Component
from bisect_tvm.model.reference import Reference
from bisect_tvm.stopwatch import Stopwatch


@dataclass(frozen=True)
class Part:
    """A component, ready to be measured."""

    edge: Boundary
    runnable: Runnable | str
    """What can be run, or the reason why there is nothing."""


def build_parts(
    program: Program,
    tree: Component,
    reference: Reference,
    workshop: Workshop,
    clock: Stopwatch,
    progress: Callable[[str], None],
) -> dict[str, Part]:
    """Build every operator and every submodule call of `tree`; returned by component id."""
    components, values = tree.walk()[1:], reference.values
    with clock("cut"):
        edges = {c.id: boundary(program, c, values) for c in components}
        keys = {id: f"f{signature_of(edge, values, workshop.convert_map or ())[:16]}" for id, edge in edges.items()}
    imported = {}
    for component in sorted(components, key=lambda c: len(c.nodes)):  # operators before what holds them
        key, edge = keys[component.id], edges[component.id]
        if key in imported or key in workshop.failures or _refused_part(component, keys, workshop.failures):
            continue
        with clock("cut"):
            exported = cut(program, edge, values)
        if (made := workshop.import_one(key, exported, created(edge, values))) is not None:
            imported[key] = made
    progress(f"building {len(imported)} distinct parts of {len(components)} in one module")
    built = workshop.build_parts(imported)
    return {c.id: Part(edges[c.id], built.get(keys[c.id]) or _reason(c, keys, workshop.failures)) for c in components}


def _refused_part(component: Component, keys: Mapping[str, str], failures: Mapping[str, str]) -> Component | None:
    """The first operator inside that could not be built."""
    return next((p for p in component.walk()[1:] if not p.children and keys[p.id] in failures), None)


def _reason(component: Component, keys: Mapping[str, str], failures: Mapping[str, str]) -> str:
    part = _refused_part(component, keys, failures)
    if part is None:
        return failures[keys[component.id]]
    return f"it holds {part.operator} ({part.id}), which could not be built: {failures[keys[part.id]]}"
