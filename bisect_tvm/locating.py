"""`locate`: the whole flow on one page (design: section 3).

model, inputs -> capture -> hierarchy -> reference -> search(probe) -> explain -> report
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch

from bisect_tvm.assemble import assemble
from bisect_tvm.budget import Budget
from bisect_tvm.errors import CaptureError, InputError
from bisect_tvm.explain.bench import Bench
from bisect_tvm.explain.explain import Explainer
from bisect_tvm.explain.explain import explain as explained
from bisect_tvm.explain.kinds import kinds_of
from bisect_tvm.explain.setting import setting_of
from bisect_tvm.findings import culprits_of, curable, find, findings_of
from bisect_tvm.interrupts import noticed
from bisect_tvm.lowering.build import Builder, parse_target
from bisect_tvm.lowering.environment import tvm_environment
from bisect_tvm.lowering.pipeline import Pipeline
from bisect_tvm.lowering.workshop import Workshop, in_background
from bisect_tvm.measure import Ruler
from bisect_tvm.model.capture import Program, capture, why_not_run
from bisect_tvm.model.hierarchy import component_tree
from bisect_tvm.model.reference import run_reference
from bisect_tvm.model.untouched import untouched
from bisect_tvm.parts import Cutter
from bisect_tvm.probe import Probe
from bisect_tvm.report.report import Cost, Report
from bisect_tvm.resuming import fingerprint, known_answers, known_swaps, report_before
from bisect_tvm.stopwatch import Stopwatch
from bisect_tvm.whole import AsBuilt


def locate(
    model: torch.nn.Module | torch.export.ExportedProgram,
    inputs: Any,
    *,
    kwargs: Mapping[str, Any] | None = None,
    convert_map: Mapping[str, Callable[..., Any]] | None = None,
    decompose: bool = True,
    pipeline: Any = None,
    target: Any = "llvm",
    depth: Literal["diverging", "all"] = "diverging",
    exhaustive: bool = False,
    explain: bool = True,
    max_builds: int | None = None,
    max_seconds: float | None = None,
    resume: Report | str | Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Say which part of `model` TVM computes differently from PyTorch, how sure that is, and where it stands in the source.

    The model is exported, imported and built as usual, then once more in double precision, where rounding is 1e-16 and a wrong
    formula is not. If either deviates by more than rounding explains, all operators are built side by side, each fed with
    PyTorch's own values, so that those which are wrong stand out whatever the others do. What fails although its operators agree is
    narrowed to the operators that fail when they are compiled together. Then the model is built with the culprits' outputs replaced
    by PyTorch's values, which shows whether they explain all of the deviation.

    Args:
        model: a module in evaluation mode, or an exported program. It is left exactly as it was, also when this fails.
        inputs: a tensor, a tuple of positional arguments, or a dict of keyword arguments; tensors may sit in nested tuples, lists,
            dicts and dataclasses. Or a list of such samples, all of the same shapes: the report tells on which the culprits show.
        kwargs: further keyword arguments of the model.
        convert_map: TVM's `custom_convert_map`, passed on untouched.
        decompose: run PyTorch's decompositions before the import, as TVM does by default (`run_ep_decomposition`).
        pipeline: what you give to `tvm.compile` as `relax_pipeline`: the name of a pipeline, a pass or a function from module to
            module; or a list of passes. One that leaves out TVM's building passes is followed by TVM's default pipeline.
        target: TVM target: a string, a dict or a `tvm.target.Target`.
        depth: "all" measures the submodules of every branch; "diverging" only of those that hold something that deviates.
        exhaustive: measure every operator and submodule even if the model as a whole agrees.
        explain: find the stage of TVM that is to blame for each kind of culprit, and try workarounds.
        max_builds: TVM builds at most. When they are spent, the report holds what is known by then.
        max_seconds: wall time at most, from the call; what has begun is finished first.
        resume: a report that ended early, or its file: what it holds is not measured again.
        progress: called with one short line as each step begins.

    Returns:
        A `Report`: print it, save it, or read its `culprits`. After Ctrl-C, or when the budget is spent, its `unfinished` says so,
        and it holds what was found by then.

    Raises:
        InputError: an argument cannot be used; the message says which and why.
        CaptureError: `torch.export` cannot capture the model.
        ReportError: the report to resume cannot be read.
    """
    say = progress or (lambda line: None)
    clock, budget = Stopwatch(), Budget(max_builds, max_seconds)
    if depth not in ("diverging", "all"):
        raise InputError(f"`depth` must be 'diverging' or 'all', but it is {depth!r}.")
    with noticed(), untouched():
        parsed = parse_target(target)
        builder = Builder(parsed, Pipeline(pipeline), budget.build)
        say("exporting the model")
        with clock("capture"):
            program = capture(model, inputs, kwargs, decompose=decompose)
            _require_known_operators(program, convert_map)
        with clock("hierarchy"):
            tree = component_tree(program)
        options = {
            "target": target if isinstance(target, str) else str(parsed),
            "decompose": "yes" if decompose else "no",
            "pipeline": builder.pipeline.text,
            "convert_map": ", ".join(sorted(convert_map or {})) or "none",
        }
        mark = fingerprint(program, options)
        before = report_before(resume, mark)
        workshop = Workshop(builder, convert_map, clock)
        with _native_build(program, workshop, at_once=before is None) as native:
            say("running PyTorch in float64")
            try:
                rulers = _rulers(program, clock)
            except CaptureError as error:
                raise why_not_run(model, inputs, kwargs, error) from error
            cutter = Cutter(program, rulers[0].reference.values, workshop, clock)
            probe = Probe(program, tree, cutter, rulers, native, budget.check, say, ahead=before is None)
            probe.answers |= known_answers(before)
            everything = exhaustive or depth == "all"
            search, unfinished = find(program, tree, probe, known_swaps(before), exhaustive=everything)
        bench = Bench(program, rulers, workshop, budget.build)
        setting = setting_of(
            builder, model, inputs, kwargs, converters=convert_map or (), decompose=decompose, target=target, pipeline=pipeline
        )
        edge = probe.whole_edge if curable(tree, search) else None
        explainer = Explainer(kinds_of(culprits_of(tree, probe, search)), bench, setting, edge, say)
        if explain and not unfinished:
            unfinished = explained(explainer)
        findings = findings_of(tree, probe, search, explainer.explanations if explain else ())
    options["exhaustive"] = "yes" if everything else "no"
    if program.ignored:
        options["not compared"] = f"outputs of type {', '.join(sorted(program.ignored))}"
    if len(program.samples) > 1:
        options["samples"] = str(len(program.samples))
    return assemble(
        tree,
        findings,
        environment={**tvm_environment(), **options},
        cost=Cost(builder.builds - probe.further_builds, clock.seconds, probe.further_builds + bench.builds),
        unfinished=unfinished,
        fingerprint=mark,
        before=before,
    )


@contextmanager
def _native_build(program: Program, workshop: Workshop, *, at_once: bool) -> Iterator[Callable[[], AsBuilt | str]]:
    """The user's own build, made and run while PyTorch runs, or when it is asked for; the reason if it cannot be made."""

    def import_it() -> Any:
        return workshop.import_one("", program.exported, ())

    def run(imported: Any) -> AsBuilt | str:
        built = workshop.failures[""] if imported is None else workshop.build_as_given(imported)
        return built if isinstance(built, str) else AsBuilt.of(program, built, workshop.clock)

    if at_once:
        with in_background(run, import_it()) as ran:
            yield ran
    else:
        yield cache(lambda: run(import_it()))


def _rulers(program: Program, clock: Stopwatch) -> list[Ruler]:
    with clock("reference"):
        return [Ruler(program, run_reference(program, number), clock) for number in range(len(program.samples))]


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
