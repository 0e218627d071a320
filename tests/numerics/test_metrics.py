from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from bisect_tvm.numerics.metrics import THRESHOLD, TOLERATED, Floor, compare, is_float, settled, spread_of
from tests.numerics.evidence import UNIT64, Array, anything, floors, moderate, shapes, values

INT64 = np.iinfo(np.int64)


def floor_of(expected: Array, spread: Array | float = 0.0, unit: float = UNIT64) -> Floor:
    return Floor(np.broadcast_to(np.asarray(spread, dtype=np.float64), expected.shape), unit)


@given(values)
def test_equal_arrays_do_not_differ(expected: Array) -> None:
    difference = compare(expected.copy(), expected, floor_of(expected))
    assert (difference.deviation, difference.excess, difference.worst) == (0.0, 0.0, None)
    assert (difference.nonfinite, difference.mismatched, difference.undecided) == (0, 0, 0)


@given(st.data(), values, st.floats(1e-3, 1e6))
def test_excess_is_the_error_in_floors(data: st.DataObject, expected: Array, times: float) -> None:
    spread = data.draw(arrays_of.arrays(np.float64, expected.shape, elements=st.floats(0, 1)))
    index = data.draw(st.sampled_from(list(np.ndindex(expected.shape))))
    actual = expected.copy()
    floor = floors(expected, spread, UNIT64)[index]
    actual[index] += times * floor
    error = abs(actual[index] - expected[index])
    assume(error > 0)
    difference = compare(actual, expected, floor_of(expected, spread))
    assert difference.worst == index
    assert difference.excess == pytest.approx(error / floor, rel=1e-12)
    assert difference.deviation == pytest.approx(error / np.abs(expected).max(), rel=1e-12)
    lost = error / (spread[index] + UNIT64 * abs(expected[index]))
    assert difference.lost == (pytest.approx(lost, rel=1e-12) if difference.excess > THRESHOLD else 0)


@given(st.data(), shapes)
def test_any_floats_at_all(data: st.DataObject, shape: tuple[int, ...]) -> None:
    """Huge, tiny, infinite and NaN: no warning (that would be an error here), and numbers that mean something."""
    actual, expected = (data.draw(arrays_of.arrays(np.float64, shape, elements=anything)) for _ in range(2))
    spread = data.draw(arrays_of.arrays(np.float64, shape, elements=st.floats(0, allow_nan=False)))
    difference = compare(actual, expected, floor_of(expected, spread))
    assert difference.excess >= 0
    assert difference.deviation >= 0
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    finite = np.isfinite(actual) & np.isfinite(expected)
    decided = np.isfinite(spread)
    assert difference.nonfinite == (~finite & ~same & decided).sum()
    assert difference.undecided == (~same & ~decided).sum()
    assert (difference.excess == 0) <= (difference.worst is None)
    if difference.worst is not None:
        assert not same[difference.worst]
        assert decided[difference.worst]


def test_overflow_of_the_ratio_is_no_warning() -> None:
    """An enormous error where nothing but zero is expected."""
    difference = compare(np.array([1e300]), np.array([0.0]), floor_of(np.zeros(1)))
    assert difference.excess > 1e300
    difference = compare(np.array([-1.7e308]), np.array([1.7e308]), floor_of(np.zeros(1)))
    assert difference.excess > 1e10


@pytest.mark.parametrize("spread", [np.inf, 1.7e308])
def test_an_infinite_error_over_an_infinite_floor_is_excused(spread: float) -> None:
    """The difference of two numbers overflows, and so does the floor: that is no NaN, which would be neither more nor less."""
    expected = np.array([1.7e308, 1e307])
    difference = compare(np.array([-1.7e308, 1.5e307]), expected, floor_of(expected, np.array([spread, 0.0])))
    assert difference.excess > 1e9  # of the other element
    assert difference.worst == (1,)
    assert compare(np.array(-1.7e308), np.array(1.7e308), floor_of(np.array(0.0), spread)).excess <= 2


