import io
import json
import os
import pickle
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bisect_tvm.archive import load_program
from bisect_tvm.errors import InputError
from bisect_tvm.spec import Question, load_inputs, opened

MODEL = """
import torch
from neighbour import WIDTH

def build():
    return torch.nn.Linear(WIDTH, 2).eval(), torch.ones(1, WIDTH)

def build_with_options():
    model, inputs = build()
    return model, inputs, {"target": "llvm"}

def fails():
    return helper(0)

def helper(number):
    return 1 // number

def leaves():
    raise SystemExit(0)

def needs(argument):
    return argument

def one():
    return torch.nn.ReLU()

def wrong_options():
    return *build(), ["target"]
"""


def ask(spec: str, inputs_file: Path | None = None) -> Question:
    with opened(spec, inputs_file) as question:
        return question


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    (tmp_path / "neighbour.py").write_text("WIDTH = 3\n")
    path = tmp_path / "my_model.py"
    path.write_text(MODEL)
    return path


def test_function_in_a_file(model_file: Path) -> None:
    question = ask(f"{model_file}:build")
    assert isinstance(question.model, torch.nn.Linear)
    assert question.inputs.shape == (1, 3)
    assert question.options == {}
    assert ask(f"{model_file}:build_with_options").options == {"target": "llvm"}


def test_file_can_import_its_neighbours_and_leaves_nothing_behind(model_file: Path) -> None:
    path, modules = list(sys.path), set(sys.modules)
    with opened(f"{model_file}:build", None):
        assert "neighbour" in sys.modules
        assert sys.modules["my_model"].__name__ == "my_model"
    assert sys.path == path
    assert {"neighbour", "my_model"} & (set(sys.modules) - modules) == set()
    assert sorted(file.name for file in model_file.parent.iterdir()) == ["my_model.py", "neighbour.py"]


def test_pipeline_in_the_same_file_is_the_same_module(model_file: Path) -> None:
    with opened(f"{model_file}:build", None, f"{model_file}:build") as question:
        assert question.options["pipeline"] is sys.modules["my_model"].build
    with opened(f"{model_file}:build", None, "default_build") as question:
        assert question.options == {"pipeline": "default_build"}
    with opened(f"{model_file}:build", None, "json:loads") as question:
        assert question.options["pipeline"] is json.loads


def test_file_named_like_a_module_of_python_does_not_hide_it(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("def build():\n    return 1, 2\n")
    with opened(f"{tmp_path}/json.py:build", None) as question:
        assert (question.model, question.inputs) == (1, 2)
        assert sys.modules["json"] is json


def test_function_in_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "models.py").write_text("def build():\n    return 1, 2\n")
    monkeypatch.chdir(tmp_path)
    assert ask("mine.models:build") == Question(1, 2, {})
    assert "mine.models" not in sys.modules
    with pytest.raises(InputError, match=r"There is no module mine\.others"):
        ask("mine.others:build")
    with pytest.raises(InputError, match=r"There is no module nowhere\.at_all"):
        ask("nowhere.at_all:build")
    (package / "broken.py").write_text("import models_of_mars\n")
    with pytest.raises(InputError, match=r"importing mine\.broken failed .*models_of_mars.*broken\.py:1"):
        ask("mine.broken:build")


@pytest.mark.parametrize("spec", ["", "model", "model.py", ":build", "my.model:", "my.model:a b", "my-model:build", "a/b:c"])
def test_malformed_spec(spec: str) -> None:
    with pytest.raises(InputError, match="is not a SPEC"):
        ask(spec)


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        ("missing", "has no function 'missing'; there are build, build_with_options, fails"),
        ("WIDTH", "has no function 'WIDTH'"),
        ("fails", r":fails failed with ZeroDivisionError: .* \(at .*my_model\.py:16\)"),
        ("leaves", r":leaves failed with SystemExit: 0 \(at .*my_model\.py:19\)"),
        ("needs", r":needs failed with TypeError: needs\(\) missing 1 required positional argument"),
        ("one", "returned ReLU; it must return"),
        ("wrong_options", "are not a dict of keyword arguments"),
    ],
)
def test_function_that_does_not_answer(function: str, complaint: str, model_file: Path) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        ask(f"{model_file}:{function}")
    assert "\n" not in str(caught.value)


