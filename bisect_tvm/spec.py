"""What the command line is asked about: a SPEC and an inputs file become a model, its inputs and options.

A SPEC names a function, which is imported and called, or a ``.pt2`` file, which is only read. Nothing else of the
user's runs.
"""

import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from bisect_tvm.archive import load_program
from bisect_tvm.errors import InputError

_FORMS = "SPEC is file.py:function, package.module:function or a .pt2 file that torch.export.save wrote"


@dataclass(frozen=True)
class Question:
    """The arguments of `locate`."""

    model: Any
    inputs: Any
    options: dict[str, Any] = field(default_factory=dict)


@contextmanager
def opened(spec: str, inputs_file: Path | None, pipeline: str | None = None) -> Iterator[Question]:
    """Load what `spec` names; the user's modules stay importable inside the ``with``, and are gone after it.

    Args:
        spec: names the model and its inputs.
        inputs_file: the inputs of a ``.pt2`` file.
        pipeline: the name of one of TVM's pipelines, or ``file.py:name`` or ``package.module:name`` of a pass, a list of passes
            or a function from module to module; it becomes an option.

    Raises:
        InputError: `spec` or `pipeline` is malformed, what it names is missing or fails, or the inputs cannot be read.
    """
    with ExitStack() as stack:
        code = _Code(stack)
        question = _question(code, spec, inputs_file)
        if pipeline is not None:
            question.options["pipeline"] = code.value(pipeline) if ":" in pipeline else pipeline
        yield question


def _question(code: "_Code", spec: str, inputs_file: Path | None) -> Question:
    if spec.endswith(".pt2"):
        if inputs_file is None:
            raise InputError(f"{spec} holds a model and no inputs; give them with --inputs FILE.npz or FILE.pt.")
        return Question(load_program(Path(spec)), load_inputs(inputs_file))
    place, colon, function = spec.rpartition(":")
    if not (colon and place and function.isidentifier()):
        raise InputError(f"{spec!r} is not a SPEC: {_FORMS}.")
    if inputs_file is not None:
        raise InputError("--inputs belongs to a .pt2 file; a function returns its model together with the inputs.")
    return _ask(code.module(place, f"{spec!r} is not a SPEC: {_FORMS}."), function, spec)


class _Code:
    """Imports the user's files and modules, each file once; they stay importable until `stack` is closed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._files: dict[Path, ModuleType] = {}

    def module(self, place: str, complaint: str) -> ModuleType:
        """What stands before the colon: a file or a module; `complaint` if it is neither."""
        if place.endswith(".py"):
            path = Path(place).absolute()
            if not path.is_file():
                raise InputError(f"There is no file {place}.")
            if path not in self._files:
                self._stack.enter_context(_importable(path.parent))
                self._files[path] = _run(f"importing {place}", path, lambda: _import_file(path))
            return self._files[path]
        if not all(part.isidentifier() for part in place.split(".")):
            raise InputError(complaint)
        self._stack.enter_context(_importable(Path.cwd()))
        return _import_module(place)

    def value(self, text: str) -> Any:
        """What ``file.py:name`` or ``package.module:name`` names."""
        place, _, name = text.rpartition(":")
        complaint = f"{text!r} is not a pipeline: give the name of one of TVM's, file.py:name or package.module:name."
        if not name.isidentifier():
            raise InputError(complaint)
        module = self.module(place, complaint)
        if not hasattr(module, name):
            raise InputError(f"{module.__file__} has no {name!r}, so it cannot be the pipeline.")
        return getattr(module, name)


def load_inputs(path: Path) -> Any:
    """Tensors from a ``.npz`` (``arr_0``, ``arr_1``, ... by position, any other keys by name) or a ``.pt`` file."""
    readers: dict[str, Callable[[Path], Any]] = {".npz": _read_npz, ".pt": _read_pt}
    if path.suffix not in readers:
        raise InputError(f"{path} cannot hold inputs: give a .npz file of arrays or a .pt file of tensors.")
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    try:
        return readers[path.suffix](path)
    except Exception as error:  # zipfile, numpy and torch each raise their own.
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise InputError(f"The inputs in {path} cannot be read: {type(error).__name__}: {reason}.") from error


def _read_npz(path: Path) -> tuple[torch.Tensor, ...] | dict[str, torch.Tensor]:
    # Object arrays are pickles, which run code when they are loaded.
    with np.load(path, allow_pickle=False) as archive:
        tensors = {name: torch.from_numpy(archive[name]) for name in archive.files}
    if all(re.fullmatch(r"arr_\d+", name) for name in tensors):
        return tuple(tensors[name] for name in sorted(tensors, key=lambda name: int(name.removeprefix("arr_"))))
    return tensors


def _read_pt(path: Path) -> Any:
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except KeyError as error:  # what torch's unpickler raises on bytes that are no pickle
        raise ValueError("it is not a file that torch.save wrote") from error
    # A list of samples is told from arguments by position when `locate` is called, not in a file.
    return tuple(loaded) if isinstance(loaded, list) else loaded


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let modules in `folder` be imported, as a script's neighbours are; leave no trace on disk or in the process."""
    modules, path, writes_no_bytecode = set(sys.modules), list(sys.path), sys.dont_write_bytecode
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes_no_bytecode
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and _is_users(file, folder):
                del sys.modules[name]