@pytest.mark.parametrize(
    ("actual", "expected", "counts"),
    [
        (np.nan, np.nan, 0), (np.inf, np.inf, 0), (-np.inf, -np.inf, 0),
        (np.nan, 1.0, 1), (1.0, np.nan, 1), (np.inf, 1.0, 1), (1.0, -np.inf, 1), (np.inf, -np.inf, 1), (np.nan, np.inf, 1),
    ],
)  # fmt: skip
def test_nan_and_inf_must_stand_at_the_same_places(actual: float, expected: float, counts: int) -> None:
    difference = compare(np.array([2.0, actual, 3.0]), np.array([2.0, expected, 3.0]), floor_of(np.zeros(3)))
    assert difference.nonfinite == counts
    assert difference.excess == (np.inf if counts else 0)
    assert difference.deviation == (np.inf if counts else 0)
    assert difference.worst == ((1,) if counts else None)


def test_an_undecided_element_is_not_judged() -> None:
    expected = np.array([1.0, 2.0, 3.0])
    difference = compare(np.array([1.0, 7.0, 3.0]), expected, floor_of(expected, np.array([0.0, np.inf, np.inf])))
    assert difference.undecided == 1  # the third one agrees, so nothing has to be decided
    assert difference.excess == 0
    assert difference.deviation == 0
    difference = compare(np.array([1.0, np.nan, 3.0]), expected, floor_of(expected, np.array([0.0, np.inf, 0.0])))
    assert (difference.nonfinite, difference.undecided) == (0, 1)


@pytest.mark.parametrize(
    ("element", "error", "counts", "counts_where_tiny_numbers_do"),
    [
        (1e-8, 1e5 * UNIT64 * 1e-8, False, False),  # as tanh(1e-8) beside tanh(3)
        (1e-8, 2.0**-20 * 1e-8, True, True),  # many roundings of the largest
        (1e-10, 1e-17, False, True),  # as log1p(1e-10) beside log1p(1)
        (1e-20, 1e-20, False, True),  # all of it
    ],
)
def test_digits_of_a_tiny_element_beside_a_large_one(
    element: float, error: float, counts: bool, counts_where_tiny_numbers_do: bool
) -> None:
    expected = np.array([1.0, element])
    actual = expected + np.array([0.0, error])
    floor = floor_of(expected)
    excused = compare(actual, expected, replace(floor, tolerance=np.inf))
    assert (excused.excess > THRESHOLD) == counts
    assert (compare(actual, expected, replace(floor, tolerance=TOLERATED)).excess > THRESHOLD) == counts_where_tiny_numbers_do
    assert compare(actual, expected, floor).excess > THRESHOLD  # nothing is excused
    assert excused.strictest == compare(actual, expected, floor).excess
    # Alone it is the largest itself.
    alone = compare(actual[1:], expected[1:], floor_of(expected[1:]))
    assert (alone.excess > THRESHOLD) == (error / element > 32 * UNIT64)


def test_what_is_tolerated_does_not_say_what_kind_of_error_the_others_are() -> None:
    expected = np.array([1.0, 1e-20])
    difference = compare(np.array([1 + 100 * UNIT64, 0.0]), expected, replace(floor_of(expected), tolerance=np.inf))
    assert difference.excess == pytest.approx(100)
    assert difference.lost == pytest.approx(100)


def test_underflow_is_no_fault() -> None:
    tiny = float(np.finfo(np.float64).tiny)
    expected = np.array([1.0, tiny / 4])
    assert compare(np.array([1.0, 0.0]), expected, floor_of(expected)).excess < 1
    small = np.array([1.0, float(np.finfo(np.float32).tiny) / 4], dtype=np.float32)
    assert compare(np.array([1.0, 0.0], dtype=np.float32), small, floor_of(small, unit=2.0**-23)).excess < 1


