"""What the user passes in: one sample or several, as the model takes them, checked against what was exported."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument
from torch.utils import _pytree as pytree  # private, see containers.py

from bisect_tvm.errors import InputError
from bisect_tvm.model.containers import split_tensors


def samples_of(inputs: Any) -> list[Any]:
    """The samples in `inputs`, which are several only in a list. Raises `InputError`."""
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
def naming(number: int, count: int) -> Iterator[None]:
    """Say which sample it is that cannot be used."""
    try:
        yield
    except InputError as error:
        if number == 0:
            raise
        raise InputError(
            f"Sample {number} of {count} in `inputs` (counted from 0) differs in kind from the first: {error}"
        ) from error


def arguments_of(inputs: Any, kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and keyword arguments of one sample. Raises `InputError`."""
    if isinstance(inputs, tuple) and not hasattr(inputs, "_fields"):
        args, keywords = inputs, {}
    elif isinstance(inputs, Mapping):  # also Hugging Face's BatchEncoding
        args, keywords = (), dict(inputs)
    else:
        args, keywords = (inputs,), {}
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise InputError(f"`kwargs` must be a dict of keyword arguments, but it is {type_name(kwargs)}.")
    twice = sorted(set(keywords) & set(kwargs or {}))
    if twice:
        raise InputError(f"{_listed(twice)} is given both in `inputs` and in `kwargs`; give it once.")
    keywords.update(kwargs or {})
    args, keywords = pytree.tree_map(_usable, (args, keywords))
    bad = [key for key in keywords if not isinstance(key, str)]
    if bad:
        raise InputError(f"The keys of an input dict name the model's arguments, but {bad[0]!r} is {type_name(bad[0])}.")
    return args, keywords


def _usable(value: Any) -> Any:
    """Tensors made in inference mode cannot be traced; a copy can."""
    return value.clone() if isinstance(value, torch.Tensor) and value.is_inference() else value


def flat_inputs(exported: ExportedProgram, args: tuple[Any, ...], keywords: dict[str, Any]) -> list[Any]:
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


def tensors_like(first: Any, given: Any) -> list[Any]:
    """The tensors of a sample for a wrapped model, in which all else is fixed as it was in the first sample."""
    (_, fixed), (tensors, other) = (split_tensors(sample) for sample in (first, given))
    if fixed != other:
        raise InputError("its values that are no tensors, or the containers around its tensors, are not the same.")
    return list(tensors)


def user_inputs(exported: ExportedProgram, flat: list[Any]) -> dict[str, torch.Tensor]:
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


def _require_same_type(exported: ExportedProgram, name: str, value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        raise InputError(f"Input {name!r} of the exported program is a tensor, but {type_name(value)} was given.")
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


def type_name(value: object) -> str:
    """How a message calls the type of what was passed."""
    kind = type(value)
    what = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"the class {value.__qualname__}; pass an instance" if isinstance(value, type) else f"of type {what}"


def _listed(names: Any) -> str:
    """Names for a message."""
    return ", ".join(repr(name) for name in names) or "none"
