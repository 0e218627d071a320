"""Reports as files: versioned JSON that any strict parser reads, and no pickled code.

JSON has no NaN and no infinity. They are written as the strings ``"nan"``, ``"inf"`` and ``"-inf"``, only where a
number is expected, so a string cannot be mistaken for one. Reading is as strict as writing: a file that is not
exactly a report raises `ReportError` with one sentence; a wrong type is never coerced into the right one.
"""

import json
import math
import os
import secrets
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args, get_origin

import cattrs
from cattrs.gen import make_dict_structure_fn

from bisect_tvm.errors import InputError, ReportError
from bisect_tvm.numerics.verdict import Verdict

# report.py imports this module, so its types are known here to the type checker only.
if TYPE_CHECKING:
    from bisect_tvm.report.report import Report

FORMAT = "bisect_tvm.report"
VERSION = 2

_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def save(report: "Report", path: Path) -> Path:
    """Write `report` to `path` atomically: a reader sees the old file or the new one, never half of one."""
    content = {"format": FORMAT, "version": VERSION, **_CONVERTER.unstructure(report)}
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    # In the same folder, for a rename across file systems is not atomic.
    temporary = path.parent / f".bisect_tvm-{secrets.token_hex(8)}.tmp"
    try:
        try:
            temporary.write_text(text, encoding="utf-8")
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"The report cannot be written to {path}: {error.strerror}.") from error
    return path


def load(path: Path, cls: "type[Report]") -> "Report":
    """Read a report of class `cls` from `path`, or raise `ReportError`."""
    content = _read_json(path)
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise ReportError(f"{path} is JSON, but not a report that bisect_tvm saved.")
    version = content.pop("version", None)
    if type(version) is not int or version < 1:
        raise ReportError(f"{path} is damaged: its version is {version!r}, not a number from 1.")
    if version > VERSION:
        raise ReportError(
            f"{path} is a report of version {version}, and this bisect_tvm reads up to version {VERSION}; "
            "read it with a newer bisect_tvm."
        )
    try:
        report = _CONVERTER.structure(content, cls)
    except cattrs.BaseValidationError as error:
        raise ReportError(f"{path} is damaged: {_first_complaint(error)}.") from error
    if complaint := _inconsistency(report):
        raise ReportError(f"{path} is damaged: {complaint}.")
    return report


def _read_json(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ReportError(f"There is no report at {path}.") from error
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ReportError(f"{path} is not a report: it is not text in UTF-8.") from error
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        # An unfinished string is reported where it begins, so the end of the file has to be looked at as well.
        ends_early = not text[error.pos :].strip() or not text.rstrip().endswith("}")
        if text.lstrip().startswith("{") and ends_early:
            raise ReportError(f"{path} is truncated: it ends in the middle of a report.") from error
        raise ReportError(f"{path} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from error
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path} is not a report: {error}.") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"strict JSON has no {name}")


def _inconsistency(report: "Report") -> str | None:
    """What in a well-typed report contradicts itself; the properties of `Report` rely on none of it."""
    if not report.tree:
        return "its tree is empty"
    seen: set[str] = set()
    for entry in report.tree:
        if entry.id in seen:
            return f"its tree has two components {entry.id!r}"
        if (entry.parent is None) != (not seen) or (entry.parent is not None and entry.parent not in seen):
            return f"component {entry.id!r} does not follow its parent"
        seen.add(entry.id)
    named = [*report.culprit_ids, *(id for each in report.explanations for id in each.culprit_ids)]
    named += [id for kept in (report.proof.kept if report.proof else ()) for id in kept.culprit_ids]
    unknown = [identity for identity in named if identity not in seen]
    return f"culprit {unknown[0]!r} is not in its tree" if unknown else None


def _first_complaint(error: BaseException, where: str = "") -> str:
    """The first of the nested validation errors, as ``tree[3].deviation64: expected ...``."""
    if isinstance(error, cattrs.BaseValidationError):
        child = error.exceptions[0]
        notes = getattr(child, "__notes__", [])
        step = next((note for note in notes if isinstance(note, cattrs.AttributeValidationNote)), None)
        if step is not None:
            return _first_complaint(child, f"{where}.{step.name}".lstrip("."))
        item = next((note for note in notes if isinstance(note, cattrs.IterableValidationNote)), None)
        return _first_complaint(child, where if item is None else f"{where}[{item.index!r}]")
    place = f" in {where}" if where else ""
    if isinstance(error, cattrs.ForbiddenExtraKeysError):
        return f"unknown field {min(error.extra_fields)!r}{place}"
    if isinstance(error, KeyError):
        return f"no field {error.args[0]!r}{place.rpartition('.')[0]}"
    return f"{error}{place}"


def _float(value: object, _: object) -> float:
    if isinstance(value, str) and value in _NONFINITE:
        return _NONFINITE[value]
    if type(value) is float or type(value) is int:
        return float(value)
    raise TypeError(f"{value!r} is not a number")


def _scalar(value: object, _: object) -> float | int | bool:
    if type(value) is bool or type(value) is int:
        return value
    return _float(value, None)


def _exactly(kind: type, name: str) -> Callable[[object, object], Any]:
    """A hook that takes values of JSON's own type `kind` and refuses all others (cattrs would coerce them)."""

    def structure(value: object, _: object) -> object:
        if type(value) is not kind:
            raise TypeError(f"{value!r} is not {name}")
        return value

    return structure


def _tuple_hook(annotation: Any, converter: cattrs.BaseConverter) -> Callable[[object, object], Any]:
    """``tuple[X, ...]`` from a JSON list alone; cattrs would take a string for a sequence of letters."""
    # An annotation made at run time is a value to the type checker, not a type.
    items: Any = list.__class_getitem__(get_args(annotation)[0])
    structure_list = converter.get_structure_hook(items)

    def structure(value: object, _: object) -> tuple[Any, ...]:
        if type(value) is not list:
            raise TypeError(f"{value!r} is not a list")
        return tuple(structure_list(value, items))

    return structure


def _mapping_hook(annotation: Any, converter: cattrs.BaseConverter) -> Callable[[object, object], Any]:
    """Dataclasses and dicts from a JSON object alone, with no field unknown."""
    if get_origin(annotation) is dict:
        fill = cattrs.gen.mapping_structure_factory(annotation, converter)
    else:
        fill = make_dict_structure_fn(annotation, converter, _cattrs_forbid_extra_keys=True)

    def structure(value: object, _: object) -> Any:
        if type(value) is not dict:
            raise TypeError(f"{value!r:.40} is not a JSON object")
        return fill(value, annotation)

    return structure


def _is_tuple(annotation: Any) -> bool:
    return get_origin(annotation) is tuple


def _is_mapping(annotation: Any) -> bool:
    return get_origin(annotation) is dict or is_dataclass(annotation)


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter()
    converter.register_unstructure_hook(float, lambda number: number if math.isfinite(number) else str(float(number)))
    converter.register_structure_hook(float, _float)
    converter.register_structure_hook(int, _exactly(int, "an integer"))
    converter.register_structure_hook(bool, _exactly(bool, "true or false"))
    converter.register_structure_hook(str, _exactly(str, "a string"))
    # A StrEnum is a str, so without a hook of its own the one for str would be taken.
    converter.register_structure_hook(Verdict, lambda value, _: Verdict(value))
    scalar: Any = float | int | bool
    converter.register_structure_hook(scalar, _scalar)
    converter.register_structure_hook_factory(_is_tuple, _tuple_hook)
    converter.register_structure_hook_factory(_is_mapping, _mapping_hook)
    return converter


_CONVERTER = _make_converter()
