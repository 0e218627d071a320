"""How the user converts the model, as far as the code of a workaround depends on it."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.export import ExportedProgram

from bisect_tvm.lowering.build import Builder, unoptimised


@dataclass(frozen=True)
class Setting:
    """What stands in the code."""

    model: Literal["module", "program"]
    inputs: str
    """Arguments of `torch.export.export` behind the model."""
    converters: frozenset[str]
    """Operators in the user's convert map."""
    decompose: bool
    target: str
    """As Python."""
    target_unoptimised: str
    pipeline: str
    """As Python: what a module can be given to; "" for TVM's default."""
    is_list: bool
    """The pipeline is a list of passes."""
    is_complete: bool
    """Nothing has to follow the pipeline, else TVM's default one does."""


def setting_of(
    builder: Builder,
    model: object,
    inputs: Any,
    kwargs: object,
    *,
    converters: Iterable[str],
    decompose: bool,
    target: Any,
    pipeline: Any,
) -> Setting:
    """Describe how the user called `locate`: its arguments, and the builder that was made of them and has been used."""
    own = builder.pipeline
    return Setting(
        model="program" if isinstance(model, ExportedProgram) else "module",
        inputs=_inputs(inputs, kwargs),
        converters=frozenset(converters),
        decompose=decompose,
        target=repr(target) if isinstance(target, str | dict) else repr(json.loads(str(target))),
        target_unoptimised=repr(json.loads(str(unoptimised(builder.target)))),
        pipeline="" if own.is_default else _pipeline(pipeline),
        is_list=own.is_list,
        is_complete=own.is_complete,
    )


def _inputs(inputs: Any, kwargs: object) -> str:
    first = inputs[0] if isinstance(inputs, list) else inputs
    name = "inputs[0]" if isinstance(inputs, list) else "inputs"
    more = ", kwargs" if kwargs else ""
    if isinstance(first, dict):
        return f"(), {{**{name}, **kwargs}}" if more else f"(), {name}"
    return f"({name},){more}" if isinstance(first, torch.Tensor) else f"{name}{more}"


def _pipeline(pipeline: Any) -> str:
    if isinstance(pipeline, str):
        return f"tvm.relax.get_pipeline({pipeline!r})"
    return "tvm.transform.Sequential(list(pipeline))" if isinstance(pipeline, list | tuple) else "pipeline"
