"""Faults planted through the user's convert map: the answer is known exactly."""

from pathlib import Path

import pytest
import torch
from torch import nn

from bisect_tvm import Report, Verdict
from bisect_tvm.lowering.approximations import gelu_tanh
from tests.locate import planted
from tests.quick import locate_quickly

FAITHFUL = (Verdict.FAITHFUL, Verdict.ROUNDING)


def found(report: Report) -> list[tuple[str, str | None]]:
    return [(entry.path, entry.operator) for entry in report.culprits]


def entry_of(report: Report, path: str, operator: str | None = None):
    (entry,) = [e for e in report.tree if e.path == path and e.operator == operator]
    return entry


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_fault_in_one_of_several_places(place: int) -> None:
    model, x = planted.stack(3)
    path = f"layers.{place}.act"
    convert_map = {"gelu.default": planted.at(path, gelu_tanh, planted.gelu_exact)}
    report = locate_quickly(model, x, convert_map=convert_map)
    assert found(report) == [(path, "aten.gelu.default")]
    assert report.unresolved == ()
    assert report.verdict is Verdict.FORMULA
    assert report.cost.builds <= 3
    # The table shows the way down, and that what stands beside it agrees.
    for number in range(3):
        layer = entry_of(report, f"layers.{number}")
        assert layer.verdict.is_divergence == (number == place)
    for entry in report.tree:
        on_the_way = entry.path in ("", f"layers.{place}", path) and entry.kind != "operator"
        assert entry.verdict in FAITHFUL or on_the_way or entry in report.culprits


@pytest.mark.parametrize("layers", [2, 6, 12])
def test_three_builds_whatever_the_number_of_layers(layers: int) -> None:
    model, x = planted.stack(layers)
    report = locate_quickly(model, x, convert_map={"gelu.default": gelu_tanh})
    assert found(report) == [(f"layers.{number}.act", "aten.gelu.default") for number in range(layers)]
    assert report.cost.builds <= 3
    operators = [entry for entry in report.tree if entry.kind == "operator"]
    assert len(operators) >= 4 * layers
    assert all(entry.deviation64 < 1e-12 for entry in operators if entry not in report.culprits)


def test_what_is_said_about_a_culprit() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    x = torch.randn(5, 4)
    report = locate_quickly(model, x, convert_map={"relu.default": planted.relu_plus_one})
    (culprit,) = report.culprits
    hidden = torch.relu(model[0].double()(x.double()))
    assert culprit.path == "1"
    assert culprit.operator == "aten.relu.default"
    assert culprit.kind == "operator"
    assert culprit.module_class == "torch.nn.modules.activation.ReLU"
    assert culprit.verdict is Verdict.FORMULA
    assert culprit.deviation64 == pytest.approx(1 / float(hidden.max().detach()), rel=1e-6)
    assert culprit.deviation32 == pytest.approx(culprit.deviation64, rel=1e-5)
    assert culprit.excess64 > 1e10
    assert culprit.worst is not None
    assert culprit.worst.actual == pytest.approx(culprit.worst.expected + 1, abs=1e-12)
    assert hidden[culprit.worst.index].item() == pytest.approx(culprit.worst.expected, abs=1e-6)
    assert "formula" in culprit.reason
    assert report.root.deviation64 == pytest.approx(report.root.deviation32, rel=1e-5)


def test_a_culprit_names_the_line_of_the_user() -> None:
    report = locate_quickly(planted.Hidden().eval(), torch.randn(2, 8), convert_map={"gelu.default": gelu_tanh}, exhaustive=True)
    (culprit,) = report.culprits
    assert culprit.source is not None
    file, _, line = culprit.source.rpartition(":")
    assert Path(file) == Path(planted.__file__)
    assert "self.early(x)" in Path(file).read_text().splitlines()[int(line) - 1]


