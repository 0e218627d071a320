"""Faults of the user's passes that no operator shows by itself: the operators that fail together are found, and no others."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import tvm
from torch import nn
from torch.nn import functional

from bisect_tvm import Report, Verdict
from tests.locate import passes, planted
from tests.quick import locate_quickly

FAITHFUL = (Verdict.FAITHFUL, Verdict.ROUNDING)


def locate(make: Callable[[], nn.Module], pipeline: Any, **options: Any) -> Report:
    model, x = planted.seeded(make)
    return locate_quickly(model, x, pipeline=pipeline, explain=False, **options)


def together(report: Report) -> list[tuple[str, ...]]:
    """The operators of each interaction by id, and that there is no other culprit."""
    assert all(entry.verdict is Verdict.INTERACTION for entry in report.culprits)
    return [entry.parts for entry in report.culprits]


def is_proved(report: Report, necessary: list[bool] | None = None) -> bool:
    """The culprits explain it all, and each kind of them is needed, unless it is told which."""
    assert report.proof is not None
    kept = [each.necessary for each in report.proof.kept]
    return report.proof.sufficient is True and kept == (necessary or [True] * len(kept))


def blocks() -> nn.Module:
    return nn.Sequential(planted.SumAndGelu(), planted.Perceptron(), planted.SumAndGelu(), planted.Perceptron())


GELUS = [("0/add", "0.act/gelu"), ("2/add_2", "2.act/gelu_1")]
RELUS = [("1.dense/addmm", "1.act/relu"), ("3.dense/addmm_1", "3.act/relu_1")]


def test_two_kinds_in_several_blocks() -> None:
    report = locate(blocks, tvm.transform.Sequential([passes.add_gelu(), passes.matmul_add_relu()]))
    assert together(report) == [GELUS[0], RELUS[0], GELUS[1], RELUS[1]]
    assert is_proved(report)
    assert len(report.proof.kept) == 2
    assert report.verdict is Verdict.INTERACTION
    assert report.unresolved == ()
    assert report.cost.builds <= 4
    operators = [entry for entry in report.tree if entry.kind == "operator"]
    assert all(entry.verdict in FAITHFUL and entry.parts == () for entry in operators)
    assert all("together they do not" in entry.reason for entry in report.culprits)


@pytest.mark.parametrize("pipeline", [passes.fusing(), []], ids=["fusing", "no pass"])
def test_a_pipeline_that_is_right_accuses_nobody(pipeline: Any) -> None:
    report = locate(blocks, pipeline)
    assert report.verdict in FAITHFUL
    assert report.culprits == ()
    assert (report.cost.builds, report.cost.further_builds) == (2, 0)


def test_fusion_that_is_right_beside_a_faulty_operator() -> None:
    report = locate(lambda: blocks()[:2], passes.fusing(), convert_map={"gelu.default": planted.relu_plus_one})
    assert report.culprit_ids == ("0.act/gelu",)
    assert report.verdict is Verdict.FORMULA
    assert is_proved(report)


FORMS = {
    "pass": lambda fault: fault,
    "function": lambda fault: lambda module: fault(module),
    "complete": lambda fault: lambda module: tvm.relax.get_pipeline("default_build")(fault(module)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_pipeline(form: str) -> None:
    report = locate(lambda: nn.Sequential(planted.SumAndGelu()), FORMS[form](passes.add_gelu()))
    assert together(report) == [GELUS[0]]
    assert is_proved(report)


def test_across_the_boundaries_of_modules() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Sequential(nn.Linear(8, 8)), nn.Sequential(nn.GELU()), nn.Tanh())

    report = locate(make, [passes.add_gelu()])
    assert together(report) == [("0/addmm", "1/gelu"), ("2.0/addmm_1", "3.0/gelu_1")]
    assert is_proved(report)


def test_a_module_that_is_itself_what_fails() -> None:
    """It is named as the user knows it, and its operators are told as well."""

    class Shifted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.gelu(x + 1)

    report = locate(lambda: nn.Sequential(nn.Tanh(), Shifted(), nn.Tanh()), [passes.add_gelu()])
    assert [entry.path for entry in report.culprits] == ["1"]
    assert together(report) == [("1/add", "1/gelu")]
    assert is_proved(report)


def test_operators_with_two_ways_between_them() -> None:
    class Swish(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            total = torch.tanh(x) + 1
            return torch.cos(total * torch.sigmoid(total))

    report = locate(Swish, [passes.swish_of_sum()])
    assert together(report) == [("/add", "/sigmoid", "/mul")]
    assert is_proved(report)


@pytest.mark.parametrize(
    ("name", "change", "wanted"),
    [
        (".*add_gelu.*", lambda value: value * 1.001, GELUS),
        (".*matmul.*add.*relu.*", lambda value: value + 0.1, RELUS[:1]),
    ],
)
def test_a_pass_on_fused_kernels(name: str, change: Callable[[float], float], wanted: list[tuple[str, ...]]) -> None:
    report = locate(lambda: blocks()[:3], [*passes.fusing(), passes.in_kernels(name, change)])
    assert together(report) == wanted
    assert is_proved(report)


def test_a_pass_that_breaks_a_single_operator_is_no_interaction() -> None:
    report = locate(lambda: blocks()[:1], [passes.every_gelu()])
    assert report.culprit_ids == ("0.act/gelu",)
    assert {entry.verdict for entry in report.culprits} == {Verdict.FORMULA}
    assert is_proved(report)


def test_beside_a_faulty_operator() -> None:
    """One interaction in the same module, one elsewhere."""
    report = locate(
        lambda: nn.Sequential(nn.Sequential(planted.SumAndGelu(), nn.Sigmoid()), planted.SumAndGelu()),
        [passes.add_gelu()],
        convert_map={"sigmoid.default": planted.relu_plus_one},
    )
    assert [entry.parts or entry.id for entry in report.culprits] == [
        ("0.0/add", "0.0.act/gelu"), "0.1/sigmoid", ("1/add_2", "1.act/gelu_1")
    ]  # fmt: skip
    assert is_proved(report)


class Drowned(nn.Module):
    """What gelu of a sum and relu of a dense layer are off by is lost in a comparison, and what sigmoid is off by is seen."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.shift = nn.Parameter(torch.randn(8, 8)), nn.Parameter(torch.randn(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = torch.clamp(functional.gelu(x + self.shift) - 100, min=0)
        second = torch.clamp(torch.relu(torch.matmul(x + first, self.weight) + self.shift) - 100, min=0)
        return torch.sigmoid(x * 2 + second)


