from typing import Any

import pytest
import torch
from torch import nn

from bisect_tvm.model.cut import Boundary, boundary
from bisect_tvm.model.hierarchy import component_tree
from bisect_tvm.model.perturb import run_perturbed
from bisect_tvm.model.reference import run_reference
from bisect_tvm.numerics.metrics import spread_of
from tests.apply import Apply
from tests.model.helpers import captured
from tests.model.test_hierarchy import Model

UNIT64 = 2.0**-52


def whole_of(model: nn.Module, inputs: Any) -> tuple[Any, Boundary, Any]:
    program = captured(model, inputs)
    values = run_reference(program).values
    return program, boundary(program, component_tree(program), values), values


def runs(model: nn.Module, inputs: Any, *, deep: bool = False, seed: int = 0, unit: float = UNIT64) -> list[list[torch.Tensor]]:
    program, edge, values = whole_of(model, inputs)
    return [list(run) for run in run_perturbed(program, edge, values, unit=unit, deep=deep, seed=seed)]


def spread(model: nn.Module, inputs: Any, *, deep: bool = False, unit: float = UNIT64) -> torch.Tensor:
    """Of the first output."""
    program, edge, values = whole_of(model, inputs)
    made = [run[0].numpy() for run in run_perturbed(program, edge, values, unit=unit, deep=deep)]
    return torch.from_numpy(spread_of(values[edge.outputs[0].name].numpy(), made))


def flat(made: list[list[torch.Tensor]]) -> list[torch.Tensor]:
    return [tensor for run in made for tensor in run]


@pytest.mark.parametrize("deep", [False, True])
def test_the_same_seed_gives_the_same_runs(deep: bool) -> None:
    torch.manual_seed(0)
    model, x = Model(), torch.randn(2, 4)
    before = torch.get_rng_state()
    first, second, other = (flat(runs(model, x, deep=deep, seed=seed)) for seed in (0, 0, 1))
    assert first
    assert all(map(torch.equal, first, second))
    assert not all(map(torch.equal, first, other))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("deep", [False, True])
def test_runs_differ_from_each_other_but_little(deep: bool) -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(8, 4)
    expected = runs(model, x, unit=0.0)[0][0]
    made = [run[0] for run in runs(model, x, deep=deep)]
    assert not torch.equal(made[0], made[1])
    for run in made:
        assert 0 < float((run - expected).abs().max()) < 1e-14


EXACT = {
    "view": lambda x: x.view(4, 2),
    "transpose": lambda x: x.transpose(0, 1),
    "cat": lambda x: torch.cat([x, x]),
    "relu": torch.relu,
    "max": lambda x: x.max(-1).values,
    "max_pool": lambda x: nn.functional.max_pool1d(x.unsqueeze(0), 2),
    "gather": lambda x: x.gather(1, torch.tensor([[0, 1], [2, 3]])),
    "where": lambda x: torch.where(x > 100, x, -x.abs()),
    "pad": lambda x: nn.functional.pad(x, (1, 1), value=0.1),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "sort": lambda x: x.sort(-1).values,
}


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("deep", [False, True])
def test_exact_operators_have_no_spread(name: str, deep: bool) -> None:
    """What only moves, selects or compares numbers: one bit that differs counts."""
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    if name == "where":  # holds a comparison and a selection: as a run of operators its inputs may move
        assert float(spread(Apply(EXACT[name]), x, deep=deep).max()) <= 2 * UNIT64 * float(x.abs().max())
    else:
        assert float(spread(Apply(EXACT[name]), x, deep=deep).max()) == 0


