"""The user's model and process are left as they were, also when the question cannot be answered."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bisect_tvm import locate
from bisect_tvm.errors import BisectError, CaptureError, InputError
from bisect_tvm.lowering.approximations import gelu_tanh
from tests.locate import planted
from tests.quick import locate_quickly
from tests.untouched import unchanged


class Everything(nn.Module):
    """Hooks, buffers that the forward changes, tied and frozen parameters, modules in both modes."""

    def __init__(self, fails: str = "") -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.second.bias.requires_grad_(False)
        self.norm = nn.BatchNorm1d(4)
        self.act = nn.GELU()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("nan", torch.tensor([float("nan")]), persistent=False)
        self.fails = fails
        self.seen: list[str] = []
        self.act.register_forward_hook(lambda module, args, result: result + 0)
        self.eval()
        self.first.train()  # a Linear is the same in both modes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        random.random(), np.random.rand()  # noqa: NPY002 - as user code may do
        if self.fails == "rejects":
            raise ValueError("not today")
        if self.fails == "export" and x.sum() > -1e9:
            x = x + 1
        if self.fails == "random":
            x = x + torch.rand(4)
        return self.act(self.norm(self.second(self.first(x))))


@pytest.fixture(autouse=True)
def states_of_its_own() -> None:
    """Generators that stand somewhere in the middle."""
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002 - what user code may rely on
    torch.rand(3), random.random(), np.random.rand(3)  # noqa: NPY002


def test_after_an_answer() -> None:
    model, x = Everything(), torch.randn(3, 4)
    copy = x.clone()
    with unchanged(model):
        report = locate_quickly(model, x, convert_map={"gelu.default": gelu_tanh})
    assert [entry.operator for entry in report.culprits] == ["aten.gelu.default"]
    assert torch.equal(x, copy)
    assert not x.requires_grad


@pytest.mark.parametrize(
    ("make", "inputs", "options", "error"),
    [
        (lambda: Everything("rejects"), torch.ones(3, 4), {}, InputError),
        (lambda: Everything(), torch.ones(3, 5), {}, InputError),
        (lambda: Everything("export"), torch.ones(3, 4), {}, CaptureError),
        (lambda: Everything("random"), torch.ones(3, 4), {}, InputError),
        (lambda: Everything().train(), torch.ones(3, 4), {}, InputError),
        (lambda: Everything(), torch.ones(3, 4), {"target": "no such thing"}, InputError),
        (lambda: Everything(), torch.ones(3, 4), {"convert_map": {"selu.default": gelu_tanh}}, InputError),
    ],
    ids=["model rejects", "wrong shape", "export rejects", "random", "training", "target", "convert map"],
)
def test_after_a_refusal(make: Any, inputs: torch.Tensor, options: dict[str, Any], error: type[BisectError]) -> None:
    model = make()
    with unchanged(model), pytest.raises(error):
        locate(model, inputs, **options)


def test_after_a_converter_that_raises() -> None:
    model = Everything()
    with unchanged(model):
        assert locate_quickly(model, torch.ones(3, 4), convert_map={"gelu.default": planted.refuse}).unresolved


def test_after_an_interruption() -> None:
    """Control-C, whenever it comes."""

    def interrupt(line: str) -> None:
        if "float64" in line:
            torch.rand(1)
            raise KeyboardInterrupt

    model = Everything()
    with unchanged(model), pytest.raises(KeyboardInterrupt):
        locate_quickly(model, torch.ones(3, 4), progress=interrupt)


def test_with_settings_of_the_user() -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        model = nn.Sequential(nn.Linear(4, 4, dtype=torch.float32), nn.ReLU()).eval()
        with unchanged(model), torch.no_grad():
            assert locate_quickly(model, torch.ones(3, 4, dtype=torch.float32)).culprits == ()
    finally:
        torch.set_default_dtype(before)


def test_the_check_can_fail() -> None:
    model = Everything()
    for change in (
        lambda: model.train(),
        lambda: model.norm.running_mean.add_(1),
        lambda: model.act.register_forward_hook(lambda *a: None),
        lambda: torch.rand(1),
        lambda: random.random(),
        lambda: np.random.rand(),  # noqa: NPY002
        lambda: setattr(model, "other", 1),
        lambda: model.double(),
    ):
        with pytest.raises(AssertionError), unchanged(model):
            change()
