"""Many faults at once, of several kinds, hidden behind each other: all are found in one call, and nothing else is."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from tvm import relax

from bisect_tvm import Report, Verdict
from bisect_tvm.lowering.approximations import gelu_tanh
from tests.locate import planted
from tests.quick import locate_quickly

FAITHFUL = (Verdict.FAITHFUL, Verdict.ROUNDING)
FIVE = {
    "gelu.default": gelu_tanh,
    "relu.default": planted.relu_plus_one,
    "sin.default": planted.shifted(relax.op.sin),
    "tanh.default": planted.shifted(relax.op.tanh, -0.5),
    "sigmoid.default": planted.shifted(relax.op.sigmoid, 10),
}


class Five(nn.Module):
    """Operators of five kinds, between others; one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.ReLU())
        self.second = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.last = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.sin(self.first(x)) + x
        return self.last(torch.sigmoid(self.second(x)) - 0.5)


@pytest.fixture(scope="module")
def five() -> Report:
    model, x = planted.seeded(Five)
    return locate_quickly(model, x, convert_map=FIVE, explain=False)


def test_five_kinds_are_found_exactly(five: Report) -> None:
    assert five.culprit_ids == (
        "first.1/gelu", "first.3/relu", "/sin", "second.1/tanh", "/sigmoid", "last/gelu_1"
    )  # fmt: skip
    assert {entry.verdict for entry in five.culprits} == {Verdict.FORMULA}
    assert five.cost.builds <= 3
    assert five.unresolved == ()


def test_what_is_not_planted_agrees(five: Report) -> None:
    innocent = [entry for entry in five.tree if entry.kind == "operator" and entry not in five.culprits]
    assert len(innocent) >= 6
    assert all(entry.verdict in FAITHFUL and entry.deviation64 < 1e-14 for entry in innocent)


def test_five_kinds_are_proved(five: Report) -> None:
    assert five.proof is not None
    assert five.proof.sufficient
    assert five.proof.deviation64 < 1e-14
    assert sorted(id for kept in five.proof.kept for id in kept.culprit_ids) == sorted(five.culprit_ids)
    assert len(five.proof.kept) == 5
    assert all(kept.necessary for kept in five.proof.kept)


def test_the_same_converters_where_they_are_right() -> None:
    model, x = planted.seeded(Five)
    report = locate_quickly(model, x, convert_map={"gelu.default": planted.gelu_exact}, explain=False, exhaustive=True)
    assert report.culprits == ()


