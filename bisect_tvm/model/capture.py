"""Step 1: from a PyTorch model and inputs to a `Program`, the flat graph that TVM's importer will see.

The model is exported with `torch.export` and, as TVM's importer does by default, decomposed to core ATen. The user's model is left
as it was: nothing is converted or switched, and the random number generators continue where they were.
"""

import contextlib
import copy
import dataclasses
import io
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument
from torch.utils import _pytree as pytree  # private, see containers.py

from bisect_tvm.errors import CaptureError, InputError, one_line
from bisect_tvm.model.containers import Adapter, holds_more_than_tensors, split_tensors, take_tensors
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
    nodes: Mapping[str, fx.Node]
    """The graph's nodes by name, in execution order."""
    prefix: str
    """Path of the user's model inside the exported one: ``""``, or ``"model"`` where it had to be wrapped (see `Adapter`)."""
    ignored: frozenset[str]
    """Classes of returned objects that torch cannot look into (a key-value cache); what they hold is not compared."""


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
    samples = [_arguments(sample, kwargs) for sample in _samples(inputs)]
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
            raise InputError(f"`model` must be a torch.nn.Module or a torch.export.ExportedProgram, but it is {_type_name(model)}.")
        flat = []
        for number, (args, keywords) in enumerate(samples):
            with _naming(number, len(samples)):
                flat.append(_like(samples[0], (args, keywords)) if wrapped else _flat_inputs(exported, args, keywords))
        if decompose:
            exported = _decompose(exported)
    return _bind(exported, flat, prefix, ignored)


def _samples(inputs: Any) -> list[Any]:
    if not isinstance(inputs, list):
        return [inputs]
    if not inputs:
        raise InputError("`inputs` is an empty list; pass the model's inputs, or a list with at least one sample of them.")
    if any(isinstance(sample, list) for sample in inputs):
        raise InputError(
            "`inputs` is a list, whose elements are samples: each a tensor, a tuple of positional arguments or a dict of keyword "
            "arguments, but one is a list."
        )
    return inputs


@contextlib.contextmanager
def _naming(number: int, count: int) -> Iterator[None]:
    """Say which sample it is that cannot be used."""
    try:
        yield
    except InputError as error:
        if number == 0:
            raise
        raise InputError(
            f"Sample {number} of {count} in `inputs` (counted from 0) differs in kind from the first: {error}"
        ) from error


def _arguments(inputs: Any, kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, tuple) and not hasattr(inputs, "_fields"):
        args, keywords = inputs, {}
    elif isinstance(inputs, Mapping):  # also Hugging Face's BatchEncoding
        args, keywords = (), dict(inputs)
    else:
        args, keywords = (inputs,), {}
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise InputError(f"`kwargs` must be a dict of keyword arguments, but it is {_type_name(kwargs)}.")
    twice = sorted(set(keywords) & set(kwargs or {}))
    if twice:
        raise InputError(f"{_listed(twice)} is given both in `inputs` and in `kwargs`; give it once.")
    keywords.update(kwargs or {})
    args, keywords = pytree.tree_map(_usable, (args, keywords))
    bad = [key for key in keywords if not isinstance(key, str)]
    if bad:
        raise InputError(f"The keys of an input dict name the model's arguments, but {bad[0]!r} is {_type_name(bad[0])}.")
    return args, keywords


def _usable(value: Any) -> Any:
    """Tensors made in inference mode cannot be traced; a copy can."""
    return value.clone() if isinstance(value, torch.Tensor) and value.is_inference() else value


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


def _flat_inputs(exported: ExportedProgram, args: tuple[Any, ...], keywords: dict[str, Any]) -> list[Any]:
    """Flatten arguments in the order of the exported program's placeholders."""
    spec = exported.call_spec.in_spec
    names = list(exported.graph_signature.user_inputs)
    if not args and names and set(keywords) == set(names):
        return [keywords[str(name)] for name in names]
    expected_keywords = spec.child(1).context if spec is not None else list(keywords)
    if set(expected_keywords) != set(keywords):
        raise InputError(
            f"The exported program takes the inputs {_listed(names)}, with {_listed(expected_keywords)} given by keyword; "
            f"{len(args)} positional ones and the keywords {_listed(keywords)} were given."
        )
    ordered = {name: keywords[name] for name in expected_keywords}
    flat, given = pytree.tree_flatten((args, ordered))
    if spec is not None and given != spec:
        raise InputError(
            f"The inputs are not nested as the exported program's are: it takes {spec.num_leaves} values, {len(flat)} were given."
        )
    return flat