def test_file_that_cannot_be_imported(tmp_path: Path) -> None:
    path = tmp_path / "my_model.py"
    with pytest.raises(InputError, match="There is no file"):
        ask(f"{path}:build")
    path.write_text("x = 1\ny = (\n")
    with pytest.raises(InputError, match=r"SyntaxError.*my_model\.py:2"):
        ask(f"{path}:build")
    path.write_text("import sys\nsys.exit('usage: my_model.py FILE')\n")
    with pytest.raises(InputError, match=r"SystemExit: usage: my_model\.py FILE \(at .*:2\)"):
        ask(f"{path}:build")
    assert "my_model" not in sys.modules


def test_inputs_belong_to_a_program(model_file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--inputs belongs to"):
        ask(f"{model_file}:build", tmp_path / "x.npz")
    with pytest.raises(InputError, match="give them with --inputs"):
        ask("model.pt2")


def test_npz_by_position_and_by_name(tmp_path: Path) -> None:
    arrays = [np.full(2, number, dtype=np.float32) for number in range(11)]
    np.savez(tmp_path / "position.npz", *arrays)
    positional = load_inputs(tmp_path / "position.npz")
    assert isinstance(positional, tuple)
    assert [tensor[0].item() for tensor in positional] == list(range(11))
    np.savez(tmp_path / "name.npz", arr_0=arrays[0], mask=arrays[1])
    named = load_inputs(tmp_path / "name.npz")
    assert list(named) == ["arr_0", "mask"]
    assert named["mask"].dtype == torch.float32


def test_pt_holds_tensors_in_plain_containers(tmp_path: Path) -> None:
    torch.save({"x": torch.ones(2), "more": (torch.zeros(1), 3)}, tmp_path / "inputs.pt")
    inputs = load_inputs(tmp_path / "inputs.pt")
    assert inputs["more"][1] == 3


class Hostile:
    """Unpickled, it makes a folder."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, (str(self.trace),)


def test_inputs_never_run_code(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    torch.save(Hostile(trace), tmp_path / "inputs.pt")
    np.savez(tmp_path / "inputs.npz", x=np.array([Hostile(trace)], dtype=object))
    for name in ("inputs.pt", "inputs.npz"):
        with pytest.raises(InputError, match="cannot be read"):
            load_inputs(tmp_path / name)
    assert not trace.exists()


def test_inputs_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"give a \.npz file"):
        load_inputs(tmp_path / "inputs.csv")
    with pytest.raises(InputError, match="There is no file"):
        load_inputs(tmp_path / "inputs.npz")
    for name in ("inputs.npz", "inputs.pt"):
        (tmp_path / name).write_text("words")
        with pytest.raises(InputError, match="cannot be read") as caught:
            load_inputs(tmp_path / name)
        assert "\n" not in str(caught.value)


class Scaled(torch.nn.Module):
    """Has a size that changes, a constant and a nested input."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.constant = torch.ones(3)

    def forward(self, x: torch.Tensor, more: dict[str, torch.Tensor]) -> torch.Tensor:
        flat = self.linear(x).reshape(x.shape[0] * 2, 2)
        total: torch.Tensor = flat[: x.shape[0]] + more["y"] * self.constant.sum()
        return total


@pytest.fixture
def program_file(tmp_path: Path) -> Path:
    sizes = ({0: torch.export.Dim("batch", min=2, max=64)}, {"y": None})
    arguments = (torch.ones(3, 4), {"y": torch.ones(2)})
    program = torch.export.export(Scaled().eval(), arguments, dynamic_shapes=sizes)
    torch.export.save(program, tmp_path / "model.pt2")
    return tmp_path / "model.pt2"


def test_saved_program(program_file: Path, tmp_path: Path) -> None:
    torch.save((torch.ones(5, 4), {"y": torch.ones(2)}), tmp_path / "inputs.pt")
    question = ask(str(program_file), tmp_path / "inputs.pt")
    assert question.model.module()(*question.inputs).shape == (5, 2)


def rewritten(path: Path, change: Callable[[str, bytes], bytes], extra: dict[str, bytes] | None = None) -> Path:
    """A copy of the archive with its members changed, in the way torch stores them."""
    copy = path.with_name("hostile.pt2")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(copy, "w") as target:
        for name in source.namelist():
            target.writestr(name, change(name, source.read(name)))
        for name, data in (extra or {}).items():
            target.writestr(f"model/{name}", data)
    return copy


def replacing(old: str, new: str) -> Callable[[str, bytes], bytes]:
    def change(name: str, data: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return data
        assert old.encode() in data
        return data.replace(old.encode(), new.encode())

    return change


def test_copy_of_a_program_is_loaded(program_file: Path) -> None:
    assert load_program(rewritten(program_file, lambda name, data: data)).graph is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.ops.aten.linear.default", "torch.os.mkdir"),
        ("torch.ops.aten.linear.default", "torch.ops.load_library"),
        ("torch.ops.aten.linear.default", "torch.ops.load_library.__call__.__call__"),
        ("torch.ops.aten.linear.default", "_operator.call"),
        ("torch.ops.aten.linear.default", "torch.hub.load"),
        ('"name": "x"', "\"name\": \"x=__import__('os').mkdir('TRACE')\""),
        ('"forward_arg_names": ["x"', "\"forward_arg_names\": [\"x=__import__('os').mkdir('TRACE')\""),
        ("Symbol('", "__import__('os').mkdir('TRACE') or Symbol('"),
        ("Symbol('", "sympify('1') + Symbol('"),
        ("Symbol('", "S('__import__(1)') + Symbol('"),
        ("Symbol('", "(lambda: 1)() + Symbol('"),
        ("Symbol('", "eval(x) + Symbol('"),
        ("positive=True", "positive=True.__class__"),
        ('"in_spec": "[1,', '"in_spec": "[{\\"__enum__\\": true, \\"fqn\\": \\"antigravity:x\\"},'),
    ],
)
def test_program_that_would_run_code_is_refused(old: str, new: str, program_file: Path) -> None:
    trace = program_file.with_name("trace")
    with pytest.raises(InputError, match="could run code when loaded"):
        load_program(rewritten(program_file, replacing(old, new.replace("TRACE", str(trace)))))
    assert not trace.exists()


