import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from tvm import relax

from bisect_tvm.lowering.importer import Constants
from bisect_tvm.lowering.kernels import Functions
from bisect_tvm.lowering.widen import Widener
from tests.lowering.helpers import built, imported, legalized, run_wide, workshop

NARROW = re.compile(r"\b(float32|float16|bfloat16)(x\d+)?\b")


def widened(functions: Functions, constants: Constants) -> Functions:
    widener = Widener(functions, "_wide")
    widener.add("main", constants)
    return widener.functions


def narrow_places(functions: Functions) -> list[str]:
    """Lines of the printed IR that name a narrow floating-point type: read independently of how they were re-typed."""
    return [
        f"{variable.name_hint}: {line.strip()}"
        for variable, function in functions.items()
        for line in function.script().splitlines()
        if NARROW.search(line)
    ]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x)[0]


torch.manual_seed(0)
MODELS: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "mlp": (nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Softmax(-1)), (torch.randn(2, 4),)),
    "cnn": (nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.SiLU(), nn.AvgPool2d(2)), (torch.randn(1, 1, 8, 8),)),
    "attention": (Attention(), (torch.randn(1, 3, 8),)),
    "gru": (nn.GRU(4, 3), (torch.randn(3, 4),)),
    "resize": (lambda x: functional.interpolate(x, size=(5, 7), mode="bilinear"), (torch.randn(1, 1, 4, 4),)),
    "casts": (lambda x: (x.to(torch.float16).to(torch.float32) + 0.1, x > 0, x.to(torch.int32)), (torch.randn(4),)),
    "half": (nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.Sigmoid()).half(), (torch.randn(1, 1, 4, 4).half(),)),
    "bfloat16": (lambda x: torch.exp(x) * 0.1, (torch.randn(4).bfloat16(),)),
    "whole numbers": (lambda x: x.cumsum(0) * 3 + torch.arange(4), (torch.arange(4),)),
    "sort": (lambda x: x.topk(2).values + x.argsort(-1)[:, :2], (torch.randn(2, 4),)),
}


@pytest.mark.parametrize("name", MODELS)
def test_nothing_narrow_is_left(name: str) -> None:
    model, inputs = MODELS[name]
    functions, constants = legalized(model, *inputs)
    wide = widened(functions, constants)
    assert narrow_places(wide) == []
    # A kernel without anything to be widened serves both precisions.
    left = {v: f for v, f in functions.items() if f"{v.name_hint}_wide" not in {other.name_hint for other in wide}}
    assert narrow_places(left) == []
    assert not any(isinstance(f, relax.Function) for f in left.values())
    assert {v.name_hint for v in wide} == {f"{v.name_hint}_wide" for v in functions if v not in left}
    if inputs[0].is_floating_point():
        assert narrow_places(functions), "the check cannot fail"
        assert any("float64" in function.script() for function in wide.values())


def test_the_functions_given_are_left_as_they_were() -> None:
    model, inputs = MODELS["mlp"]
    functions, constants = legalized(model, *inputs)
    before = {variable.name_hint: function.script() for variable, function in functions.items()}
    widened(functions, constants)
    assert {variable.name_hint: function.script() for variable, function in functions.items()} == before


def test_whole_numbers_are_left_alone() -> None:
    functions, constants = legalized(lambda x: (x.to(torch.int64) * 2, x > 0), torch.randn(4))
    text = "\n".join(function.script() for function in widened(functions, constants).values())
    assert "int64" in text
    assert "bool" in text


X = torch.linspace(-2, 2, 8).reshape(2, 4)

LITERALS = {
    "scale": lambda x: x * 0.1,
    "shift": lambda x: x + 0.1,
    "division": lambda x: x / 0.3,
    "leaky_relu": lambda x: functional.leaky_relu(x, 0.1),
    "hardtanh": lambda x: functional.hardtanh(x, -0.3, 0.7),
    "elu": lambda x: functional.elu(x, 0.3),
    "threshold": lambda x: torch.where(x > 0.7, x, 0.1),
    "full": lambda x: x + torch.full((4,), 0.1, dtype=x.dtype),
    "pad": lambda x: functional.pad(x, (1, 1), value=0.1),
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.1),
    "layer_norm": lambda x: functional.layer_norm(x, (4,), eps=1e-3),
    "rms_norm": lambda x: functional.rms_norm(x, (4,), eps=1e-3),
    "pow": lambda x: x.abs() ** 0.3,
    "softplus": lambda x: functional.softplus(x, 0.7),
    "gelu": lambda x: functional.gelu(x),
    "resize": lambda x: functional.interpolate(x[None, None], size=(3, 7), mode="bilinear"),
    "clamp": lambda x: x.clamp(-0.1, 0.3),
}