def _like(first: Any, given: Any) -> list[Any]:
    """The tensors of a sample for a wrapped model, in which all else is fixed as it was in the first sample."""
    (_, fixed), (tensors, other) = (split_tensors(sample) for sample in (first, given))
    if fixed != other:
        raise InputError("its values that are no tensors, or the containers around its tensors, are not the same.")
    return list(tensors)


def _user_inputs(exported: ExportedProgram, flat: list[Any]) -> dict[str, torch.Tensor]:
    """Values of the placeholders that are user inputs, by name."""
    specs = [spec for spec in exported.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    if len(flat) != len(specs):
        raise InputError(f"The exported program takes {len(specs)} values, {len(flat)} were given.")
    found = {}
    for spec, value in zip(specs, flat, strict=True):
        if isinstance(spec.arg, TensorArgument):
            _require_same_type(exported, spec.arg.name, value)
            found[spec.arg.name] = value.detach()
    return found


def _bind(exported: ExportedProgram, flat: list[list[Any]], prefix: str, ignored: set[str]) -> Program:
    samples = []
    for number, values in enumerate(flat):
        with _naming(number, len(flat)):
            samples.append(_user_inputs(exported, values))
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
    nodes = {node.name: node for node in exported.graph.nodes}
    refuse_aliased_mutation(nodes)
    return Program(exported, bindings, tuple(samples), tuple(samples[0]), nodes, prefix, frozenset(ignored))


def _require_same_type(exported: ExportedProgram, name: str, value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        raise InputError(f"Input {name!r} of the exported program is a tensor, but {_type_name(value)} was given.")
    declared = next(node.meta["val"] for node in exported.graph.find_nodes(op="placeholder") if node.name == name)
    fixed = [
        (have, want) for have, want in zip(value.shape, declared.shape, strict=False) if isinstance(want, int) and have != want
    ]
    _require_in_range(exported, name, value, declared)
    if value.dtype != declared.dtype or value.dim() != declared.dim() or fixed:
        raise InputError(
            f"Input {name!r} was exported as {declared.dtype} of shape {tuple(declared.shape)}, "
            f"but {value.dtype} of shape {tuple(value.shape)} was given."
        )


def _require_in_range(exported: ExportedProgram, name: str, value: torch.Tensor, declared: torch.Tensor) -> None:
    sizes: tuple[Any, ...] = tuple(declared.shape)  # torch declares them to be int, and they may be SymInt
    for axis, (have, size) in enumerate(zip(value.shape, sizes, strict=False)):
        allowed = exported.range_constraints.get(size.node.expr) if isinstance(size, torch.SymInt) else None
        if allowed is not None and not allowed.lower <= have <= allowed.upper:
            raise InputError(
                f"Input {name!r} was exported with {allowed.lower} to {allowed.upper} elements along axis {axis}, but has {have}."
            )


# ---------------------------------------------------------------------------------------------------------------- errors


def why_not_run(model: object, inputs: Any, kwargs: Mapping[str, Any] | None, error: CaptureError) -> InputError | CaptureError:
    """Tell inputs that the model itself rejects from a graph that cannot be run node by node."""
    if not isinstance(model, torch.nn.Module):
        return error
    rejections = (_rejection(model, *_arguments(sample, kwargs)) for sample in _samples(inputs))
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


def _type_name(value: object) -> str:
    kind = type(value)
    what = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"the class {value.__qualname__}; pass an instance" if isinstance(value, type) else f"of type {what}"


def _listed(names: Any) -> str:
    return ", ".join(repr(name) for name in names) or "none"