@pytest.mark.parametrize("name", ["data/constants/OPAQUE_obj_0", "data/constants/custom_obj_0", "data/aotinductor/m/a.so"])
def test_archive_with_executable_members_is_refused(name: str, program_file: Path) -> None:
    with pytest.raises(InputError, match="holds code or pickled objects"):
        load_program(rewritten(program_file, lambda name, data: data, {name: b"x"}))


def test_pickles_in_an_archive_are_held_to_plain_data(program_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    trace = tmp_path / "trace"
    buffer = io.BytesIO()
    torch.save((Hostile(trace),), buffer)

    def with_hostile_samples(name: str, data: bytes) -> bytes:
        return buffer.getvalue() if name.endswith("sample_inputs/model.pt") else data

    def with_pickled_weight(name: str, data: bytes) -> bytes:
        if name.endswith("model_weights_config.json"):
            return data.replace(b'"use_pickle": false', b'"use_pickle": true')
        return pickle.dumps(Hostile(trace)) if "/weights/weight_" in name else data

    for change in (with_hostile_samples, with_pickled_weight):
        with pytest.raises(InputError, match="cannot be loaded as a program"):
            load_program(rewritten(program_file, change))
    assert not trace.exists()
    assert os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] == "1"
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


def test_file_that_is_no_program(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no file"):
        load_program(tmp_path / "model.pt2")
    path = tmp_path / "words.pt2"
    path.write_text("words")
    with pytest.raises(InputError, match="cannot be loaded as a program") as caught:
        load_program(path)
    assert "\n" not in str(caught.value)
    torch.save(torch.nn.Linear(1, 1).state_dict(), tmp_path / "weights.pt2")
    with pytest.raises(InputError, match="cannot be loaded as a program"):
        load_program(tmp_path / "weights.pt2")
