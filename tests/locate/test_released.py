"""TVM as released: models that it computes well, and faults of its own (more of those in tests/cases)."""

import platform

import numpy as np
import pytest
import torch
import tvm
from torch import nn

import bisect_tvm
from bisect_tvm import Report, Verdict, locate
from bisect_tvm.lowering.approximations import gelu_tanh
from tests.locate import planted
from tests.quick import locate_quickly

FAITHFUL = (Verdict.FAITHFUL, Verdict.ROUNDING)


def found(report: Report) -> list[tuple[str, str | None]]:
    return [(entry.path, entry.operator) for entry in report.culprits]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 12, num_layers=2, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden, (_, cell) = self.lstm(x)
        return self.head(hidden), cell


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=8), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5), nn.LogSoftmax(-1),
    )  # fmt: skip


CLEAN = {
    "mlp": (lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4), nn.Softmax(-1)), (3, 8)),
    "cnn": (cnn, (2, 3, 12, 12)),
    "lstm": (Recurrent, (2, 5, 8)),
    "multihead attention": (Attention, (2, 6, 16)),
    "transformer encoder": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu"), 2, enable_nested_tensor=False
        ),
        (2, 5, 16),
    ),
}


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_model_stays_clean(name: str) -> None:
    make, shape = CLEAN[name]
    torch.manual_seed(0)
    report = locate_quickly(make().eval(), torch.randn(shape), exhaustive=True)
    assert found(report) == []
    assert report.unresolved == ()
    assert report.verdict in FAITHFUL
    operators = [entry for entry in report.tree if entry.kind == "operator"]
    assert len(operators) == report.root.operators > 3
    assert max(entry.deviation64 for entry in operators) < 1e-12
    assert report.root.deviation64 < 1e-12
    assert report.root.deviation32 < 1e-5
    assert max(entry.deviation32 for entry in operators) > 0  # something was measured
    assert report.cost.builds <= 3


def test_a_clean_model_is_answered_by_its_root_alone() -> None:
    report = locate(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), torch.randn(2, 4))
    assert report.verdict in FAITHFUL
    assert report.tree == (report.root,)
    assert report.cost.builds <= 2


def test_selu_as_tvm_converts_it() -> None:
    torch.manual_seed(0)
    report = locate(planted.Functional().eval(), torch.randn(4, 8))
    assert found(report) == [("", "aten.elu.default")]  # no submodule owns it: the model's own forward ran it
    (culprit,) = report.culprits
    assert culprit.verdict is Verdict.FORMULA
    assert culprit.deviation64 == pytest.approx(1 - 1 / 1.0507009873554805, rel=1e-3)  # the scale is left out
    assert culprit.source is not None
    assert culprit.source.startswith(planted.__file__)
    assert report.root.deviation64 > 0.01
    dense = [entry for entry in report.tree if entry.path == "dense"]
    assert dense
    assert all(entry.verdict in FAITHFUL for entry in dense)


def test_undecomposed_operators_are_judged_as_such() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 8), nn.CELU(alpha=2.0)).eval(), torch.randn(4, 8)
    assert locate(model, x).culprits == ()
    report = locate(model, x, decompose=False)
    assert found(report) == [("1", "aten.celu.default")]
    assert {entry.operator for entry in report.tree} >= {"aten.linear.default", "aten.celu.default"}
    assert report.environment["decompose"] == "no"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_clean_model_in_half_precision(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Sigmoid(), nn.Softmax(-1), nn.AvgPool1d(2), nn.ReLU()).to(dtype).eval()
    report = locate(model, torch.randn(2, 3, 8, dtype=dtype), exhaustive=True)
    assert found(report) == []
    assert report.unresolved == ()
    assert max(entry.deviation64 for entry in report.tree) < 1e-12


def test_a_convolution_in_half_precision_that_tvm_cannot_import() -> None:
    """It adds a bias of float16 to a product of float32; all else is judged."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Sigmoid(), nn.Conv2d(2, 4, 3), nn.ReLU()).half().eval()
    report = locate(model, torch.randn(1, 2, 6, 6).half())
    assert [(entry.path, entry.operator) for entry in report.unresolved] == [("1", "aten.convolution.default")]
    assert "float16" in report.unresolved[0].reason
    assert found(report) == []
    assert {entry.operator for entry in report.tree if entry.verdict in FAITHFUL} >= {"aten.sigmoid.default", "aten.relu.default"}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_fault_in_half_precision(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Sigmoid(), nn.SELU(), nn.Tanh(), nn.SELU()).to(dtype).eval()
    report = locate(model, torch.randn(4, 8, dtype=dtype))
    assert found(report) == [("1", "aten.elu.default"), ("3", "aten.elu.default")]
    assert {entry.verdict for entry in report.culprits} == {Verdict.FORMULA}


def test_a_model_in_double_precision_is_judged_too() -> None:
    torch.manual_seed(0)
    report = locate(nn.Sequential(nn.Sigmoid(), nn.SELU()).double().eval(), torch.randn(4, 8, dtype=torch.float64))
    assert found(report) == [("1", "aten.elu.default")]


def test_environment_and_cost() -> None:
    lines: list[str] = []
    report = locate(
        nn.Sequential(nn.Linear(4, 4), nn.GELU()).eval(), torch.randn(2, 4), convert_map={"gelu.default": gelu_tanh}, target="llvm",
        progress=lines.append,
    )  # fmt: skip
    environment = report.environment
    assert environment["bisect_tvm"] == bisect_tvm.__version__
    assert environment["torch"] == torch.__version__
    assert environment["tvm"] == tvm.__version__
    assert environment["numpy"] == np.__version__
    assert environment["python"] == platform.python_version()
    assert "llvm" in environment["target"]
    assert environment["convert_map"] == "gelu.default"
    assert environment["decompose"] == "yes"
    assert environment["exhaustive"] == "no"
    assert report.cost.builds == 2  # as the user does, and for the search
    assert {"capture", "reference", "import", "build", "run", "compare"} <= report.cost.seconds.keys()
    assert all(seconds >= 0 for seconds in report.cost.seconds.values())
    assert len(lines) >= 4
    assert all(line and "\n" not in line for line in lines)
    # One count for all questions, and operators by their names.
    assert [line for line in lines if line.startswith("comparing ")] == [
        "comparing the model (1 of 1)",
        "comparing 0 aten.permute.default (2 of 4)",
        "comparing 0 aten.addmm.default (3 of 4)",
        "comparing 1 aten.gelu.default (4 of 4)",
        "comparing 0 (5 of 6)",
        "comparing 1 (6 of 6)",
    ]


def test_outputs_that_are_integers_or_not_contiguous() -> None:
    class Mixed(nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"wide": x.transpose(0, 1) * 2, "count": (x > 0).sum(-1), "first": x[:, 0], "is": x > 0.5}

    torch.manual_seed(0)
    report = locate(Mixed().eval(), torch.randn(3, 4), exhaustive=True)
    assert report.verdict in FAITHFUL
    assert found(report) == []


def test_a_zero_dimensional_input() -> None:
    class Scale(nn.Module):
        def forward(self, x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
            return torch.exp(x * by).sum()

    report = locate(Scale().eval(), (torch.randn(3), torch.tensor(2.0)), exhaustive=True)
    assert report.verdict in FAITHFUL
    assert report.unresolved == ()


def test_the_answer_is_the_same_each_time() -> None:
    model, x = planted.stack(1)
    first, second = (locate_quickly(model, x, convert_map={"gelu.default": gelu_tanh}, exhaustive=True) for _ in range(2))
    assert first.tree == second.tree
    assert first.summary == second.summary
