import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from bisect_tvm.errors import CaptureError, InputError
from bisect_tvm.model.hierarchy import user_outputs
from bisect_tvm.model.reference import run_reference
from tests.model.helpers import captured
from tests.model.test_hierarchy import Model


def reference(model: nn.Module, inputs: Any, *, decompose: bool = True) -> list[torch.Tensor]:
    program = captured(model, inputs, decompose=decompose)
    values = run_reference(program).values
    return [values[name] for name in user_outputs(program)]


def read_by_reference(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The input that the reference reads: `x` with digits beyond those that its dtype has."""
    program = captured(model, x)
    value: torch.Tensor = run_reference(program).values[program.inputs[0]]
    return value


def doubled(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """What the eager model gives after `.double()`; the model itself is left alone."""
    with torch.no_grad():
        result: torch.Tensor = copy.deepcopy(model).double()(x)
    return result


def distance(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual - expected).abs().max() / expected.abs().max())


torch.manual_seed(0)
PLAIN: dict[str, tuple[nn.Module, torch.Tensor]] = {
    "blocks": (Model(), torch.randn(2, 4)),
    "conv": (nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.GELU()), torch.randn(2, 1, 6, 6)),
    "gru": (nn.GRU(4, 3), torch.randn(5, 4)),
    "half": (nn.Sequential(nn.Linear(4, 4), nn.SiLU()).half(), torch.randn(2, 4).half()),
    "bfloat16": (nn.Sequential(nn.Linear(4, 4), nn.SiLU()).bfloat16(), torch.randn(2, 4).bfloat16()),
    "double": (nn.Sequential(nn.Linear(4, 4), nn.SiLU()).double(), torch.randn(2, 4).double()),
}


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("decompose", [True, False])
def test_the_reference_is_the_double_model(name: str, decompose: bool) -> None:
    model, x = PLAIN[name]
    actual = reference(model.eval(), x, decompose=decompose)[0]
    expected = doubled(model, read_by_reference(model, x))
    expected = expected[0] if isinstance(expected, tuple) else expected
    assert actual.dtype is torch.float64
    assert distance(actual, expected) < 1e-15


class Casts(nn.Module):
    """Dtype arguments of its own, as Llama and T5 have them: `.double()` does not reach them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        norm = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        scores = functional.softmax(x * torch.rsqrt(norm + 1e-6), dim=-1, dtype=torch.float32)
        return scores * torch.arange(4, dtype=torch.float32).add(0.1).exp()


class Throughout(nn.Module):
    """The same, in whatever precision the input has."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        norm = x.pow(2).mean(-1, keepdim=True)
        scores = functional.softmax(x * torch.rsqrt(norm + 1e-6), dim=-1)
        return scores * torch.arange(4, dtype=x.dtype).add(0.1).exp()


@pytest.mark.parametrize("decompose", [True, False])
def test_dtype_arguments_in_the_graph_are_widened(decompose: bool) -> None:
    x = torch.randn(3, 4)
    wide = read_by_reference(Casts(), x)
    exact = Throughout()(wide)
    assert distance(reference(Casts(), x, decompose=decompose)[0], exact) < 1e-15
    assert distance(doubled(Casts(), wide).double(), exact) > 1e-9  # which is why `.double()` is no reference


def test_operators_that_name_no_dtype_make_doubles() -> None:
    class Makes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.full((4,), 0.1) + torch.linspace(0, 1, 4) + torch.arange(4).sqrt() + torch.tensor(0.1).sin()

    actual = reference(Makes(), torch.zeros(4))[0]
    expected = 0.1 + torch.linspace(0, 1, 4, dtype=torch.float64) + torch.arange(4.0, dtype=torch.float64).sqrt()
    expected = expected + torch.tensor(0.1).double().sin()  # this constant is the model's own float32 number
    assert distance(actual, expected) < 1e-15
    assert torch.get_default_dtype() is torch.float32


def test_whole_numbers_stay_what_they_are() -> None:
    class Whole(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x.argmax(-1), x > 0, torch.arange(3, dtype=torch.int32), x.to(torch.int16)

    dtypes = [tensor.dtype for tensor in reference(Whole(), torch.randn(2, 3))]
    assert dtypes == [torch.int64, torch.bool, torch.int32, torch.int16]


def test_every_value_is_kept() -> None:
    program = captured(Model(), torch.randn(2, 4))
    values = run_reference(program).values
    assert {name for name, node in program.nodes.items() if node.op != "output"} <= set(values)


def test_values_are_not_overwritten_by_operators_in_place() -> None:
    program = captured(nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), torch.randn(2, 4), decompose=False)
    values = run_reference(program).values
    linear, relu = (values[name] for name, node in program.nodes.items() if node.op == "call_function")
    assert bool((linear < 0).any())
    assert torch.equal(relu, linear.relu())


class Random(nn.Module):
    def __init__(self, draw: Any) -> None:
        super().__init__()
        self.draw = draw

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.draw(x)


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: x + torch.rand_like(x),
        lambda x: x * torch.randn(4),
        lambda x: functional.dropout(x, 0.5, training=True),
        lambda x: torch.bernoulli(x.sigmoid()),
        lambda x: x + torch.randint(0, 1000, (4,)),
    ],
    ids=["rand_like", "randn", "dropout", "bernoulli", "randint"],
)
def test_a_random_operator_is_refused(draw: Any) -> None:
    with pytest.raises(InputError, match=r"random operator aten\.\w+.*pass the random values in as inputs"):
        reference(Random(draw), torch.randn(3, 4))


def test_an_operator_that_draws_nothing_is_not_random() -> None:
    x = torch.arange(4.0)
    assert torch.equal(reference(Random(lambda x: functional.dropout(x, 0.0, training=True)), x)[0], x.double())


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("it is broken.\nIn many words"), "RuntimeError: it is broken"),
        (AssertionError(), "AssertionError"),
        (ValueError("\n  not at the first line\n"), "ValueError: not at the first line"),
    ],
    ids=["lines", "no message", "blank line first"],
)
@pytest.mark.parametrize(
    ("call", "precision"),
    [(1, "the model's own precision"), (2, "float64"), (3, "float64")],
    ids=["native call", "call in float64", "call that looks for random numbers"],
)
def test_what_pytorch_cannot_run_is_explained(
    monkeypatch: pytest.MonkeyPatch, error: Exception, told: str, call: int, precision: str
) -> None:
    program = captured(Random(torch.rand_like), torch.randn(3))
    (node,) = (node for node in program.nodes.values() if node.op == "call_function")
    works = node.target

    def failing() -> Iterator[Any]:
        yield from [works] * (call - 1)
        raise error

    calls = failing()

    def target(*args: Any, **kwargs: Any) -> Any:
        return next(calls)(*args, **kwargs)

    target.tags = works.tags
    monkeypatch.setattr(node, "target", target)
    with pytest.raises(CaptureError) as caught:
        run_reference(program)
    assert str(caught.value).endswith(f" ({node.name}) in {precision}: {told}")
    assert caught.value.__cause__ is error


def test_operators_that_hold_graphs_are_refused_in_one_sentence() -> None:
    class Branching(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    program = captured(Branching(), torch.randn(3))
    with pytest.raises(CaptureError, match=r"^The graph holds cond, whose branches cannot be compared yet \(cond\)\.$"):
        run_reference(program)


def test_uninitialised_values_are_zeros() -> None:
    class Empty(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.empty_like(x).fill_(1.0) + x

    x = torch.arange(3.0)
    assert torch.equal(reference(Empty(), x)[0], x.double() + 1)


class Same(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", [1e-3, 1.0])
def test_inputs_carry_digits_beyond_their_own_and_round_back(dtype: torch.dtype, scale: float) -> None:
    """A square of 24 bits is exact in 53, so that an algorithm that loses digits would show nothing."""
    x = (torch.randn(64, generator=torch.Generator().manual_seed(0)) * scale).to(dtype)
    wide = read_by_reference(Same(), x)
    assert wide.dtype is torch.float64
    assert torch.equal(wide.to(dtype), x)
    assert float((wide != x.double()).double().mean()) > 0.5
    assert torch.equal(read_by_reference(Same(), x), wide)


def test_flags_counts_and_what_is_not_finite_stay() -> None:
    for x in (
        torch.tensor([0.0, 1.0, -3.0, 0.5, 2.25, 1000.0]),
        torch.tensor([float("inf"), -float("inf"), float("nan"), -0.0]),
        torch.randn(4, dtype=torch.float64),
        torch.arange(4),
        torch.tensor([True, False]),
        torch.zeros(0),
    ):
        wide = read_by_reference(Same(), x)
        torch.testing.assert_close(wide, x.double() if x.is_floating_point() else x, rtol=0, atol=0, equal_nan=True)
