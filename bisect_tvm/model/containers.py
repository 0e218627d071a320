"""Containers that tensors sit in: those that torch knows, and dataclasses that nobody registered with it."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch

# torch.utils._pytree is private; torch 2.13 has no public way to flatten the containers that torch.export accepts.
from torch.utils import _pytree as pytree


class Adapter(torch.nn.Module):
    """Takes and returns flat tensors, around a model whose signature holds anything else.

    torch.export refuses dataclasses that nobody registered, and TVM's importer refuses inputs that are not tensors (a flag, None).
    Registering the user's classes with torch would be a lasting global change; a wrapper is not.
    """

    def __init__(self, model: torch.nn.Module, rebuild: Callable[[list[torch.Tensor]], Any]) -> None:
        super().__init__()
        self.model = model
        self._rebuild = rebuild
        self.ignored: set[str] = set()
        self.training = model.training

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run the wrapped model on the tensors in their places, and return the tensors in what it gives."""
        args, keywords = self._rebuild(list(tensors))
        result = self.model(*args, **keywords)
        leaves, _ = _leaves(result)
        plain = torch.Tensor | bool | int | float | str | None
        self.ignored.update(f"{type(leaf).__qualname__}" for leaf in leaves if not isinstance(leaf, plain))
        return tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))


def _leaves(value: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """Flatten the containers that torch knows, and dataclasses that nobody registered with it."""
    leaves, spec = pytree.tree_flatten(value)
    parts = [_dataclass_parts(leaf) for leaf in leaves]

    def rebuild(flat: list[Any]) -> Any:
        taken = iter(flat)
        whole = [next(taken) if part is None else part[1]([next(taken) for _ in part[0]]) for part in parts]
        return pytree.tree_unflatten(whole, spec)

    return [x for leaf, part in zip(leaves, parts, strict=True) for x in ([leaf] if part is None else part[0])], rebuild


def _dataclass_parts(leaf: Any) -> tuple[list[Any], Callable[[list[Any]], Any]] | None:
    if not dataclasses.is_dataclass(leaf) or isinstance(leaf, type):
        return None
    names = [field.name for field in dataclasses.fields(leaf) if hasattr(leaf, field.name)]
    flat, rebuild_fields = _leaves([getattr(leaf, name) for name in names])

    def rebuild(values: list[Any]) -> Any:
        made = copy.copy(leaf)
        for name, value in zip(names, rebuild_fields(values), strict=True):
            object.__setattr__(made, name, value)  # frozen dataclasses too
        return made

    return flat, rebuild


def take_tensors(value: Any) -> tuple[list[torch.Tensor], Callable[[list[torch.Tensor]], Any]]:
    """Return the tensors in `value`, and a function that puts others in their places (all else stays as it is)."""
    leaves, rebuild = _leaves(value)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def put(tensors: list[torch.Tensor]) -> Any:
        replaced = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            replaced[place] = tensor
        return rebuild(replaced)

    return [leaves[i] for i in places], put


def split_tensors(value: Any) -> tuple[list[torch.Tensor], str]:
    """The tensors in `value`, and a description of all else, equal for values that differ in their tensors only."""
    tensors, put = take_tensors(value)
    blank = put([torch.empty(0)] * len(tensors))
    return tensors, repr(pytree.tree_map(lambda leaf: "tensor" if isinstance(leaf, torch.Tensor) else leaf, blank))


def holds_more_than_tensors(value: Any) -> bool:
    """True if a leaf of `value`, as torch flattens it, is no tensor."""
    return any(not isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value))
