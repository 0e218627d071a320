"""Models of every outward form: what they take, what they return."""

import contextlib
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from bisect_tvm import Report, Verdict
from bisect_tvm.errors import CaptureError, InputError
from bisect_tvm.lowering.approximations import gelu_tanh
from tests.quick import locate_quickly

FAITHFUL = (Verdict.FAITHFUL, Verdict.ROUNDING)
GELU = {"gelu.default": gelu_tanh}
X = torch.linspace(-3, 3, 8).reshape(2, 4)


def found(report: Report) -> list[tuple[str, str | None]]:
    return [(entry.path, entry.operator) for entry in report.culprits]


class Apply(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.act = nn.GELU()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self.act, *args, **kwargs)


@dataclass
class Out:
    scores: torch.Tensor
    other: dict[str, Any]


RETURNS = {
    "tensor": lambda act, x: act(x),
    "tuple": lambda act, x: (x + 1, act(x)),
    "dict": lambda act, x: {"b": act(x), "a": x + 1},
    "dataclass": lambda act, x: Out(x + 1, {"deep": [act(x)]}),
    "twice": lambda act, x: (y := act(x), y),
    "with its input": lambda act, x: (x, act(x)),
    "with None and numbers": lambda act, x: (None, 3, act(x), "text"),
    "a view": lambda act, x: act(x).t(),
    "a number": lambda act, x: act(x).sum(),
}


@pytest.mark.parametrize("name", RETURNS)
def test_a_fault_is_found_whatever_the_model_returns(name: str) -> None:
    assert found(locate_quickly(Apply(RETURNS[name]).eval(), X, convert_map=GELU)) == [("act", "aten.gelu.default")]


@dataclass
class Batch:
    x: torch.Tensor
    flag: bool


TAKES: dict[str, tuple[Any, Any, dict[str, Any] | None]] = {
    "tensor": (lambda act, x: act(x), X, None),
    "tuple": (lambda act, x, y: act(x - y), (X, X / 2), None),
    "dict": (lambda act, *, y, x: act(x - y), {"x": X, "y": X / 2}, None),
    "keywords": (lambda act, x, *, y, flag: act(x - y) if flag else x, (X,), {"y": X / 2, "flag": True}),
    "nested": (lambda act, parts: act(parts["a"][0] - parts["b"]), ({"a": (X, None), "b": X / 2},), None),
    "dataclass": (lambda act, batch: act(batch.x) if batch.flag else batch.x, (Batch(X, True),), None),
    "whole numbers": (lambda act, x, i: act(x[i]), (X, torch.tensor([1, 0, 1])), None),
    "not contiguous": (lambda act, x: act(x), X.t(), None),
    "one number": (lambda act, x: act(x), torch.tensor(-1.5), None),
}


@pytest.mark.parametrize("name", TAKES)
def test_a_fault_is_found_whatever_the_model_takes(name: str) -> None:
    function, inputs, kwargs = TAKES[name]
    assert found(locate_quickly(Apply(function).eval(), inputs, kwargs=kwargs, convert_map=GELU)) == [("act", "aten.gelu.default")]


def test_an_exported_program_keeps_the_paths_of_its_modules() -> None:
    program = torch.export.export(Apply(lambda act, x: act(x)).eval(), (X,))
    report = locate_quickly(program, X, convert_map=GELU)
    assert found(report) == [("act", "aten.gelu.default")]
    assert report.culprits[0].source is not None
    assert report.culprits[0].source.startswith(__file__)


def test_a_loaded_exported_program(tmp_path: Any) -> None:
    torch.export.save(torch.export.export(nn.Sequential(nn.Linear(4, 4), nn.GELU()).eval(), (X,)), tmp_path / "model.pt2")
    report = locate_quickly(torch.export.load(tmp_path / "model.pt2"), X, convert_map=GELU)
    assert found(report) == [("1", "aten.gelu.default")]


def test_an_exported_program_with_sizes_of_its_own() -> None:
    program = torch.export.export(
        nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Flatten(0)).eval(), (X,), dynamic_shapes=({0: torch.export.Dim("n", max=64)},)
    )  # fmt: skip
    report = locate_quickly(program, torch.randn(5, 4), convert_map=GELU)
    assert found(report) == [("1", "aten.gelu.default")]


def test_a_model_without_operators() -> None:
    report = locate_quickly(Apply(lambda act, x: x).eval(), X, exhaustive=True)
    assert report.verdict in FAITHFUL
    assert report.tree == (report.root,)


def test_a_model_that_is_one_operator() -> None:
    class Bare(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.selu(x)

    assert found(locate_quickly(Bare().eval(), X)) == [("", "aten.elu.default")]


def test_a_model_that_returns_a_constant() -> None:
    report = locate_quickly(Apply(lambda act, x: (torch.full((3,), 0.1), act(x))).eval(), X, exhaustive=True)
    assert report.verdict in FAITHFUL


def test_empty_tensors() -> None:
    report = locate_quickly(Apply(lambda act, x: act(x)).eval(), torch.zeros(0, 4), exhaustive=True)
    assert report.culprits == ()


def test_nan_and_inf_that_pytorch_computes_too_are_no_fault() -> None:
    x = torch.tensor([0.0, -1.0, 1.0, float("inf"), float("nan")])
    report = locate_quickly(Apply(lambda act, x: (x.log(), x / 0, x.sqrt())).eval(), x, exhaustive=True)
    assert found(report) == []


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_rounding_is_not_accused_at_any_scale(scale: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 4), nn.Softmax(-1)).eval()
    report = locate_quickly(model, torch.randn(4, 16) * scale, exhaustive=True)
    assert found(report) == []
    assert report.verdict in FAITHFUL


def test_an_ill_conditioned_model_is_rounding_and_no_fault() -> None:
    report = locate_quickly(Apply(lambda act, x: (x + 1e6) - 1e6).eval(), torch.linspace(0.1, 0.9, 8), exhaustive=True)
    assert found(report) == []
    assert report.root.deviation32 is not None
    assert report.verdict in FAITHFUL


def test_numbers_that_tvm_rounds_to_float32_are_not_held_against_it() -> None:
    own = float(torch.tensor(0.1))  # a float32 number, as one from a checkpoint is

    def function(act: nn.Module, x: torch.Tensor) -> Any:
        return x * 0.1, x * own, x + torch.arange(0, 0.4, 0.1), x + torch.tensor(0.1), x.clamp(-0.3, 0.7)

    report = locate_quickly(Apply(function).eval(), X, exhaustive=True)
    assert found(report) == []
    assert report.verdict in FAITHFUL


def test_a_sparse_tensor_is_unresolved() -> None:
    class Sparse(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(x).to_sparse()

    report = locate_quickly(Sparse().eval(), torch.randn(3, 4), decompose=False)
    assert report.verdict is Verdict.UNRESOLVED
    assert report.culprits == ()
    (sparse,) = report.unresolved
    assert "sparse" in sparse.reason


def test_a_sparse_input_and_a_vmap_are_no_tracebacks() -> None:
    class Add(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + y

    class Mapped(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.vmap(torch.sin)(x)

    for model, inputs in ((Add(), (torch.eye(3).to_sparse(), torch.eye(3).to_sparse())), (Mapped(), torch.randn(3, 4))):
        with contextlib.suppress(InputError, CaptureError):
            report = locate_quickly(model.eval(), inputs, decompose=False, exhaustive=True)
            assert report.culprits == ()
