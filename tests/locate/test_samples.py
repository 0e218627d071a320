"""Several samples: one build for all, and the report names those on which a culprit shows."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from tvm import relax

from bisect_tvm import Report, Verdict
from bisect_tvm.errors import InputError
from bisect_tvm.report.report import Entry
from tests.quick import locate_quickly


def samples(*scales: float) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [scale * torch.randn(2, 4) for scale in scales]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()


def clipped(node: Any, importer: Any) -> Any:
    """A relu that is wrong for large numbers only."""
    return importer.block_builder.emit(relax.op.clip(importer.env[node.args[0]], 0, 100))


def only_culprit(report: Report) -> Entry:
    (culprit,) = report.culprits
    assert culprit.operator == "aten.relu.default"
    assert report.proof is not None
    assert report.proof.sufficient
    return culprit


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_a_fault_that_one_sample_shows(wrong: int) -> None:
    scales = [1.0, 1.0, 1.0]
    scales[wrong] = 1e4
    inputs = samples(*scales)
    report = locate_quickly(model(), inputs, convert_map={"relu.default": clipped})
    culprit = only_culprit(report)
    assert (culprit.verdict, culprit.sample, culprit.samples) == (Verdict.FORMULA, wrong, (wrong,))
    assert report.root.samples == (wrong,)
    assert culprit.worst is not None
    assert culprit.worst.actual == 100
    assert f"aten.relu.default  {wrong} " in str(report)
    one = locate_quickly(model(), inputs[wrong], convert_map={"relu.default": clipped})
    assert report.cost.builds == one.cost.builds


def test_nan_in_one_sample_that_relu_loses() -> None:
    inputs = samples(1, 1, 1)
    inputs[2][0, 0] = math.nan
    culprit = only_culprit(locate_quickly(model(), inputs))
    assert (culprit.verdict, culprit.samples) == (Verdict.NONFINITE, (2,))


def test_a_fault_that_two_samples_show_is_told_for_the_worse_one() -> None:
    report = locate_quickly(model(), samples(1e4, 1, 1e6), convert_map={"relu.default": clipped})
    assert (only_culprit(report).samples, only_culprit(report).sample) == ((0, 2), 2)
    assert "0, 2" in str(report)


def test_samples_that_agree() -> None:
    report = locate_quickly(model(), samples(1, 10, 100))
    assert (report.verdict.is_divergence, report.culprits, report.root.samples) == (False, (), ())
    assert report.environment["samples"] == "3"
    assert "samples" not in locate_quickly(model(), samples(1)).environment


X = torch.ones(2, 4)


@pytest.mark.parametrize(
    ("inputs", "complaint"),
    [
        ([X, torch.ones(3, 4)], r"Sample 1 of 2 .*of shape \(2, 4\), but torch.float32 of shape \(3, 4\) was given\.$"),
        ([X, X, X.double()], r"Sample 2 of 3 .*but torch.float64 of shape \(2, 4\) was given\.$"),
        ([X, (X, X)], r"Sample 1 of 2 .*it takes 1 values, 2 were given\.$"),
        ([X, {"x": X}], r"Sample 1 of 2 .*the keywords 'x' were given\.$"),
        ([X, 3], r"Sample 1 of 2 .*is a tensor, but"),
        ([], "`inputs` is an empty list"),
        ([[X]], "a tuple of positional arguments or a dict of keyword arguments, but one is a list"),
    ],
)
def test_samples_that_differ_in_kind(inputs: list[Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        locate_quickly(model(), inputs)
    assert "\n" not in str(caught.value)