@pytest.mark.parametrize("deep", [False, True])
def test_whole_numbers_have_no_spread(deep: bool) -> None:
    x = torch.arange(8).reshape(2, 4)
    assert float(spread(Apply(lambda x: x * 3 + 1), x, deep=deep).max()) == 0
    assert float(spread(Apply(lambda x: x.cumsum(-1)), x, deep=deep).max()) == 0
    assert float(spread(Apply(lambda x: x // 2), x, deep=deep).max()) == 0


def test_a_comparison_at_the_edge_is_undecided_and_others_are_not() -> None:
    x = torch.tensor([1.0, 2.0, 3.0])
    assert spread(Apply(lambda x: x * 1.5 > 3.0), x).tolist() == [0.0, torch.inf, 0.0]
    assert spread(Apply(lambda x: (x / 3).round() > 0.5), torch.tensor([0.3, 1.5, 3.0])).tolist() == [0.0, torch.inf, 0.0]


def test_argmax_at_a_tie_is_undecided() -> None:
    x = torch.tensor([[1.0, 1.0, 0.0], [1.0, 2.0, 0.0]])
    assert spread(Apply(lambda x: x.exp().argmax(-1)), x).tolist() == [torch.inf, 0.0]


@pytest.mark.parametrize("deep", [False, True])
def test_cancellation_is_seen(deep: bool) -> None:
    """1e8 - 1e8: all digits are gone, and the spread says so."""
    x = torch.tensor([1.1])
    assert float(spread(Apply(lambda x: (x + 1e8) - 1e8), x, deep=deep)) > 1e-9
    assert float(spread(Apply(lambda x: (x + 1) * 2), x, deep=deep)) < 1e-14


def test_cancellation_inside_an_operator_is_seen_in_depth_only() -> None:
    """Gelu with tanh in its tail is 1 + tanh(u), of which nothing is left."""
    x = torch.tensor([-6.0])
    shallow = spread(nn.GELU(approximate="tanh"), x)
    deep = spread(nn.GELU(approximate="tanh"), x, deep=True)
    assert float(deep) > 100 * float(shallow)


def test_the_spread_grows_with_the_unit() -> None:
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    fine, coarse = (spread(Apply(lambda x: x.exp().sum(-1)), x, unit=unit) for unit in (2.0**-52, 2.0**-23))
    ratio = float(coarse.max() / fine.max()) / 2.0**29
    assert 0.3 < ratio < 3


@pytest.mark.parametrize("deep", [False, True])
def test_perturbing_changes_none_of_the_recorded_values(deep: bool) -> None:
    program, edge, values = whole_of(Model(), torch.randn(2, 4))
    before = {name: value.clone() for name, value in values.items() if isinstance(value, torch.Tensor)}
    for _ in run_perturbed(program, edge, values, unit=UNIT64, deep=deep):
        pass
    assert all(torch.equal(values[name], value) for name, value in before.items())
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x[i],
        lambda x, i: x.index_select(0, i * 2 - i),
        lambda x, i: nn.functional.max_pool2d(x.reshape(1, 1, 2, 4), 2, return_indices=True),
        lambda x, i: nn.functional.interpolate(x.reshape(1, 1, 2, 4), scale_factor=2.0, mode="nearest"),
        lambda x, i: nn.functional.interpolate(x.reshape(1, 1, 2, 4), size=(3, 5), mode="bilinear"),
        lambda x, i: nn.functional.grid_sample(x.reshape(1, 1, 2, 4), torch.zeros(1, 3, 3, 2) + 0.3, align_corners=False),
        lambda x, i: nn.functional.embedding(i, x),
        lambda x, i: nn.functional.embedding_bag(i, x, torch.tensor([0])),
        lambda x, i: nn.functional.one_hot(i, 4) + x[:1],
        lambda x, i: torch.where(i.bool(), x[0, :2], x[1, :2]),
        lambda x, i: x.cumsum(-1) + torch.arange(4).flip(0),
        lambda x, i: nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
        lambda x, i: nn.functional.adaptive_avg_pool1d(x[None], 3),
        lambda x, i: torch.stft(x.reshape(8), 4, window=torch.ones(4), return_complex=False, center=False),
        lambda x, i: x.bool() & (x > 0),
    ],
    ids=range(15),
)  # fmt: skip
def test_every_kind_of_operator_can_be_perturbed(function: Any, deep: bool) -> None:
    """Indices that are computed as floats stay whole, integer results stay integers: nothing raises."""
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    for run in runs(Apply(function), (x, torch.tensor([0, 1])), deep=deep):
        for tensor in run:
            assert not tensor.is_floating_point() or bool(tensor.isfinite().all())


@pytest.mark.parametrize("deep", [False, True])
def test_infinite_values_stay_and_count_as_nothing(deep: bool) -> None:
    """A mask of -inf, and what tanh and sums make of it."""
    x = torch.tensor([[1.0, -torch.inf, 2.0], [0.5, 0.25, -torch.inf]])
    assert float(spread(Apply(lambda x: torch.tanh(x) + x.softmax(-1)), x, deep=deep).max()) < 1e-14
    sums = spread(Apply(lambda x: (x * 1.5).sum(-1)), x, deep=deep)
    assert sums.tolist() == [0.0, 0.0]


def test_no_element_of_a_difference_of_equal_terms_is_without_noise() -> None:
    """Two terms that move by the same step cancel for half of all signs; in depth there are enough of them."""
    x = torch.rand(2000, generator=torch.Generator().manual_seed(0)) + 0.5
    made = spread(Apply(lambda x: x.exp() * 0.5 - x.exp() / 2), x, deep=True)
    assert bool((made > 0).all())


def test_what_tanh_is_excused_alone_is_granted_where_it_stands_among_others() -> None:
    """An eighth of a rounding of the largest: x - tanh(x) shows it."""
    x = torch.tensor([1e-3, 1.0])
    alone, among = spread(Apply(torch.tanh), x), spread(nn.Tanhshrink(), x, deep=True)
    assert float(alone[0]) < 1e-18
    assert float(among[0]) > 0.9 * UNIT64 * 0.76 / 8