def _is_users(file: str, folder: Path) -> bool:
    return Path(file).is_relative_to(folder) and "site-packages" not in Path(file).relative_to(folder).parts


def _import_file(path: Path) -> ModuleType:
    # Under its own name, so that class names in the report read as usual, unless that would hide another module.
    taken = path.stem in sys.modules or path.stem in sys.stdlib_module_names
    name = f"_spec_{path.stem}" if taken else path.stem
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(found)
    # Dataclasses and pickling look their module up here.
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _import_module(name: str) -> ModuleType:
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        raise InputError(f"There is no module {name}: {error}.") from error
    except Exception as error:  # A parent package ran, and failed.
        raise InputError(f"There is no module {name}: {type(error).__name__}: {error}.") from error
    if found is None:
        raise InputError(f"There is no module {name} on Python's path or in {Path.cwd()}.")
    module: ModuleType = _run(f"importing {name}", Path(found.origin or name), lambda: importlib.import_module(name))
    return module


def _ask(module: ModuleType, name: str, spec: str) -> Question:
    """Call the function and check what it returned."""
    function = getattr(module, name, None)
    if not callable(function):
        known = [key for key, value in vars(module).items() if callable(value) and value.__module__ == module.__name__]
        there = f"; there are {', '.join(known)}" if known else ""
        raise InputError(f"{module.__file__} has no function {name!r}{there}.")
    result = _run(spec, Path(module.__file__ or name), function)
    if not isinstance(result, tuple) or len(result) not in (2, 3):
        described = f"a tuple of {len(result)}" if isinstance(result, tuple) else type(result).__name__
        raise InputError(f"{spec} returned {described}; it must return (model, inputs) or (model, inputs, options).")
    options = result[2] if len(result) == 3 else {}
    if not isinstance(options, dict) or not all(isinstance(key, str) for key in options):
        raise InputError(f"The options that {spec} returned are not a dict of keyword arguments of locate.")
    return Question(result[0], result[1], dict(options))


def _run(what: str, path: Path, action: Callable[[], Any]) -> Any:
    """Call the user's code; what it raises becomes one sentence that names the user's own line."""
    try:
        return action()
    except (Exception, SystemExit) as error:  # A script that ends itself is no answer either.
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raised = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
        raise InputError(f"{what} failed with {raised} (at {_users_line(error, path)}).") from error


def _users_line(error: BaseException, path: Path) -> str:
    """The last line of the user's own files on the way to `error`."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename, path.parent)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else str(path)