DROWNED = [("/add", "/gelu"), ("/mm", "/add_2", "/relu")]


@pytest.mark.parametrize("exhaustive", [False, True])
def test_hidden_ones_are_found_where_something_else_shows_or_on_request(exhaustive: bool) -> None:
    options = {} if exhaustive else {"convert_map": {"sigmoid.default": planted.relu_plus_one}}
    report = locate(Drowned, [passes.add_gelu(), passes.matmul_add_relu()], exhaustive=exhaustive, **options)
    if exhaustive:
        assert report.root.verdict in FAITHFUL
        assert together(report) == DROWNED
    else:
        assert [entry.parts or entry.id for entry in report.culprits] == [*DROWNED, "/sigmoid"]
        assert is_proved(report, [False, False, True])


def test_what_fails_alone_and_not_inside_the_model_is_not_accused() -> None:
    """A pass that leaves a gelu alone where tanh reads it."""

    class Two(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.gelu(torch.tanh(functional.gelu(x + 1)) + 2) * 3

    report = locate(Two, [passes.add_gelu_unless_read_by("relax.tanh")])
    assert together(report) == [("/add_1", "/gelu_1")]
    assert is_proved(report)


def test_a_fault_that_goes_where_another_operator_is() -> None:
    pipeline = [passes.unless("relax.nn.relu", passes.add_gelu())]
    # With a relu in it, the model as a whole agrees, though a part of it does not.
    assert locate(lambda: blocks()[:2], pipeline).culprits == ()
    report = locate(lambda: nn.Sequential(planted.SumAndGelu(), nn.Tanh()), pipeline)
    assert together(report) == [GELUS[0]]
    assert is_proved(report)


def test_a_fault_that_needs_company() -> None:
    """Several runs of four operators fail for the same reason; one is named."""
    report = locate(lambda: nn.Sequential(planted.SumAndGelu(), nn.Tanh()), [passes.where_many(4, passes.add_gelu())])
    (parts,) = together(report)
    assert len(parts) == 4
    assert set(GELUS[0]) <= set(parts)
    assert is_proved(report)


def test_what_fails_only_as_a_whole_is_the_model() -> None:
    """Faulty only where a cosine, which comes first, and a sine, which comes last, are there."""

    class Ends(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(torch.tanh(functional.gelu(torch.cos(x) + 1)) * 2)

    pipeline = [passes.where_there_is({"relax.cos", "relax.sin"}, passes.add_gelu())]
    report = locate(Ends, pipeline)
    assert report.culprits == (report.root,)
    assert together(report) == [("/cos", "/add", "/gelu", "/tanh", "/mul", "/sin")]
    assert report.proof is None