def test_a_converter_that_raises_leaves_the_rest_judged() -> None:
    model, x = planted.stack(2)
    report = locate_quickly(model, x, convert_map={"gelu.default": planted.refuse})
    assert report.verdict is Verdict.UNRESOLVED
    assert report.culprits == ()
    assert [(e.path, e.operator) for e in report.unresolved] == [(f"layers.{n}.act", "aten.gelu.default") for n in (0, 1)]
    for entry in report.unresolved:
        assert "nobody has written aten.gelu.default yet" in entry.reason
        assert entry.deviation32 is None
        assert entry.deviation64 is None
        assert entry.excess64 is None
        assert entry.worst is None
    others = [e for e in report.tree if e.kind == "operator" and e not in report.unresolved]
    assert len(others) >= 8
    assert all(entry.verdict in FAITHFUL and entry.deviation64 < 1e-12 for entry in others)
    assert entry_of(report, "layers.0.norm").verdict in FAITHFUL
    assert "aten.gelu.default" in entry_of(report, "layers.0").reason
    assert report.root.verdict is Verdict.UNRESOLVED
    assert report.root.deviation32 is None
    assert report.cost.builds <= 3


def test_an_unresolved_operator_and_a_fault_beside_it() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).eval()
    convert_map = {"gelu.default": planted.refuse, "relu.default": planted.relu_plus_one}
    report = locate_quickly(model, torch.randn(2, 8), convert_map=convert_map)
    assert found(report) == [("3", "aten.relu.default")]
    assert [(e.path, e.operator) for e in report.unresolved] == [("1", "aten.gelu.default")]
    assert report.verdict is Verdict.FORMULA


HIDDEN = {"gelu.default": gelu_tanh, "relu.default": planted.relu_plus_one}


def test_faults_that_saturate_and_cancel_are_found_when_another_one_shows() -> None:
    torch.manual_seed(0)
    report = locate_quickly(planted.HiddenAndSeen().eval(), torch.randn(4, 8), convert_map=HIDDEN)
    assert found(report) == [
        ("hidden.early", "aten.gelu.default"),
        ("hidden.late", "aten.relu.default"),
        ("seen", "aten.gelu.default"),
    ]
    assert entry_of(report, "hidden").verdict in FAITHFUL  # as a whole it agrees: nothing of its parts shows
    assert report.verdict is Verdict.FORMULA
    assert report.cost.builds <= 3


def test_faults_that_nobody_sees_outside_are_found_on_request() -> None:
    torch.manual_seed(0)
    model, x = planted.Hidden().eval(), torch.randn(4, 8)
    assert locate_quickly(model, x, convert_map=HIDDEN).culprits == ()
    report = locate_quickly(model, x, convert_map=HIDDEN, exhaustive=True)
    assert report.root.verdict in FAITHFUL
    assert found(report) == [("early", "aten.gelu.default"), ("late", "aten.relu.default")]
    assert report.verdict is Verdict.FORMULA


def test_a_fault_before_argmax() -> None:
    torch.manual_seed(0)
    model, x = planted.Choice().eval(), torch.randn(4, 8)
    report = locate_quickly(model, x, convert_map={"gelu.default": gelu_tanh}, exhaustive=True)
    assert report.root.verdict in FAITHFUL
    assert found(report) == [("act", "aten.gelu.default")]


def test_a_module_called_twice_is_two_components() -> None:
    torch.manual_seed(0)
    report = locate_quickly(planted.Twice().eval(), torch.randn(4, 8), convert_map={"gelu.default": gelu_tanh})
    assert found(report) == [("shared.1", "aten.gelu.default"), ("shared.1@1", "aten.gelu.default")]
    assert len({entry.id for entry in report.tree}) == len(report.tree)
    assert entry_of(report, "", "aten.relu.default").verdict in FAITHFUL


def test_a_convert_map_that_is_right_accuses_nobody() -> None:
    model, x = planted.stack(2)
    report = locate_quickly(model, x, convert_map={"gelu.default": planted.gelu_exact}, exhaustive=True)
    assert report.culprits == ()
    assert report.verdict in FAITHFUL
