"""Rebuild TVM IR with other dtypes, constants or function names, node by node.

TVM 0.27 has no Python mutator that covers both Relax and TIR. Every IR node can be taken apart and made again through TVM-FFI's
reflection, which covers all of them, present and future, in one place: no formula, attribute or node kind needs a line of its own.
"""

from collections.abc import Callable, Mapping
from typing import Any

import tvm
import tvm_ffi

# Nodes that hold no types or that are looked up by identity.
_KEPT = frozenset({"ir.Op", "ir.SourceName", "ir.Span", "ir.SequentialSpan", "ir.VDevice", "ir.EnvFunc", "relax.ExternFunc"})
_KEPT_PREFIXES = ("target.",)

Replace = Callable[[Any], Any]


class Rewriter:
    """Rebuild IR objects, sharing kept: an object met twice is rebuilt once.

    Args:
        dtype: maps a dtype, such as float32 to float64.
        tensor: maps a constant tensor.
        number: maps a floating-point immediate, given its value and its dtype.
        rename: maps the name of a function in the module.
        variables: rebuilt global variables by name, shared by all rewriters whose functions go into one module: there, a
            variable is known by identity.
    """

    def __init__(
        self,
        *,
        dtype: Callable[[str], str] = lambda name: name,
        tensor: Replace = lambda tensor: tensor,
        number: Callable[[float, str], float] = lambda value, dtype: value,
        rename: Callable[[str], str] = lambda name: name,
        variables: dict[str, Any] | None = None,
    ) -> None:
        self._dtype = dtype
        self._tensor = tensor
        self._number = number
        self._rename = rename
        self._variables = {} if variables is None else variables
        # Keyed by handle; the objects are kept alive so that a handle is not used again for another.
        self._made: dict[int, tuple[Any, Any]] = {}

    def functions(self, functions: Mapping[Any, Any]) -> dict[Any, Any]:
        """Rebuild all functions of a module, keyed by their rebuilt names."""
        return {self(name): self._with_symbol(self(function)) for name, function in functions.items()}

    def __call__(self, value: Any) -> Any:
        """Rebuild one object and all it holds; the object itself is returned where nothing changed."""
        if isinstance(value, tvm_ffi.dtype):  # a str, too
            return tvm_ffi.dtype(self._dtype(str(value)))
        if value is None or isinstance(value, bool | int | float | str | bytes):
            return value
        if isinstance(value, list | tuple):
            return type(value)(self(item) for item in value)
        if not isinstance(value, tvm_ffi.Object | tvm.runtime.Tensor):
            return value
        handle = value.__chandle__()
        if handle not in self._made:
            self._made[handle] = (value, self._rebuild(value))
        return self._made[handle][1]

    def _rebuild(self, value: Any) -> Any:
        if isinstance(value, tvm.runtime.Tensor):
            return self._tensor(value)
        if isinstance(value, tvm_ffi.Array):
            items = [self(item) for item in value]
            return value if all(map(_same, value, items)) else tvm_ffi.convert(items)
        if isinstance(value, tvm_ffi.Map):
            pairs = {self(key): self(item) for key, item in value.items()}
            return tvm_ffi.convert(pairs)
        kind = type(value).__tvm_ffi_type_info__.type_key
        if kind in _KEPT or kind.startswith(_KEPT_PREFIXES):
            return value
        if kind == "ir.DictAttrs":
            return tvm.ir.make_node(kind, **{key: self(value[key]) for key in value.keys()})  # noqa: SIM118 - no iteration
        return self._rebuild_fields(value, kind)

    def _rebuild_fields(self, value: Any, kind: str) -> Any:
        old = {name: getattr(value, name) for name in _field_names(type(value))}
        new = {name: self(field) for name, field in old.items()}
        if kind == "ir.FloatImm":
            new["value"] = self._number(old["value"], str(old["ty"].dtype))
        if kind == "ir.GlobalVar":
            new["name_hint"] = self._rename(old["name_hint"])
        same = all(_same(old[name], new[name]) for name in old)
        made = value if same else tvm.ir.make_node(kind, **new)
        return self._variables.setdefault(new["name_hint"], made) if kind == "ir.GlobalVar" else made

    def _with_symbol(self, function: Any) -> Any:
        """A function that names itself in its attributes must follow its new name."""
        symbol = function.attrs["global_symbol"] if function.attrs and "global_symbol" in function.attrs else None
        if symbol is None or self._rename(str(symbol)) == str(symbol):
            return function
        return function.with_attr("global_symbol", self._rename(str(symbol)))


_NAMES: dict[type, tuple[str, ...]] = {}


def _field_names(kind: type) -> tuple[str, ...]:
    """All reflected fields of a node type, inherited ones included."""
    if kind not in _NAMES:
        info, chain = kind.__tvm_ffi_type_info__, []  # type: ignore[attr-defined]
        while info is not None:
            chain.append(info)
            info = info.parent_type_info
        _NAMES[kind] = tuple(dict.fromkeys(field.name for each in reversed(chain) for field in each.fields))
    return _NAMES[kind]


def _same(old: Any, new: Any) -> bool:
    if old is new:
        return True
    if isinstance(old, tvm_ffi.Object | tvm.runtime.Tensor):
        return isinstance(new, tvm_ffi.Object | tvm.runtime.Tensor) and old.__chandle__() == new.__chandle__()
    return type(old) is type(new) and bool(old == new)
