"""Rebuild TVM IR with other dtypes, constants or function names, node by node.

TVM 0.27 has no Python mutator that covers both Relax and TIR. Every IR node can be taken apart and made again through TVM-FFI's
reflection, which covers all of them, present and future, in one place: no formula, attribute or node kind needs a line of its own.
"""

from collections.abc import Callable, Mapping
from typing import Any

import tvm
import tvm_ffi

# Nodes that hold no types that change, or that are looked up by identity.
_KEPT = frozenset(
    {"ir.IntImm", "ir.Op", "ir.SourceName", "ir.Span", "ir.SequentialSpan", "ir.VDevice", "ir.EnvFunc", "relax.ExternFunc"}
)
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
        form = _FORMS.get(type(value)) or _form_of(type(value))
        if form == "kept":
            return value
        if form == "dtype":
            return tvm_ffi.dtype(self._dtype(str(value)))
        if form == "sequence":
            return type(value)(self(item) for item in value)
        handle = value.__chandle__()
        if handle not in self._made:
            self._made[handle] = (value, self._rebuild(value, form))
        return self._made[handle][1]

    def _rebuild(self, value: Any, form: str) -> Any:
        if form == "tensor":
            return self._tensor(value)
        if form == "array":
            given = list(value)
            items = [self(item) for item in given]
            return value if all(map(_same, given, items)) else tvm_ffi.convert(items)
        if form == "map":
            olds = dict(value.items())
            pairs = {self(key): self(item) for key, item in olds.items()}
            return value if all(map(_same, (*olds, *olds.values()), (*pairs, *pairs.values()))) else tvm_ffi.convert(pairs)
        kind = type(value).__tvm_ffi_type_info__.type_key
        if form == "attributes":
            olds = {key: value[key] for key in value.keys()}  # noqa: SIM118 - no iteration
            made = {key: self(item) for key, item in olds.items()}
            return value if all(map(_same, olds.values(), made.values())) else tvm.ir.make_node(kind, **made)
        return self._rebuild_fields(value, kind)

    def _rebuild_fields(self, value: Any, kind: str) -> Any:
        new, same = {}, True
        for name in _field_names(type(value)):
            old = getattr(value, name)
            made = self(old)
            if kind == "ir.FloatImm" and name == "value":
                made = self._number(old, str(value.ty.dtype))
            elif kind == "ir.GlobalVar" and name == "name_hint":
                made = self._rename(old)
            same = same and _same(old, made)
            new[name] = made
        result = value if same else tvm.ir.make_node(kind, **new)
        return self._variables.setdefault(new["name_hint"], result) if kind == "ir.GlobalVar" else result

    def _with_symbol(self, function: Any) -> Any:
        """A function that names itself in its attributes must follow its new name."""
        symbol = function.attrs["global_symbol"] if function.attrs and "global_symbol" in function.attrs else None
        if symbol is None or self._rename(str(symbol)) == str(symbol):
            return function
        return function.with_attr("global_symbol", self._rename(str(symbol)))


_FORMS: dict[type, str] = {}
"""How objects of a type are rebuilt: `kept`, or what they are. By type, since there are hundreds of thousands of objects."""


def _form_of(kind: type) -> str:
    if issubclass(kind, tvm_ffi.dtype):  # a str, too
        form = "dtype"
    elif issubclass(kind, list | tuple):
        form = "sequence"
    elif issubclass(kind, tvm.runtime.Tensor):
        form = "tensor"
    elif not issubclass(kind, tvm_ffi.Object):
        form = "kept"
    elif issubclass(kind, tvm_ffi.Array):
        form = "array"
    elif issubclass(kind, tvm_ffi.Map):
        form = "map"
    else:
        key = kind.__tvm_ffi_type_info__.type_key  # type: ignore[attr-defined]
        kept = key in _KEPT or key.startswith(_KEPT_PREFIXES)
        form = "kept" if kept else "attributes" if key == "ir.DictAttrs" else "node"
    return _FORMS.setdefault(kind, form)


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