def test_an_allowance_is_not_held_against_tvm() -> None:
    expected = np.array([1.0, 1.0])
    actual = expected + np.array([1e-3, 0.0])
    assert compare(actual, expected, floor_of(expected), allowance=np.array([1e-3, 0.0])).excess == pytest.approx(1)
    assert compare(actual, expected, floor_of(expected), allowance=np.array([0.0, 1e-3])).excess > 1e10


# ---------------------------------------------------------------------------------------------------------------- exact


@given(st.data(), values, st.sampled_from([UNIT64, 2.0**-23]))
def test_one_bit_counts_where_nothing_is_rounded(data: st.DataObject, expected: Array, unit: float) -> None:
    floor = Floor(np.zeros(expected.shape), unit, exact=True)
    assert compare(expected.copy(), expected, floor, allowance=np.ones(expected.shape)).excess == 0
    index = data.draw(st.sampled_from(list(np.ndindex(expected.shape))))
    actual = expected.copy()
    actual[index] = np.nextafter(actual[index], data.draw(st.sampled_from([-np.inf, np.inf])))
    difference = compare(actual, expected, floor, allowance=np.ones(expected.shape))
    assert (difference.excess, difference.lost, difference.worst) == (np.inf, np.inf, index)
    assert 0 < difference.deviation <= UNIT64


def test_what_underflows_counts_where_nothing_is_rounded() -> None:
    denormal = np.array([5e-324, 1.0])
    assert compare(np.array([0.0, 1.0]), denormal, Floor(np.zeros(2), UNIT64, exact=True)).excess == np.inf
    assert compare(np.array([-0.0, 1.0]), np.array([0.0, 1.0]), Floor(np.zeros(2), UNIT64, exact=True)).excess == 0


def test_a_decision_that_flips_is_undecided_and_a_copy_beside_it_is_exact() -> None:
    expected = np.array([1.0, 1e6, 0.0, 5.0])
    spread = np.array([UNIT64, 1.0, 1.0, 0.0])  # copied; rounded up or down; a sign that flips; rounded the same way
    floor = settled(Floor(spread, UNIT64, exact=True), expected, jumps=False)
    assert floor.spread.tolist() == [0.0, np.inf, np.inf, 0.0]
    difference = compare(np.array([1.0, 1e6 + 1, 1.0, 5.0]), expected, floor)
    assert (difference.excess, difference.undecided) == (0, 2)
    assert compare(expected + np.array([UNIT64, 0, 0, 0]), expected, floor).excess == np.inf


def test_a_remainder_jumps_and_rounds() -> None:
    expected = np.array([0.1, 2.9999, 4.0, 0.25])
    spread = np.array([1e-15, 2.9999, 1.0, 0.01])  # rounds; wraps; a quotient that is one more; another decimal
    floor = settled(Floor(spread, UNIT64), expected, jumps=True)
    assert floor.spread.tolist() == [1e-15, np.inf, np.inf, np.inf]
    assert settled(Floor(spread, UNIT64), expected, jumps=False).spread.tolist() == spread.tolist()


def test_whole_numbers_are_settled_as_they_are() -> None:
    floor = Floor(np.array([0.0, np.inf]), UNIT64, exact=True)
    assert settled(floor, np.array([1, 2]), jumps=False) is floor


# ---------------------------------------------------------------------------------------------------------------- whole numbers


@given(st.data(), shapes, st.sampled_from([np.int8, np.int32, np.int64, np.uint8, np.bool_]))
def test_whole_numbers_are_compared_exactly(data: st.DataObject, shape: tuple[int, ...], dtype: type[np.generic]) -> None:
    actual, expected = (data.draw(arrays_of.arrays(dtype, shape)) for _ in range(2))
    difference = compare(actual, expected, floor_of(expected))
    wrong = int((actual != expected).sum())
    assert difference.mismatched == wrong
    assert difference.excess == (np.inf if wrong else 0)
    assert (difference.deviation > 0) == (wrong > 0)
    assert (difference.worst is not None) == (wrong > 0)
    if difference.worst is not None:
        assert actual[difference.worst] != expected[difference.worst]


