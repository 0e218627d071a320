"""Step 1: from a PyTorch model and inputs to a `Program`, the flat graph that TVM's importer will see.

The model is exported with `torch.export` and, as TVM's importer does by default, decomposed to core ATen. The user's model is left
as it was: nothing is converted or switched, and the random number generators continue where they were.
"""

import contextlib
import copy
import dataclasses
import functools
import io
import sys
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from bisect_tvm.errors import CaptureError, InputError, one_line
from bisect_tvm.model.arguments import arguments_of, flat_inputs, naming, samples_of, tensors_like, type_name, user_inputs
from bisect_tvm.model.containers import Adapter, holds_more_than_tensors, take_tensors
from bisect_tvm.model.mutation import refuse_aliased_mutation
from bisect_tvm.model.training import training_differences

TORCH_FOLDER = str(Path(torch.__file__).parent)


@dataclasses.dataclass(frozen=True)
class Program:
    """A captured model: the graph, and a value for each of its placeholders."""

    exported: ExportedProgram
    """The program as TVM's importer reads it: decomposed, unless the user asked for the undecomposed one."""
    bindings: Mapping[str, torch.Tensor]
    """Placeholder name -> parameter, buffer, constant or user input of the first sample, in the model's own precision."""
    samples: tuple[Mapping[str, torch.Tensor], ...]
    """For each sample: placeholder name -> user input."""
    inputs: tuple[str, ...]
    """Names of the placeholders that are user inputs, in calling order."""
    prefix: str
    """Path of the user's model inside the exported one: ``""``, or ``"model"`` where it had to be wrapped (see `Adapter`)."""
    ignored: frozenset[str]
    """Classes of returned objects that torch cannot look into (a key-value cache); what they hold is not compared."""
    undecomposed: ExportedProgram | None = None
    """The program before it was decomposed; None where it was not."""

    @functools.cached_property
    def nodes(self) -> Mapping[str, fx.Node]:
        """The graph's nodes by name, in execution order."""
        return {node.name: node for node in self.exported.graph.nodes}