@pytest.mark.parametrize("name", LITERALS)
def test_numbers_that_the_importer_rounded_are_exact_again(name: str) -> None:
    """0.1 is 1.5e-9 off in float32; so would be the result."""
    (actual,) = run_wide(LITERALS[name], X)
    expected = LITERALS[name](X.double()).numpy()
    assert actual.dtype == np.float64
    np.testing.assert_allclose(actual, expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("beta", [0.7, 3])
def test_a_number_that_tvm_folded_into_another_is_exact_again(beta: float) -> None:
    """Undecomposed, softplus divides by beta as a product with 1 / beta."""

    def apply(x: torch.Tensor) -> torch.Tensor:
        return functional.softplus(x, beta)

    (actual,) = run_wide(apply, X, decompose=False)
    np.testing.assert_allclose(actual, apply(X.double()).numpy(), rtol=1e-14, atol=1e-15)


def test_a_scale_is_exact_to_the_last_bit() -> None:
    assert np.array_equal(run_wide(lambda x: x * 0.1, X)[0], (X.double() * 0.1).numpy())


def test_a_number_that_is_of_float32_by_itself_stays() -> None:
    own = float(np.float32(0.1))
    assert np.array_equal(run_wide(lambda x: x * own, X)[0], (X.double() * own).numpy())


def test_an_array_that_the_graph_creates_is_exact_again() -> None:
    """Its numbers are no numbers of the graph, and TVM adds the step up in float32."""
    step = torch.arange(0, 0.4, 0.1, dtype=torch.float64)
    (actual,) = run_wide(lambda x: x + torch.arange(0, 0.4, 0.1), X, created=[step.numpy()])
    np.testing.assert_allclose(actual, (X.double() + step).numpy(), rtol=1e-15)


def test_an_array_that_is_something_else_stays() -> None:
    kept = torch.tensor([0.1, 0.2, 0.3, 0.5])
    (actual,) = run_wide(lambda x: x + kept, X, created=[np.array([0.1, 0.2, 0.3, 0.4])])
    np.testing.assert_allclose(actual, (X.double() + kept.double()).numpy(), rtol=1e-15)


OWN = float(np.float32(0.1))
"""0.1 as a float32 number, from a checkpoint, say: not to be mistaken for the double."""


def test_a_float32_number_in_one_part_and_the_double_in_another_are_told_apart() -> None:
    shop = workshop()
    built = shop.build_parts({"fown": imported(lambda x: x * OWN, X), "fexact": imported(lambda x: x * 0.1, X)})
    for key, factor in (("fown", OWN), ("fexact", 0.1)):
        assert not built[key].ambiguous
        assert np.array_equal(built[key].run_wide([X.double().numpy()])[0], (X.double() * factor).numpy())


def test_both_in_one_part_cannot_be_told_apart_and_it_is_said() -> None:
    runnable = built(lambda x: (x * 0.1, x * OWN), X)
    assert runnable.ambiguous
    second = runnable.run_wide([X.double().numpy()])[1]
    assert np.array_equal(second, (X.double() * OWN).numpy())


def run_on(x: list[float], function: Any) -> list[list[float]]:
    runnable = built(function, torch.ones(len(x)))
    return [result.tolist() for result in runnable.run_wide([np.array(x)])]


def test_a_number_that_vanishes_in_float32_restores_no_zero() -> None:
    """1e-60 rounds to 0, and relu holds another 0."""
    assert run_on([0.5, -1.0], lambda x: (torch.relu(x), x * 1e-60))[0] == [0.5, 0.0]


@pytest.mark.parametrize(("dtype", "vanishes"), [(torch.float16, True), (torch.bfloat16, False), (torch.float32, False)])
def test_a_number_that_vanishes_is_said_to_be_lost(dtype: torch.dtype, vanishes: bool) -> None:
    runnable = built(lambda x: x + 1e-8, X.to(dtype))
    assert runnable.ambiguous == vanishes


def test_a_number_that_overflows_in_float32_restores_no_infinity() -> None:
    assert run_on([0.5, -1.0], lambda x: (x.masked_fill(x < 0, float("inf")), x * 1e60))[0] == [0.5, np.inf]


def test_weights_are_inputs_or_constants_in_float64() -> None:
    """A weight is a float32 number; widening must not change it."""
    model = nn.Linear(4, 3)
    (actual,) = run_wide(model, X)
    np.testing.assert_allclose(actual, model.double()(X.double()).detach().numpy(), rtol=1e-14)


def test_both_versions_are_built_side_by_side() -> None:
    runnable = built(lambda x: torch.sin(x) * 0.1, X)
    native, wide = runnable.run_native([X.numpy()]), runnable.run_wide([X.double().numpy()])
    assert (native[0].dtype, wide[0].dtype) == (np.float32, np.float64)
    assert 0 < np.abs(native[0] - wide[0]).max() < 1e-6
