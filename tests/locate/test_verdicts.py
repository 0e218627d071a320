"""Which verdict real and planted behaviour gets, end to end: nothing clean is accused, however long or ill-conditioned it is."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from tvm import relax

from bisect_tvm import Report, Verdict
from bisect_tvm.report.report import Entry
from tests.apply import Apply
from tests.quick import locate_quickly

FAITHFUL = (Verdict.FAITHFUL, Verdict.ROUNDING)


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def operators(report: Report, name: str = "") -> list[Entry]:
    return [entry for entry in report.tree if entry.kind == "operator" and name in (entry.operator or "")]


# ------------------------------------------------------------------------------------------------- normalisation


SHAPES = [(2, 6, 8, 8), (2, 64, 7, 7), (2, 32, 16, 16), (2, 6, 64, 64)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_group_norm_of_a_large_mean_is_unstable_and_layer_norm_is_not(shape: tuple[int, ...]) -> None:
    """TVM's group_norm takes E[x^2] - E[x]^2 for the variance. PyTorch's does not, and neither does TVM's layer_norm."""

    def both(x: torch.Tensor) -> Any:
        ones = torch.ones(shape[1])  # TVM's importer refuses group_norm without weights
        return functional.group_norm(x, 2, ones, ones), functional.layer_norm(x, x.shape[1:])

    means = (0.0, 30.0, 300.0, 3000.0)
    data = tuple(randn(*shape, seed=i) + mean for i, mean in enumerate(means))
    report = locate_quickly(Apply(lambda *all: [both(x) for x in all]), data, exhaustive=True)
    grouped = operators(report, "native_group_norm")
    assert [entry.verdict.is_divergence for entry in grouped] == [False, True, True, True]
    assert [entry.verdict for entry in grouped[1:3]] == [Verdict.UNSTABLE, Verdict.UNSTABLE]
    assert grouped[3].verdict in (Verdict.UNSTABLE, Verdict.NONFINITE)
    assert Verdict.UNSTABLE in grouped[3].stated
    assert all(entry.verdict in FAITHFUL for entry in operators(report, "native_layer_norm"))
    assert len(operators(report, "native_layer_norm")) == 4


# ------------------------------------------------------------------------------------------------- clean, and not easy


LONG: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "sum": (lambda x: x.sum(), (rand(1_000_000),)),
    "mean": (lambda x: x.mean(-1), (rand(2, 200_000) + 5,)),
    "sum of both signs": (lambda x: x.sum(-1), (randn(2, 300_000),)),
    "matrix product": (lambda x, w: x @ w, (rand(2, 11_008), rand(11_008, 3))),
    "linear": (functional.linear, (rand(2, 8192), rand(3, 8192), rand(3))),
    "softmax": (lambda x: x.softmax(-1), (randn(2, 150_000),)),
    "log_softmax": (lambda x: x.log_softmax(-1), (randn(2, 150_000),)),
    "pool of a whole image": (lambda x: functional.adaptive_avg_pool2d(x, 1), (rand(1, 2, 224, 224),)),
    "convolution of many channels": (functional.conv2d, (rand(1, 512, 5, 5), rand(3, 512, 5, 5))),
    "transposed convolution": (functional.conv_transpose2d, (rand(1, 2048, 2, 2), rand(2048, 2, 2, 2))),
    "layer_norm": (lambda x: functional.layer_norm(x, (65_536,)), (3 * rand(2, 65_536) + 1,)),
    "layer_norm of a large mean": (lambda x: functional.layer_norm(x, (8192,)), (randn(2, 8192) + 300,)),
    "variance": (lambda x: x.var(-1), (rand(2, 200_000),)),
    "norm": (lambda x: x.norm(), (rand(300_000),)),
    "cumsum": (lambda x: x.cumsum(-1), (rand(2, 50_000),)),
}
DELICATE: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "gelu with tanh in its tail": (lambda x: functional.gelu(x, approximate="tanh"), (torch.linspace(-12, 4, 200),)),
    "gelu in its tail": (functional.gelu, (torch.linspace(-12, 4, 200),)),
    "softmax of large logits": (lambda x: x.softmax(-1), (randn(4, 50) * 200,)),
    "softmax's vanishing entries": (lambda x: x.softmax(-1), (torch.linspace(-80, 80, 60)[None],)),
    "log_softmax of large logits": (lambda x: x.log_softmax(-1), (randn(4, 50) * 200,)),
    "variance of a large mean": (lambda x: x.var(-1), (randn(4, 500) + 1000,)),
    "layer_norm of nearly constant rows": (lambda x: functional.layer_norm(x, (64,)), (1 + 1e-4 * randn(4, 64),)),
    "log near one": (torch.log, (1 + 1e-5 * randn(100),)),
    "cancellation": (lambda x: (x + 1e6) - 1e6, (randn(100),)),
    "sine of large numbers": (torch.sin, (randn(100) * 1e4,)),
    "exponential of large numbers": (torch.exp, (randn(100) * 80,)),
    "sigmoid and silu in their tails": (lambda x: (torch.sigmoid(x), functional.silu(x)), (torch.linspace(-80, 80, 200),)),
    "tanh across its range": (torch.tanh, (torch.cat([torch.logspace(-20, 2, 100), -torch.logspace(-20, 2, 100)]),)),
    "powers": (lambda x: x**3.7, (rand(100) * 1e3,)),
    "reciprocal roots": (torch.rsqrt, (rand(100) * 1e-3 + 1e-6,)),
}