def capture(model: object, inputs: Any, kwargs: Mapping[str, Any] | None, *, decompose: bool) -> Program:
    """Export `model` with `inputs`.

    Args:
        model: a `torch.nn.Module` in evaluation mode, or a `torch.export.ExportedProgram`.
        inputs: a tensor, a tuple of positional arguments, or a dict of keyword arguments. Tensors may sit in nested tuples,
            lists, dicts and dataclasses. Or a list of such samples; the model is exported with the first one.
        kwargs: further keyword arguments.
        decompose: decompose to core ATen first, as TVM's importer does by default.

    Raises:
        InputError: `model` is not a module, is in training mode, or rejects the inputs.
        CaptureError: `torch.export` cannot capture the model; its own reason and the line are in the message.
    """
    samples = [arguments_of(sample, kwargs) for sample in samples_of(inputs)]
    args, keywords = samples[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(model, ExportedProgram):
            exported, prefix, wrapped, ignored = model, "", False, set[str]()
        elif isinstance(model, torch.nn.Module):
            _require_evaluation_mode(model)
            exported, wrapped, ignored = _export(model, args, keywords)
            prefix = "model" if wrapped else ""
        else:
            raise InputError(f"`model` must be a torch.nn.Module or a torch.export.ExportedProgram, but it is {type_name(model)}.")
        flat = []
        for number, (args, keywords) in enumerate(samples):
            with naming(number, len(samples)):
                flat.append(tensors_like(samples[0], (args, keywords)) if wrapped else flat_inputs(exported, args, keywords))
        undecomposed = exported if decompose else None
        if decompose:
            exported = _decompose(exported)
    return _bind(exported, flat, prefix, ignored, undecomposed)


def _require_evaluation_mode(model: torch.nn.Module) -> None:
    differences = training_differences(model)
    if differences:
        raise InputError(
            f"The model is in training mode, where it computes something else than when it is deployed: {differences}. "
            "Call model.eval() first; if training mode is meant, pass torch.export.export(model, inputs) instead of the model."
        )


# ---------------------------------------------------------------------------------------------------------------- export


def _export(model: torch.nn.Module, args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[ExportedProgram, bool, set[str]]:
    """Export as the user would; wrapped only where the plain export cannot work (see `Adapter`), which is told."""
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError("`model` is a scripted or traced module; torch.export needs the original torch.nn.Module.")
    if not holds_more_than_tensors((args, keywords)):
        try:
            exported = _export_quietly(model, args, keywords)
        except Exception as error:
            if not _is_about_containers(error):
                raise _why_not_exported(model, args, keywords, error) from error
        else:
            return exported, False, set()
    tensors, rebuild = take_tensors((args, keywords))
    adapter = Adapter(model, rebuild)
    try:
        exported = _export_quietly(adapter, tuple(tensors), {})
    except Exception as error:
        raise _why_not_exported(model, args, keywords, error) from error
    return exported, True, adapter.ignored


def _export_quietly(model: torch.nn.Module, args: tuple[Any, ...], keywords: dict[str, Any]) -> ExportedProgram:
    """Export, and drop the graphs that torch prints to standard error before it raises."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            exported: ExportedProgram = torch.export.export(model, args, keywords)
    except Exception as error:
        error.add_note(printed.getvalue())
        raise
    print(printed.getvalue(), end="", file=sys.stderr)  # noqa: T201 - the user's own, from a forward that worked
    return exported


def _decompose(exported: ExportedProgram) -> ExportedProgram:
    try:
        decomposed: ExportedProgram = exported.run_decompositions()
    except Exception as error:
        raise CaptureError(
            f"PyTorch cannot decompose the exported program, as TVM's importer does first: {one_line(error)}. Use "
            "decompose=False, or write that part otherwise (for Hugging Face attention: attn_implementation='eager')."
        ) from error
    return decomposed


def _is_about_containers(error: Exception) -> bool:
    text = str(error)
    return "pytree" in text or "register_dataclass" in text or "Unsupported output type" in text


def _bind(
    exported: ExportedProgram, flat: list[list[Any]], prefix: str, ignored: set[str], undecomposed: ExportedProgram | None
) -> Program:
    samples = []
    for number, values in enumerate(flat):
        with naming(number, len(flat)):
            samples.append(user_inputs(exported, values))
    buffers = dict(exported.named_buffers())
    bindings: dict[str, torch.Tensor] = dict(samples[0])
    for spec in exported.graph_signature.input_specs:
        name = spec.arg.name
        if spec.kind is InputKind.USER_INPUT:
            continue
        if spec.kind is InputKind.PARAMETER:
            bindings[name] = exported.state_dict[str(spec.target)].detach()
        elif spec.kind is InputKind.BUFFER:
            bindings[name] = buffers[str(spec.target)].detach()
        elif spec.kind is InputKind.CONSTANT_TENSOR:
            bindings[name] = exported.constants[str(spec.target)].detach()
        else:
            raise CaptureError(f"The exported program takes {spec.kind.name} {name!r}, which cannot be compared yet.")
    program = Program(exported, bindings, tuple(samples), tuple(samples[0]), prefix, frozenset(ignored), undecomposed)
    refuse_aliased_mutation(program.nodes)
    return program


# ---------------------------------------------------------------------------------------------------------------- errors


def why_not_run(model: object, inputs: Any, kwargs: Mapping[str, Any] | None, error: CaptureError) -> InputError | CaptureError:
    """Tell inputs that the model itself rejects from a graph that cannot be run node by node."""
    if not isinstance(model, torch.nn.Module):
        return error
    rejections = (_rejection(model, *arguments_of(sample, kwargs)) for sample in samples_of(inputs))
    return next(filter(None, rejections), error)


def _rejection(model: torch.nn.Module, args: tuple[Any, ...], keywords: dict[str, Any]) -> InputError | None:
    """What the model says to the inputs when it is simply called. A copy is, for the forward may change buffers and attributes."""
    try:
        shared = {id(parameter): parameter for parameter in model.parameters()}
        with torch.no_grad():
            copy.deepcopy(model, shared)(*args, **keywords)
    except Exception as own:
        return InputError(f"The model rejects the inputs: {one_line(own)}{_place(own)}.")
    return None


def _why_not_exported(
    model: torch.nn.Module, args: tuple[Any, ...], keywords: dict[str, Any], error: Exception
) -> InputError | CaptureError:
    """Tell inputs that the model itself rejects from a model that only torch.export rejects."""
    return _rejection(model, args, keywords) or CaptureError(
        f"torch.export cannot capture the model, although it runs in eager mode: {one_line(error)}{_place(error)}. "
        "See https://docs.pytorch.org/docs/stable/export.html on what it needs, or export a part of the model."
    )


def _place(error: BaseException) -> str:
    """The innermost line of the user's code in the traceback, or in the message where export wrote it there."""
    frames = traceback.extract_tb(error.__traceback__)
    own_folder = str(Path(__file__).parent.parent)
    outside = [f for f in frames if not f.filename.startswith((TORCH_FOLDER, own_folder, "<"))]
    return f" (at {outside[-1].filename}:{outside[-1].lineno})" if outside else ""
