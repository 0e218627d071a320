"""One clear sentence for what cannot be answered (errors of the capture itself are in tests/model)."""

from typing import Any

import pytest
import torch
import tvm
from torch import nn

from bisect_tvm import locate
from bisect_tvm.errors import InputError
from bisect_tvm.lowering.approximations import gelu_tanh

MODEL, X = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), torch.ones(2, 4)


def refusal(**options: Any) -> str:
    with pytest.raises(InputError) as caught:
        locate(MODEL, X, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 500
    return text


def test_a_converter_for_an_operator_that_is_not_there_says_which_are() -> None:
    text = refusal(convert_map={"gelu.default": gelu_tanh})
    assert "'gelu.default'" in text
    assert "relu.default" in text
    assert "addmm.default" in text


def test_the_names_are_those_of_the_graph_that_is_imported() -> None:
    text = refusal(convert_map={"gelu.default": gelu_tanh}, decompose=False)
    assert "linear.default" in text
    assert "addmm" not in text


def test_a_converter_that_is_no_function() -> None:
    assert "'relu.default'" in refusal(convert_map={"relu.default": "relu"})


@pytest.mark.parametrize("target", ["no such thing", "", {"kind": "nothing"}, {"no": "kind"}, 7, None])
def test_an_unknown_target(target: Any) -> None:
    text = refusal(target=target)
    assert "target" in text
    assert repr(target) in text


def test_a_target_without_a_device_here() -> None:
    if tvm.cuda().exist:
        pytest.skip("there is a CUDA device")
    assert "cuda" in refusal(target="cuda")


@pytest.mark.parametrize("target", ["llvm", {"kind": "llvm", "opt-level": 0}, tvm.target.Target("llvm")])
def test_ways_to_name_a_target(target: Any) -> None:
    report = locate(MODEL, X, target=target)
    assert report.culprits == ()
    assert "llvm" in report.environment["target"]


def test_only_model_and_inputs_are_positional() -> None:
    with pytest.raises(TypeError):
        locate(MODEL, X, {})