class Saturates(nn.Module):
    """What the first is off by cannot leave: `how` kills it. The last one shows."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.early, self.late, self.how = nn.GELU(), nn.ReLU(), how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.early(x)
        if self.how == "clamp":
            x = torch.clamp(x, 5, 6) * 0.1
        elif self.how == "tanh":
            x = torch.tanh(x + 60)
        elif self.how == "comparison":
            x = (x > -9).float()
        elif self.how == "softmax":
            x = torch.softmax(torch.cat([x, x * 0 + 900], -1), -1)
        elif self.how == "minimum":
            x = torch.minimum(x, torch.full_like(x, -9.0))
        return self.late(x * 2)


@pytest.mark.parametrize("how", ["clamp", "tanh", "comparison", "softmax", "minimum"])
def test_a_fault_that_saturates_before_one_that_shows(how: str) -> None:
    model, x = planted.seeded(lambda: Saturates(how))
    report = locate_quickly(model, x, convert_map={k: FIVE[k] for k in ("gelu.default", "relu.default")}, explain=False)
    assert report.culprit_ids == ("early/gelu", "late/relu")
    assert report.proof.sufficient
    assert [kept.necessary for kept in report.proof.kept] == [False, True]


class Cancels(nn.Module):
    """The second takes away exactly what the first is off by."""

    def __init__(self, seen: bool = False) -> None:
        super().__init__()
        self.one, self.other, self.seen = nn.ReLU(), nn.Tanh(), seen

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = self.one(x) + self.other(x)
        return torch.sin(total) if self.seen else total


CANCELLING: dict[str, Any] = {"relu.default": planted.relu_plus_one, "tanh.default": planted.shifted(relax.op.tanh, -1.0)}


def test_faults_that_cancel_are_found_on_request() -> None:
    model, x = planted.seeded(Cancels)
    report = locate_quickly(model, x, convert_map=CANCELLING, explain=False, exhaustive=True)
    assert report.root.verdict in FAITHFUL
    assert report.culprit_ids == ("one/relu", "other/tanh")
    assert report.verdict is Verdict.FORMULA
    assert report.proof is None  # there is nothing to cure


def test_faults_that_cancel_are_found_beside_one_that_shows() -> None:
    model, x = planted.seeded(lambda: Cancels(seen=True))
    convert_map = {**CANCELLING, "sin.default": planted.shifted(relax.op.sin)}
    report = locate_quickly(model, x, convert_map=convert_map, explain=False)
    assert report.culprit_ids == ("one/relu", "other/tanh", "/sin")
    assert report.proof.sufficient
    # With one of two that cancel left in, the other is replaced, so the model deviates.
    assert [kept.necessary for kept in report.proof.kept] == [True, True, True]


@pytest.fixture(scope="module")
def stacks() -> dict[int, Report]:
    def report(layers: int) -> Report:
        model, x = planted.stack(layers)
        return locate_quickly(model, x, convert_map={"gelu.default": gelu_tanh}, explain=False)

    return {layers: report(layers) for layers in (2, 4, 8)}


def test_builds_do_not_grow_with_layers(stacks: dict[int, Report]) -> None:
    spent = {(report.cost.builds, report.cost.further_builds) for report in stacks.values()}
    assert len(spent) == 1
    for layers, report in stacks.items():
        assert report.culprit_ids == tuple(f"layers.{n}.act/gelu{f'_{n}' if n else ''}" for n in range(layers))


class Scaled(nn.Module):
    """A fault in the first block; a block that passes it on, one that multiplies it, one that divides it and one that drowns it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 8), nn.GELU())
        self.second = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.larger, self.smaller, self.drowning = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        with torch.no_grad():
            self.larger.weight.mul_(100)
            self.smaller.weight.mul_(0.01)
            self.drowning.bias.fill_(10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drowning(self.smaller(self.larger(self.second(self.first(x)))))


@pytest.mark.parametrize("depth", ["diverging", "all"])
def test_what_each_part_does_to_the_deviation(depth: Any) -> None:
    model, x = planted.seeded(Scaled)
    report = locate_quickly(model, x, convert_map={"gelu.default": gelu_tanh}, explain=False, depth=depth)
    by_id = {entry.id: entry for entry in report.tree}
    assert report.culprit_ids == ("first.1/gelu",)
    effects = {id: by_id[id].effect for id in ("first", "second", "larger", "smaller", "drowning")}
    assert effects == {
        "first": "introduces", "second": "inherits", "larger": "amplifies", "smaller": "attenuates", "drowning": "attenuates"
    }  # fmt: skip
    for id in ("second", "larger", "smaller", "drowning"):
        assert by_id[id].deviation64 < 1e-14
        assert by_id[id].verdict in FAITHFUL
    assert by_id["first.0"].effect is None  # what deviates comes after it
    # Relative to what they give, neither of the two that scale changes much.
    assert 0.2 < by_id["larger"].cumulative64 / by_id["second"].cumulative64 < 5


class Branches(nn.Module):
    """One branch that is faulty and one that is not, each with modules in modules."""

    def __init__(self) -> None:
        super().__init__()
        self.bad = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.GELU(), nn.Sequential(nn.Linear(8, 8))))
        self.good = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Tanh(), nn.Sequential(nn.Linear(8, 8), nn.Sigmoid())))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.softplus(self.bad(x)) + self.good(x)


def test_how_deep_the_table_goes() -> None:
    model, x = planted.seeded(Branches)
    ids = {
        depth: {entry.id for entry in locate_quickly(
            model, x, convert_map={"gelu.default": gelu_tanh}, explain=False, depth=depth
        ).tree}
        for depth in ("diverging", "all")
    }  # fmt: skip
    modules = {name for name, _ in model.named_modules()}
    assert modules <= ids["all"]
    assert {id for id in ids["all"] if "/" in id} == {id for id in ids["diverging"] if "/" in id}, "operators are all measured"
    assert ids["all"] - ids["diverging"] == {"bad.1.1.0", "good.0", "good.1", "good.1.0", "good.1.1", "good.1.1.0", "good.1.1.1"}
