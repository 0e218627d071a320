"""The proof: the whole model with what the culprits give replaced by PyTorch's values, and with one kind of them left in."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from tvm import relax

from bisect_tvm import Report, Verdict
from bisect_tvm.lowering.approximations import gelu_tanh
from tests.locate import passes, planted
from tests.quick import locate_quickly

GELU = {"gelu.default": gelu_tanh}
RELU = {"relu.default": planted.relu_plus_one}


def locate(make: Callable[[], nn.Module], convert_map: Any, **options: Any) -> Report:
    model, x = planted.seeded(make)
    return locate_quickly(model, x, convert_map=convert_map, explain=False, **options)


def is_cured(report: Report) -> bool:
    """All that is wrong is explained, and nothing that is accused is innocent."""
    assert report.proof is not None
    return report.proof.sufficient is True and all(kept.necessary for kept in report.proof.kept)


class Last(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(x * 2)


class Only(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(x)


@pytest.mark.parametrize("make", [Last, Only])
def test_the_culprit_gives_the_models_output(make: Callable[[], nn.Module]) -> None:
    report = locate(make, GELU)
    assert report.culprit_ids == ("/gelu",)
    assert is_cured(report)


def smallest_instead(node: Any, importer: Any) -> Any:
    """The smallest elements, where the largest are asked for."""
    found = importer.block_builder.emit(
        relax.op.topk(importer.env[node.args[0]], k=3, axis=-1, ret_type="both", largest=False, dtype="int64")
    )
    return importer.block_builder.emit(relax.Tuple([found[0], found[1]]))


def split_shifted(node: Any, importer: Any) -> Any:
    """Three pieces, all of them off."""
    x = importer.block_builder.emit(relax.op.add(importer.env[node.args[0]], relax.const(0.5, "float32")))
    return importer.block_builder.emit(relax.op.split(x, [2, 4], axis=-1))


class TopK(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, indices = torch.topk(torch.sin(x), 3)
        return values + 1, indices


class Split(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one, _, three = torch.split(torch.sin(x), [2, 2, 4], dim=-1)
        return torch.cat([one * 2, three], -1)


@pytest.mark.parametrize(
    ("make", "convert_map", "culprit"),
    [
        (TopK, {"topk.default": smallest_instead}, "/topk"),
        (Split, {"split_with_sizes.default": split_shifted}, "/split_with_sizes"),
    ],
)
def test_a_culprit_with_several_values(make: Callable[[], nn.Module], convert_map: Any, culprit: str) -> None:
    report = locate(make, convert_map)
    assert report.culprit_ids == (culprit,)
    assert is_cured(report)


class Several(nn.Module):
    """Outputs of all kinds, of which two deviate and one is a culprit's own."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.gelu, self.relu = nn.Linear(8, 8), nn.GELU(), nn.ReLU()

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {
            "sound": self.dense(x), "gelu": self.gelu(x), "relu": self.relu(self.dense(x)) * 2,
            "positive": x > 0, "largest": x.argmax(-1),
        }  # fmt: skip


def test_several_outputs_of_several_types() -> None:
    report = locate(Several, {**GELU, **RELU})
    assert report.culprit_ids == ("gelu/gelu", "relu/relu")
    assert is_cured(report)
    assert len(report.proof.kept) == 2


class Decides(nn.Module):
    """The fault shows in a boolean and in a whole number only."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.relu(x)
        return x > 0.5, torch.floor(x * 3).to(torch.int64)


def test_outputs_without_rounding() -> None:
    report = locate(Decides, RELU)
    assert report.culprit_ids == ("/relu",)
    assert is_cured(report)


class Remembers(nn.Module):
    """Changes a buffer, and reads it afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.act = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(x)
        self.mean.add_(x.mean(0))
        return x * 2 + self.mean


def test_a_buffer_that_is_changed() -> None:
    report = locate(Remembers, GELU)
    assert report.culprit_ids == ("act/gelu",)
    assert is_cured(report)


def test_a_module_that_is_called_twice() -> None:
    report = locate(planted.Twice, GELU)
    assert report.culprit_ids == ("shared.1/gelu", "shared.1@1/gelu_1")
    assert is_cured(report)


def logarithm(node: Any, importer: Any) -> Any:
    return importer.block_builder.emit(relax.op.log(importer.env[node.args[0]]))


def test_a_culprit_that_gives_nan() -> None:
    report = locate(lambda: nn.Sequential(nn.ReLU(), nn.Sigmoid()), {"relu.default": logarithm})
    assert report.culprit_ids == ("0/relu",)
    assert report.verdict is Verdict.NONFINITE
    assert is_cured(report)


def test_a_model_that_cannot_be_built_has_culprits_and_no_proof() -> None:
    report = locate(lambda: nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Sigmoid()), {**GELU, "sigmoid.default": planted.refuse})
    assert report.culprit_ids == ("1/gelu",)
    assert report.root.verdict is Verdict.UNRESOLVED
    assert [entry.id for entry in report.unresolved] == ["2/sigmoid"]
    assert report.proof is None


def test_a_pair_is_found_in_a_model_that_cannot_be_built() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Sigmoid())

    report = locate(make, {"sigmoid.default": planted.refuse}, pipeline=[passes.add_gelu()])
    assert [entry.parts for entry in report.culprits] == [("0/addmm", "1/gelu")]
    assert report.root.verdict is Verdict.UNRESOLVED
    assert report.proof is None


class Chain(nn.Module):
    """Six operators in a row."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(torch.tanh(functional.gelu(torch.cos(x) + 1)) * 2)


def test_what_remains_is_looked_for_and_found() -> None:
    """A run that is too long to be swept shows once the faulty operator in the same module is replaced."""
    faulty = passes.where_there_is({"relax.cos", "relax.tanh"}, passes.add_gelu())
    report = locate(Chain, {"sigmoid.default": planted.shifted(relax.op.sigmoid)}, pipeline=[faulty])
    assert [entry.parts or entry.id for entry in report.culprits] == [("/cos", "/add", "/gelu", "/tanh"), "/sigmoid"]
    assert is_cured(report)


def test_what_remains_unexplained_is_told() -> None:
    """A pass that is faulty only where two gelus are, which no run of operators holds once the culprit is replaced."""

    class Long(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.sigmoid(x)
            return functional.gelu(torch.tanh(x) + 1), functional.gelu(torch.sin(x) + 1)

    def both(there: list[str]) -> bool:
        return there.count("relax.nn.gelu") == 2

    report = locate(Long, {"sigmoid.default": planted.shifted(relax.op.sigmoid)}, pipeline=[passes.where(both, passes.add_gelu())])
    assert report.culprit_ids == ("/sigmoid",)
    assert report.proof.sufficient is False
    assert report.proof.deviation64 > 1e-6
    assert "unexplained" in report.summary
    assert "unexplained" in str(report)


def test_without_culprits_there_is_nothing_to_prove() -> None:
    report = locate(Last, None)
    assert report.culprits == ()
    assert report.proof is None
    assert report.cost.further_builds == 0
