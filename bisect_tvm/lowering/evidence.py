"""What TVM made of a program, as text: the Relax expression, the kernels, and the functions that converted it."""

import inspect
from collections.abc import Iterable
from pathlib import Path

import tvm
from tvm import relax

from bisect_tvm.lowering.build import Builder, BuildError
from bisect_tvm.lowering.importer import ConvertMap, Imported

MOST_LINES = 400
"""Of a text that a report holds."""


def relax_text(imported: Imported) -> str:
    """The Relax functions that the importer made. Tensors that are bound stand as references, not as numbers."""
    return _shortened(imported.module.script(show_meta=False))  # with the tensors TVM can end the process (seen in TVM 0.27)


def relax_operators(imported: Imported) -> tuple[str, ...]:
    """Names of the Relax operators that the importer made, each once, in the order of their first use."""
    found: dict[str, None] = {}

    def visit(expression: object) -> None:
        if isinstance(expression, tvm.ir.Call) and isinstance(expression.op, tvm.ir.Op):
            found.setdefault(expression.op.name)

    relax.analysis.post_order_visit(imported.module["main"], visit)
    return tuple(found)


def kernel_text(imported: Imported, builder: Builder) -> str:
    """The TIR kernels that a program is lowered to in the user's pipeline; empty where it cannot be."""
    try:
        lowered = builder.lower(dict(imported.module.functions_items()))
    except BuildError:
        return ""
    kernels = (
        function.with_attr("global_symbol", variable.name_hint).script(show_meta=False)
        for variable, function in lowered.items()
        if isinstance(function, tvm.tirx.PrimFunc)
    )
    return _shortened("\n\n".join(kernels))


def converters(names: Iterable[str], convert_map: ConvertMap | None) -> tuple[str, ...]:
    """Where the functions stand that convert operators, as ``operator: file:line (function)``.

    Args:
        names: operators as a convert map names them, ``gelu.default``.
        convert_map: the user's own converters.
    """
    own, known = convert_map or {}, _importers_own()
    found = []
    for name in dict.fromkeys(names):
        converter = own.get(name, known.get(name))
        if converter is not None:
            found.append(f"{name}: {_place(converter)}")
    return tuple(found)


def _importers_own() -> ConvertMap:
    """The importer's table of converters. It is private (seen in TVM 0.27); without it the report only lacks the places."""
    try:
        from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

        made: ConvertMap = ExportedProgramImporter().create_convert_map()
    except (ImportError, AttributeError, TypeError):
        return {}
    return made


def _place(converter: object) -> str:
    function = inspect.unwrap(converter) if callable(converter) else converter
    name = getattr(function, "__qualname__", type(function).__name__)
    try:
        file, line = inspect.getsourcefile(function), inspect.getsourcelines(function)[1]  # type: ignore[arg-type]
    except (OSError, TypeError):  # typed into an interpreter, or no Python function
        return f"an unknown file ({name})"
    return f"{Path(str(file))}:{line} ({name})"


def _shortened(text: str) -> str:
    lines = [line.rstrip() for line in text.splitlines() if not line.startswith(("# from tvm", "# Metadata omitted"))]
    while lines and not lines[0]:
        del lines[0]
    if len(lines) > MOST_LINES:
        lines[MOST_LINES:] = [f"# ... {len(lines) - MOST_LINES} more lines"]
    return "\n".join(lines).rstrip()