@pytest.mark.parametrize(
    ("actual", "expected", "deviation"),
    [
        (INT64.max, INT64.min, (2**64 - 1) / 2**63),
        (INT64.min, INT64.max, (2**64 - 1) / (2**63 - 1)),
        (INT64.max, INT64.max - 1, 1 / (2**63 - 2)),  # as floats they would be equal
        (INT64.max, INT64.max, 0),
        (5, 0, 5),
    ],
)
def test_extremes_of_int64(actual: int, expected: int, deviation: float) -> None:
    difference = compare(np.array([actual]), np.array([expected]), floor_of(np.zeros(1)))
    assert difference.mismatched == (actual != expected)
    assert difference.deviation == pytest.approx(deviation, rel=1e-15, abs=0)


def test_a_whole_number_that_rounding_flips_is_undecided() -> None:
    expected = np.array([1, 2, 3])
    difference = compare(np.array([1, 9, 4]), expected, floor_of(expected, np.array([0.0, np.inf, 0.0])))
    assert (difference.mismatched, difference.undecided, difference.worst) == (1, 1, (2,))


# ---------------------------------------------------------------------------------------------------------------- shapes


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.bool_])
@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3, 1)])
def test_empty_arrays_agree(dtype: type[np.generic], shape: tuple[int, ...]) -> None:
    empty = np.zeros(shape, dtype=dtype)
    difference = compare(empty, empty, floor_of(empty))
    assert (difference.deviation, difference.excess, difference.worst) == (0.0, 0.0, None)


def test_zero_dimensional_arrays() -> None:
    assert compare(np.array(3.0), np.array(2.0), floor_of(np.array(2.0))).worst == ()
    assert compare(np.array(3), np.array(2), floor_of(np.array(2))).worst == ()
    assert compare(np.array(2.0), np.array(2.0), floor_of(np.array(2.0))).worst is None


# ---------------------------------------------------------------------------------------------------------------- spread


@given(st.data(), values, st.integers(1, 4))
def test_spread_is_the_largest_change(data: st.DataObject, expected: Array, count: int) -> None:
    runs = [data.draw(arrays_of.arrays(np.float64, expected.shape, elements=moderate)) for _ in range(count)]
    assert np.array_equal(spread_of(expected, runs), np.max([np.abs(run - expected) for run in runs], axis=0))


def test_without_runs_there_is_no_spread() -> None:
    assert spread_of(np.ones((2, 3)), []).tolist() == np.zeros((2, 3)).tolist()
    assert spread_of(np.ones((2, 3), dtype=np.int64), []).tolist() == np.zeros((2, 3)).tolist()


def test_what_leaves_the_finite_numbers_is_undecided() -> None:
    expected = np.array([1.0, np.nan, np.inf, np.inf, 1.0, np.nan])
    run = np.array([np.inf, np.nan, np.inf, -np.inf, np.nan, 1.0])
    assert spread_of(expected, [run]).tolist() == [np.inf, 0.0, 0.0, np.inf, np.inf, np.inf]


@pytest.mark.parametrize("dtype", [np.int64, np.bool_])
def test_a_whole_number_that_changes_is_undecided(dtype: type[np.generic]) -> None:
    expected, run = np.array([0, 1, 1], dtype=dtype), np.array([0, 1, 0], dtype=dtype)
    assert spread_of(expected, [expected, run]).tolist() == [0.0, 0.0, np.inf]


def test_which_arrays_are_floating_point() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")  # comes with TVM
    for dtype in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16):
        assert is_float(np.zeros(1, dtype=dtype))
    for dtype in (np.int64, np.uint8, np.bool_):
        assert not is_float(np.zeros(1, dtype=dtype))