@pytest.fixture(scope="module")
def all_of_them() -> dict[str, list[Entry]]:
    """Every function on inputs of its own, side by side in one model, so that three builds do for all."""
    cases = {**LONG, **DELICATE}

    class All(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sides = nn.ModuleList(Apply(function) for function, _ in cases.values())

        def forward(self, *groups: Any) -> Any:
            return [side(*group) for side, group in zip(self.sides, groups, strict=True)]

    report = locate_quickly(All().eval(), tuple(inputs for _, inputs in cases.values()), exhaustive=True)
    assert report.cost.builds <= 3
    by_path: dict[str, list[Entry]] = {name: [] for name in cases}
    for entry in report.tree:
        if entry.path.startswith("sides."):
            by_path[list(cases)[int(entry.path.split(".")[1])]].append(entry)
    return by_path


@pytest.mark.parametrize("name", [*LONG, *DELICATE])
def test_what_rounding_explains_is_not_accused(all_of_them: dict[str, list[Entry]], name: str) -> None:
    entries = all_of_them[name]
    assert entries
    for entry in entries:
        assert entry.verdict in FAITHFUL, (entry.operator, entry.verdict, entry.reason)
        assert max(entry.excess64, entry.excess32) < 16, (entry.operator, entry.excess64, entry.excess32)


# ------------------------------------------------------------------------------------------------- one precision only


def through_half(node: Any, importer: Any) -> Any:
    """The right formula in a shorter format, as fast math does it."""
    half = relax.op.astype(importer.env[node.args[0]], "float16")
    return importer.block_builder.emit(relax.op.astype(relax.op.exp(half), "float32"))


def test_a_loss_in_float32_that_widening_removes() -> None:
    report = locate_quickly(Apply(torch.exp), randn(4, 8), convert_map={"exp.default": through_half})
    assert [(entry.operator, entry.verdict) for entry in report.culprits] == [("aten.exp.default", Verdict.FLOAT32_ONLY)]
    (culprit,) = report.culprits
    assert culprit.deviation64 < 1e-15
    assert 1e-4 < culprit.deviation32 < 1e-2
    assert culprit.worst is not None
    assert culprit.worst.precision == "native"


def test_a_model_that_amplifies_rounding_is_not_a_fault_and_says_by_how_much() -> None:
    def difference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x @ w - (x[:, :150] @ w[:150] + x[:, 150:] @ w[150:])  # nothing but rounding is left

    report = locate_quickly(Apply(difference), (randn(4, 300), randn(300, 5)), exhaustive=True)
    assert report.verdict is Verdict.ROUNDING
    assert report.culprits == ()
    assert report.root.deviation32 > 1e-4
    assert "amplifies it" in report.root.reason


# ------------------------------------------------------------------------------------------------- exact operators


def one_bit_off(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A converter that gives PyTorch's result, but for one unit in the last place of float32."""

    def convert(node: Any, importer: Any) -> Any:
        scaled = relax.op.multiply(importer.env[node.args[0]], relax.const(np.float32(1 + 2**-23), "float32"))
        return importer.block_builder.emit(operation(importer.block_builder.emit(scaled), node))

    return convert


@pytest.mark.parametrize(
    ("function", "key", "operation"),
    [
        (lambda x: x.view(8, 4), "view.default", lambda x, _: relax.op.reshape(x, (8, 4))),
        (torch.neg, "neg.default", lambda x, _: relax.op.negative(x)),
        (lambda x: x.permute(1, 0), "permute.default", lambda x, _: relax.op.permute_dims(x, [1, 0])),
        (torch.abs, "abs.default", lambda x, _: relax.op.abs(x)),
        (lambda x: functional.max_pool1d(x, 2), "squeeze.dims", lambda x, node: relax.op.squeeze(x, list(node.args[1]))),
    ],
)  # fmt: skip
def test_one_bit_counts_where_nothing_is_rounded(function: Any, key: str, operation: Any) -> None:
    report = locate_quickly(Apply(function), randn(4, 8), convert_map={key: one_bit_off(operation)})
    assert [entry.operator for entry in report.culprits] == [f"aten.{key}"]
    (culprit,) = report.culprits
    assert culprit.excess64 == culprit.excess32 == np.inf
    assert "nothing is rounded" in culprit.reason


def test_one_bit_does_not_count_where_there_is_rounding() -> None:
    def convert(node: Any, importer: Any) -> Any:
        x = importer.env[node.args[0]]
        halves = relax.op.multiply(relax.op.multiply(relax.op.exp(x), relax.const(1 / 3, "float32")), relax.const(3.0, "float32"))
        return importer.block_builder.emit(halves)

    report = locate_quickly(Apply(torch.exp), randn(4, 8), convert_map={"exp.default": convert}, exhaustive=True)
    (exp,) = operators(report)
    assert exp.verdict in FAITHFUL
    assert 0 < exp.excess64 < 8


def test_a_decision_on_the_edge_is_undecided_and_said_to_be() -> None:
    """Floor(10 x) for floor(x / 0.1): at 0.3 one gives 3, the other 2, and one rounding decides which."""

    def convert(node: Any, importer: Any) -> Any:
        scaled = relax.op.multiply(importer.env[node.args[0]], relax.const(10.0, "float32"))
        return importer.block_builder.emit(relax.op.floor(importer.block_builder.emit(scaled)))

    x = torch.cat([torch.arange(1, 40) * 0.1, randn(20)])
    options = {"convert_map": {"div.Tensor_mode": convert}, "exhaustive": True}
    report = locate_quickly(Apply(lambda x: torch.div(x, 0.1, rounding_mode="floor")), x, **options)
    (divide,) = operators(report)
    assert divide.verdict in FAITHFUL
    assert 0 < divide.undecided <= 39
    assert f"{divide.undecided} elements that differ are undecided" in divide.reason
    # A quotient that is wrong by one elsewhere is a fault.
    report = locate_quickly(Apply(lambda x: torch.div(x, 0.1, rounding_mode="floor")), x + 0.05, **options)
    assert operators(report)[0].undecided == 0
    report = locate_quickly(Apply(lambda x: torch.div(x, 0.099, rounding_mode="floor")), x + 0.05, **options)
    assert operators(report)[0].verdict is Verdict.FORMULA


def test_order_among_equals_is_undecided_and_values_are_exact() -> None:
    """PyTorch's sort, argsort and topk are not stable unless asked to be."""
    ties = torch.randint(-20, 20, (3, 400), generator=torch.Generator().manual_seed(0)).float()
    zeros = torch.relu(randn(3, 400))

    def all_of(x: torch.Tensor) -> Any:
        return x.sort(-1), x.argsort(-1), x.topk(50, -1), x.max(-1), x.argmin(-1)

    report = locate_quickly(Apply(lambda x, y: (all_of(x), all_of(y))), (ties, zeros), exhaustive=True)
    judged = [entry for entry in operators(report) if entry.verdict is not Verdict.UNRESOLVED]
    assert len(judged) >= 6
    for entry in judged:
        assert entry.verdict in FAITHFUL, (entry.operator, entry.reason)


def test_a_choice_among_equals_is_no_fault_of_what_holds_it() -> None:
    """As in a router of experts: relu and an underflowing softmax leave many zeros, the latter in float32 only."""
    x = randn(4, 40)
    report = locate_quickly(Apply(lambda x: (torch.relu(x).topk(30, -1), (100 * x).softmax(-1).topk(20, -1))), x, exhaustive=True)
    assert report.culprits == ()
    assert all(entry.verdict in FAITHFUL for entry in report.tree), str(report)


def test_a_wrong_place_is_found() -> None:
    """The place of the smallest for that of the largest, where some numbers are equal and most are not."""

    def convert(node: Any, importer: Any) -> Any:
        return importer.block_builder.emit(relax.op.argmin(importer.env[node.args[0]], -1))

    x = torch.cat([randn(30, 50), torch.zeros(10, 50)])
    report = locate_quickly(Apply(lambda x: x.argmax(-1)), x, convert_map={"argmax.default": convert})
    (culprit,) = report.culprits
    assert culprit.operator == "aten.argmax.default"
    assert "30 integer or boolean elements differ" in culprit.reason


@pytest.mark.parametrize("where", [False, True])
def test_a_decision_about_whole_numbers_is_decided(where: bool) -> None:
    """A mask of zeros and ones is no rounded number: whether it equals 1 is no matter of rounding."""

    def never(node: Any, importer: Any) -> Any:
        return importer.block_builder.emit(relax.op.equal(importer.env[node.args[0]], relax.const(7.0, "float32")))

    mask = (torch.arange(20) % 3 == 0).float()
    function = (lambda m: torch.where(m == 1.0, m * 3, m - 1e4)) if where else (lambda m: m == 1.0)
    report = locate_quickly(Apply(function), mask, convert_map={"eq.Scalar": never})
    assert [(entry.operator, entry.verdict) for entry in report.culprits] == [("aten.eq.Scalar", Verdict.FORMULA)]


def test_a_decision_inside_a_module_is_no_fault_of_it() -> None:
    """As in fake quantisation: a quotient that is one rounding off goes to another step, and nobody is to blame."""

    def convert(node: Any, importer: Any) -> Any:
        return importer.block_builder.emit(relax.op.multiply(importer.env[node.args[0]], relax.const(10.0, "float32")))

    x = torch.cat([(torch.arange(200) + 0.5) * 0.1, randn(20)])
    function = lambda x: torch.round(x / 0.1) * 0.1 + 1.0  # noqa: E731
    report = locate_quickly(Apply(function), x, convert_map={"div.Tensor": convert}, exhaustive=True)
    assert report.culprits == ()
    assert {entry.verdict for entry in report.tree} <= set(FAITHFUL)
    report = locate_quickly(Apply(function), x * 1.01, convert_map={"div.Tensor": convert}, exhaustive=True)
    assert report.verdict is Verdict.FAITHFUL
    assert report.root.deviation32 < 1e-6


# ------------------------------------------------------------------------------------------------- tiny elements


def test_digits_of_tiny_numbers_count_in_log1p_and_expm1() -> None:
    x = torch.tensor([1e-10, 3e-9, -2e-8, 5e-7, 1e-4, 0.5])
    report = locate_quickly(Apply(lambda x: (torch.log1p(x), torch.expm1(x), torch.tanh(x), torch.sinh(x))), x)
    assert {entry.operator: entry.verdict for entry in report.culprits} == {
        "aten.log1p.default": Verdict.FORMULA, "aten.expm1.default": Verdict.FORMULA,
    }  # fmt: skip
    assert all(entry.deviation64 < 1e-15 for entry in report.culprits)


@pytest.mark.parametrize(("scale", "culprits"), [(1.0, []), (0.1, []), (1e-3, ["aten.tanh.default"])])
def test_a_difference_of_nearly_equal_numbers_is_no_interaction(scale: float, culprits: list[str]) -> None:
    """X - tanh(x) shows the digits that TVM's tanh loses near zero: either tanh is to blame or nothing is."""
    report = locate_quickly(nn.Tanhshrink().eval(), scale * randn(8, 12, seed=3))
    assert [entry.operator for entry in report.culprits] == culprits
    assert report.verdict in (FAITHFUL if not culprits else (Verdict.UNSTABLE,))


def test_tanh_is_excused_beside_log1p_as_it_is_alone() -> None:
    x, y = torch.logspace(-20, 2, 60), rand(60) + 0.5
    report = locate_quickly(Apply(lambda x, y: (torch.tanh(x), torch.log1p(y))), (x, y))
    assert report.verdict in FAITHFUL


# ------------------------------------------------------------------------------------------------- what could hide a fault


def a_little_larger(node: Any, importer: Any) -> Any:
    gelu = importer.block_builder.emit(relax.op.nn.gelu(importer.env[node.args[0]]))
    return importer.block_builder.emit(relax.op.multiply(gelu, relax.const(1 + 2**-20, "float32")))


@pytest.mark.parametrize("mask", [-1e4, -1e9, torch.finfo(torch.float32).min])
def test_a_mask_hides_no_fault_beside_it(mask: float) -> None:
    """What is filled in is larger than all data, and says nothing about them."""
    chosen = torch.arange(32).reshape(4, 8) % 3 == 0
    x = randn(4, 8)
    report = locate_quickly(
        Apply(lambda x: functional.gelu(x).masked_fill(chosen, mask)), x, convert_map={"gelu.default": a_little_larger}
    )
    assert [entry.operator for entry in report.culprits] == ["aten.gelu.default"]

    def half_an_ulp_of_the_mask(node: Any, importer: Any) -> Any:
        scores = relax.op.multiply(importer.env[node.args[0]], relax.const(1 + 2**-20, "float32"))
        return importer.block_builder.emit(relax.op.add(importer.block_builder.emit(scores), importer.env[node.args[1]]))

    filled = torch.zeros(4, 8).masked_fill(chosen, mask)
    report = locate_quickly(Apply(torch.add), (x, filled), convert_map={"add.Tensor": half_an_ulp_of_the_mask})
    assert [entry.operator for entry in report.culprits] == ["aten.add.Tensor"]


def test_constants_that_cannot_be_told_apart_hide_no_fault() -> None:
    """0.1, and 0.1 rounded to float32: the model as a whole can be judged in float32 only, its operators one by one in float64."""

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rounded", torch.tensor(0.1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.gelu(functional.leaky_relu(x, 0.1) * self.rounded)

    def barely_larger(node: Any, importer: Any) -> Any:
        gelu = importer.block_builder.emit(relax.op.nn.gelu(importer.env[node.args[0]]))
        return importer.block_builder.emit(relax.op.multiply(gelu, relax.const(1 + 2**-22, "float32")))

    report = locate_quickly(Both().eval(), randn(4, 8), convert_map={"gelu.default": barely_larger})
    assert [entry.operator for entry in report.culprits] == ["aten.gelu.default"]


def test_a_buffer_that_equals_what_the_model_creates_keeps_its_rounded_numbers() -> None:
    class Grid(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("grid", torch.linspace(0, 1, 8))
            self.scale = nn.Parameter(torch.full((8,), 0.1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.grid * self.scale + torch.linspace(0, 1, 8) + torch.full((8,), 0.1)

    report = locate_quickly(Grid().eval(), randn(4, 8))
    assert report.verdict in FAITHFUL
    assert report.culprits == ()
    assert {entry.verdict for entry in report.tree} <= set(FAITHFUL)
