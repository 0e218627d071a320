"""Small models made after public bug reports of TVM, each with the answer that apache-tvm 0.27.0.post1 deserves.

Each file in `reported` has `build() -> (model, inputs)`; its docstring names the report. `expected.json` lists the options of `locate`,
the verdicts of which any may lead, how many culprits there are of each operator, and which operators cannot be imported or built.
"""

import importlib.util
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bisect_tvm import locate
from bisect_tvm.errors import InputError

FOLDER = Path(__file__).parent / "reported"
EXPECTED: list[dict[str, Any]] = json.loads((FOLDER / "expected.json").read_text())


def load(name: str) -> Callable[[], Any]:
    """The `build` of a case; case files are no modules, for their names begin with a digit."""
    spec = importlib.util.spec_from_file_location(f"case_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    build: Callable[[], Any] = module.build
    return build


def name_of(case: dict[str, Any]) -> str:
    return "-".join([case["case"], *(f"{key}={value}" for key, value in case["options"].items())])


@pytest.mark.parametrize("case", EXPECTED, ids=name_of)
def test_each_case_gets_its_answer(case: dict[str, Any]) -> None:
    model, inputs = load(case["case"])()
    if model.training:  # a model that is captured in training mode is meant to be
        model = torch.export.export(model, inputs)
    report = locate(model, inputs, explain=False, **case["options"])
    assert Counter(entry.operator for entry in report.culprits) == case["culprits"], str(report)
    assert sorted(entry.operator or "" for entry in report.unresolved) == case.get("unresolved", []), str(report)
    assert report.verdict in case["verdicts"], str(report)


def test_every_case_file_is_tried() -> None:
    assert {case["case"] for case in EXPECTED} == {path.stem for path in FOLDER.glob("[0-9]*.py")}


@pytest.mark.parametrize("name", ["014_batchnorm_train", "100_batchnorm_train_large_mean"])
def test_batch_statistics_of_training_mode_are_refused(name: str) -> None:
    model, inputs = load(name)()
    with pytest.raises(InputError, match=r"BatchNorm2d uses the statistics of the batch.*model\.eval\(\).*torch\.export"):
        locate(model, inputs)
