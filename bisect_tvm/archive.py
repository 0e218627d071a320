"""Reading a ``.pt2`` file that `torch.export.save` wrote, without running code that is hidden in it.

`torch.export.load` warns that it unpickles, and a hostile archive has more ways than that to run code: weights and
constants marked as pickled, compiled libraries, sizes as text that sympy evaluates, and names that torch.fx pastes
into generated Python. So the archive is checked first, by the reader that torch itself uses, and refused if it holds
more than a plain program: only registered operators, plain identifiers, and sizes made of numbers, symbols and
arithmetic. Unpickling is held to tensors and plain data.

What remains: the operators themselves. A program may call any operator that torch registers, as any model may.
"""

import ast
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

# `torch.export.load` falls back to a format of torch 2.7 that is not checked here; the function below it does not.
from torch.export.pt2_archive._package import PT2ArchiveReader, load_pt2

from bisect_tvm.errors import InputError

_MODEL = "models/model.json"

# Members that torch opens with pickle, with TorchScript's unpickler or with dlopen.
_EXECUTABLE = ("custom_obj_", "opaque_obj_", "aotinductor")

# What may be called beside torch's registered operators: arithmetic on sizes.
_SIZE_ARITHMETIC = re.compile(
    r"_operator\.(add|sub|mul|floordiv|truediv|mod|pow|neg|pos|eq|ne|lt|le|gt|ge|and_|or_|not_|lshift|rshift|getitem)"
    r"|math\.(ceil|floor|trunc|sqrt)|torch\.(sym_\w+|_sym_sqrt)"
)

# A call of one of sympy's classes (all in capitals, unlike eval or open), or plain arithmetic.
_SIZE_SYNTAX = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Load, ast.keyword, ast.Call),
    *(ast.BinOp, ast.UnaryOp, ast.Compare, ast.operator, ast.unaryop, ast.cmpop),
)


def load_program(path: Path) -> torch.export.ExportedProgram:
    """Load the program in `path`.

    Raises:
        InputError: The file is missing, is not such an archive, or would run code when loaded.
    """
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    try:
        _check(path)
        with _unpickling_plain_data():
            program: torch.export.ExportedProgram = load_pt2(path).exported_programs["model"]
    except InputError:
        raise
    except Exception as error:  # torch raises whatever its parsers raise.
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise InputError(
            f"{path} cannot be loaded as a program saved by torch.export.save: {type(error).__name__}: {reason}."
        ) from error
    return program


def _check(path: Path) -> None:
    """Refuse an archive that holds anything but a plain program."""
    archive = PT2ArchiveReader(str(path))
    names = archive.get_file_names()
    for name in names:
        # Zip readers may match names without regard to case.
        if any(word in name.lower() for word in _EXECUTABLE):
            raise InputError(f"{path} is refused: {name} in it holds code or pickled objects, which run when loaded.")
    if [name for name in names if name.startswith("models/")] != [_MODEL]:
        raise InputError(f"{path} is not an archive of one program that torch.export.save of torch 2.8 or newer wrote.")
    for key, value in _strings(json.loads(archive.read_string(_MODEL))):
        if not _is_harmless(key, value):
            raise InputError(f"{path} is refused: its {key} {value!r:.80} could run code when loaded.")


def _strings(tree: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every string in a JSON document, with the key that it, or the list around it, stands under."""
    pending = [(key, tree)]
    while pending:
        key, value = pending.pop()
        if isinstance(value, dict):
            pending += value.items()
        elif isinstance(value, list):
            pending += [(key, item) for item in value]
        elif isinstance(value, str):
            yield key, value


def _is_harmless(key: str, value: str) -> bool:
    match key:
        case "name" | "as_name" | "forward_arg_names":
            return value == "" or value.isidentifier()
        case "target":
            return _SIZE_ARITHMETIC.fullmatch(value) is not None or _is_registered_operator(value)
        case "expr_str":
            return _is_size(value)
        case "in_spec" | "out_spec":
            return "__enum__" not in value  # torch would import the module that it names.
        case _:
            return True


def _is_registered_operator(target: str) -> bool:
    if not re.fullmatch(r"torch\.ops(\.\w+){2,3}", target):
        return False
    try:
        operator = attrgetter(target.removeprefix("torch."))(torch)
    except AttributeError:
        return True  # Not known to torch: loading it fails with torch's own, better explanation.
    return isinstance(operator, torch._ops.OpOverload | torch._ops.HigherOrderOperator)


def _is_size(expression: str) -> bool:
    """Whether sympy can evaluate this text without doing anything but arithmetic."""
    try:
        tree = ast.parse(expression, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    names_of_symbols: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, _SIZE_SYNTAX):
            return False
        if isinstance(node, ast.Call):
            if not (isinstance(node.func, ast.Name) and node.func.id[:1].isupper()):
                return False
            if node.func.id == "Symbol":
                names_of_symbols.update(id(argument) for argument in node.args)
        if isinstance(node, ast.Constant) and not isinstance(node.value, int | float):
            # sympy's classes evaluate strings once more; a symbol's name is only a name.
            is_name = isinstance(node.value, str) and node.value.isidentifier()
            if not (is_name and id(node) in names_of_symbols):
                return False
    return True


@contextmanager
def _unpickling_plain_data() -> Iterator[None]:
    """Hold every `torch.load` to weights_only=True: the loader itself falls back to unpickling anything."""
    force, forbid = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
    before = {name: os.environ.pop(name, None) for name in (force, forbid)}
    os.environ[force] = "1"
    try:
        yield
    finally:
        del os.environ[force]
        os.environ.update({name: value for name, value in before.items() if value is not None})
