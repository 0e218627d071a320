"""`locate`: the whole flow on one page (design: section 3).

model, inputs -> capture -> hierarchy -> reference -> search(probe) -> report
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from bisect_tvm.assemble import assemble
from bisect_tvm.errors import CaptureError, InputError
from bisect_tvm.lowering.build import Builder, parse_target
from bisect_tvm.lowering.environment import tvm_environment
from bisect_tvm.lowering.workshop import Workshop
from bisect_tvm.model.capture import Program, capture, why_not_run
from bisect_tvm.model.hierarchy import component_tree
from bisect_tvm.model.reference import require_runs, run_reference
from bisect_tvm.model.untouched import untouched
from bisect_tvm.probe import Probe
from bisect_tvm.report.report import Report
from bisect_tvm.search.walk import walk
from bisect_tvm.stopwatch import Stopwatch


def locate(
    model: torch.nn.Module | torch.export.ExportedProgram,
    inputs: Any,
    *,
    kwargs: Mapping[str, Any] | None = None,
    convert_map: Mapping[str, Callable[..., Any]] | None = None,
    decompose: bool = True,
    target: Any = "llvm",
    exhaustive: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Say which part of `model` TVM computes differently from PyTorch, how sure that is, and where it stands in the source.

    The model is exported, imported and built as usual, then once more in double precision, where rounding is 1e-16 and a wrong
    formula is not. If either deviates by more than rounding explains, all operators are built side by side, each fed with
    PyTorch's own values, so that those which are wrong stand out whatever the others do.

    Args:
        model: a module in evaluation mode, or an exported program. It is left exactly as it was, also when this fails.
        inputs: a tensor, a tuple of positional arguments, or a dict of keyword arguments; tensors may sit in nested tuples, lists,
            dicts and dataclasses.
        kwargs: further keyword arguments of the model.
        convert_map: TVM's `custom_convert_map`, passed on untouched.
        decompose: run PyTorch's decompositions before the import, as TVM does by default (`run_ep_decomposition`).
        target: TVM target: a string, a dict or a `tvm.target.Target`.
        exhaustive: measure every operator and submodule even if the model as a whole agrees.
        progress: called with one short line as each step begins.

    Returns:
        A `Report`: print it, save it, or read its `culprits`.

    Raises:
        InputError: an argument cannot be used; the message says which and why.
        CaptureError: `torch.export` cannot capture the model.
    """
    say = progress or (lambda line: None)
    clock = Stopwatch()
    with untouched():
        parsed = parse_target(target)
        builder = Builder(parsed)
        say("exporting the model")
        with clock("capture"):
            program = capture(model, inputs, kwargs, decompose=decompose)
            _require_known_operators(program, convert_map)
        with clock("hierarchy"):
            tree = component_tree(program)
        say("running PyTorch in float64")
        with clock("reference"):
            try:
                require_runs(program)
                reference = run_reference(program)
            except CaptureError as error:
                raise why_not_run(model, inputs, kwargs, error) from error
        workshop = Workshop(builder, convert_map, clock)
        probe = Probe(program, tree, reference, workshop, clock, say)
        found = walk(tree, probe, strictly=probe.strictly, exhaustive=exhaustive)
    options = {
        "target": target if isinstance(target, str) else str(parsed),
        "decompose": "yes" if decompose else "no",
        "convert_map": ", ".join(sorted(convert_map or {})) or "none",
        "exhaustive": "yes" if exhaustive else "no",
    }
    if program.ignored:
        options["not compared"] = f"outputs of type {', '.join(sorted(program.ignored))}"
    environment = {**tvm_environment(), **options}
    return assemble(tree, found, environment=environment, builds=builder.builds, seconds=clock.seconds)


def _require_known_operators(program: Program, convert_map: Mapping[str, Callable[..., Any]] | None) -> None:
    there = {n.target.__name__ for n in program.nodes.values() if n.op == "call_function" and hasattr(n.target, "__name__")}
    if convert_map is not None and not isinstance(convert_map, Mapping):
        raise InputError("convert_map must be a dict from operator names such as 'gelu.default' to functions (node, importer).")
    for key, converter in (convert_map or {}).items():
        if key not in there:
            raise InputError(
                f"convert_map has {key!r}, but no operator of that name is in the graph; there are {', '.join(sorted(there))}."
            )
        if not callable(converter):
            raise InputError(f"convert_map[{key!r}] must be a function (node, importer) -> relax.Var.")
