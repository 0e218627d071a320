from typing import Any

import pytest
import torch
from torch import nn
from tvm import relax

from bisect_tvm.lowering.approximations import gelu_tanh
from bisect_tvm.lowering.importer import ImporterError, import_program, reason_of
from tests.lowering.helpers import exported, imported, run_wide

X = torch.linspace(-2, 2, 8).reshape(2, 4)


def test_const_is_put_back() -> None:
    before = relax.const
    made = imported(lambda x: x * 0.1, X)
    assert relax.const is before
    assert 0.1 in made.constants.numbers


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_const_is_put_back_also_when_a_converter_raises(error: type[BaseException]) -> None:
    def convert(node: Any, importer: Any) -> Any:
        relax.const(0.5)
        raise error("no")

    before = relax.const
    program = exported(torch.relu, X)
    with pytest.raises(ImporterError if error is ValueError else error):
        import_program(program, {"relu.default": convert})
    assert relax.const is before


def test_a_refusal_carries_the_reason() -> None:
    def convert(node: Any, importer: Any) -> Any:
        raise NotImplementedError("somebody else's problem")

    with pytest.raises(ImporterError, match="NotImplementedError: somebody else's problem"):
        imported(torch.relu, X, convert_map={"relu.default": convert})


def test_an_operator_that_tvm_does_not_know() -> None:
    with pytest.raises(ImporterError, match="var_mean"):
        imported(lambda x: torch.var_mean(x, 1)[0], X)


def test_a_users_converter_is_used() -> None:
    converted = imported(nn.GELU(), X, convert_map={"gelu.default": gelu_tanh}).module.script()
    assert "gelu_tanh" in converted
    assert "gelu_tanh" not in imported(nn.GELU(), X).module.script()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("plain"), "ValueError: plain"),
        (ValueError(""), "ValueError"),
        (RuntimeError("Traceback (most recent call last):\n  File \"x.cc\", line 3\nthe reason\nmore"), "RuntimeError: the reason"),
    ],
)  # fmt: skip
def test_the_telling_line_of_an_error(error: Exception, text: str) -> None:
    assert reason_of(error) == text


def test_an_operator_in_a_reason_is_its_name() -> None:
    with pytest.raises(ImporterError, match=r"TypeError: relax\.acos requires the input tensor to have float dtype"):
        import_program(exported(torch.acos, torch.arange(4), decompose=False), None)


def test_a_long_reason_is_cut() -> None:
    assert len(reason_of(ValueError("x" * 10_000))) < 500


def test_zero_dimensional_tensors_stay_so() -> None:
    (result,) = run_wide(lambda x, y: (x * y).sum(), X, torch.tensor(2.0))
    assert result.shape == ()
