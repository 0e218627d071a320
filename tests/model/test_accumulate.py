"""How much the additions inside a sum round, against sums that were added one after the other."""

from typing import Any

import numpy as np
import pytest
import torch

from bisect_tvm.model.accumulate import has_rule, is_average, is_normalisation, one_after_another, rounding_of_sum

ATEN = torch.ops.aten
UNIT32 = 2.0**-23


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


SUMS: dict[str, tuple[Any, tuple[Any, ...], Any]] = {
    # operator, arguments, and its terms as the last dimension
    "sum": (ATEN.sum.dim_IntList, (rand(40, 3000), [1]), lambda x, _: x),
    "sum of several dimensions": (ATEN.sum.dim_IntList, (rand(30, 40, 5, 7), [1, 2, 3]), lambda x, _: x.flatten(1)),
    "sum of signs": (ATEN.sum.dim_IntList, (rand(40, 3000) - 0.5, [-1]), lambda x, _: x),
    "mean": (ATEN.mean.dim, (rand(40, 3000), [1]), lambda x, _: x / 3000),
    "mm": (ATEN.mm.default, (rand(8, 2000), rand(2000, 6)), lambda a, b: a[:, None, :] * b.T[None]),
    "mm of signs": (ATEN.mm.default, (rand(8, 2000) - 0.5, rand(2000, 6) - 0.5), lambda a, b: a[:, None, :] * b.T[None]),
    "bmm": (ATEN.bmm.default, (rand(2, 8, 2000), rand(2, 2000, 6)), lambda a, b: a[:, :, None] * b.mT[:, None]),
    "dot": (ATEN.dot.default, (rand(5000), rand(5000, seed=1)), lambda a, b: a * b),
    "average pool": (ATEN.avg_pool2d.default, (rand(4, 5, 50, 60), [50, 60]), lambda x, _: x.flatten(2) / 3000),
    "adaptive pool": (ATEN._adaptive_avg_pool2d.default, (rand(4, 5, 50, 60), [1, 1]), lambda x, _: x.flatten(2) / 3000),
    "convolution": (
        ATEN.convolution.default, (rand(2, 300, 3, 3), rand(6, 300, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
        lambda x, w: x.flatten(1)[:, None] * w.flatten(1)[None],
    ),
    "grouped convolution": (
        ATEN.convolution.default, (rand(2, 300, 3, 3), rand(6, 150, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 2),
        lambda x, w: (x.reshape(2, 2, 1, 150 * 9) * w.reshape(1, 2, 3, 150 * 9)).flatten(1, 2),
    ),
    "transposed convolution": (
        ATEN.convolution.default, (rand(2, 2000, 1, 1), rand(2000, 6, 1, 1), None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1),
        lambda x, w: x.flatten(1)[:, None] * w[:, :, 0, 0].T[None],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
def test_the_expectation_is_of_the_size_of_the_error(name: str) -> None:
    """Float32 additions one after the other: the root mean square of their error is near what is expected, and never far above."""
    func, args, terms_of = SUMS[name]
    result = func(*args)
    expected = rounding_of_sum(func, args, {}, result)
    assert expected is not None
    assert expected.shape == result.shape
    terms = terms_of(args[0], args[1]).numpy().astype(np.float32)
    # The same float32 terms for both, so that nothing but the additions differs.
    error = np.abs(np.cumsum(terms, -1)[..., -1].astype(np.float64) - terms.astype(np.float64).sum(-1)).reshape(-1)
    in_units = error / UNIT32 / expected.reshape(-1).numpy()
    assert in_units.max() < 4
    assert np.sqrt((in_units**2).mean()) > 0.02


def test_running_sums_round_more_and_more() -> None:
    x = rand(3, 1000)
    expected = rounding_of_sum(ATEN.cumsum.default, (x, 1), {}, x.cumsum(1))
    assert expected is not None
    assert bool((expected[:, 1:] > expected[:, :-1]).all())
    assert float(expected[0, -1]) == pytest.approx(float(x[0].cumsum(0).square().sum().sqrt()))


def test_a_variance_rounds_as_a_sum_of_squares() -> None:
    x = rand(2, 1200) + 1000
    expected = rounding_of_sum(ATEN.var.correction, (x, [1]), {"correction": 1}, x.var(1))
    assert expected is not None
    torch.testing.assert_close(expected, x.var(1) * 20)


@pytest.mark.parametrize("func", [ATEN.tanh.default, ATEN.relu.default, ATEN.add.Tensor, ATEN._softmax.default])
def test_what_is_no_sum(func: Any) -> None:
    assert not has_rule(func)
    assert rounding_of_sum(func, (rand(3),), {}, rand(3)) is None


def test_whole_numbers_and_nothing_at_all() -> None:
    whole = torch.arange(6).reshape(2, 3)
    assert rounding_of_sum(ATEN.sum.dim_IntList, (whole, [1]), {}, whole.sum(1)) is None
    empty = rand(0, 3)
    assert rounding_of_sum(ATEN.sum.dim_IntList, (empty, [1]), {}, empty.sum(1)) is None


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("dims", [[1], [-1], [0, 2], [0, 1, 2], None, 1])
def test_additions_in_a_row(dims: Any, backwards: bool) -> None:
    x = rand(4, 5, 6)
    args = (x,) if dims is None else (x, dims)
    for func, whole in ((ATEN.sum.dim_IntList, x.sum), (ATEN.mean.dim, x.mean)):
        result = whole() if dims is None else whole(dims)
        double = one_after_another(func, args, result, single=False, backwards=backwards)
        single = one_after_another(func, args, result, single=True, backwards=backwards)
        torch.testing.assert_close(double, result, rtol=1e-14, atol=0)
        torch.testing.assert_close(single, result, rtol=1e-5, atol=0)
        assert not torch.equal(single, double)
        assert double.dtype is single.dtype is torch.float64


def test_which_operators_are_which() -> None:
    assert is_average(ATEN.mean.dim)
    assert not is_average(ATEN.mm.default)
    assert is_normalisation(ATEN.native_group_norm.default)
    assert not is_normalisation(ATEN.var.correction)
