from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from bisect_tvm.numerics.judge import Judgement, OutputEvidence, judge, unresolved
from bisect_tvm.numerics.verdict import Verdict
from tests.numerics.evidence import UNIT32, UNIT64, Array, evidence, floors, moderate, of_arrays, values

CLEAN = (Verdict.FAITHFUL, Verdict.ROUNDING)


@st.composite
def samples(draw: st.DrawFn) -> OutputEvidence:
    """Evidence of any kind: clean, wrong, unstable, with NaN and Inf, with undecided elements."""
    shape = draw(arrays_of.array_shapes(min_dims=1, max_dims=3, max_side=4))
    expected = draw(arrays_of.arrays(np.float64, shape, elements=moderate))
    errors = st.sampled_from([0.0, 0.0, 1e-16, 1e-12, 1e-7, 1e-4, 1.0, np.nan, np.inf])
    spreads = st.sampled_from([0.0, 0.0, 1e-15, 1e-6, np.inf])
    sample = evidence(
        expected,
        draw(arrays_of.arrays(np.float64, shape, elements=errors)),
        error_native=draw(arrays_of.arrays(np.float64, shape, elements=errors)),
        own_native=draw(arrays_of.arrays(np.float64, shape, elements=st.sampled_from([0.0, 1e-7]))),
        spread=draw(arrays_of.arrays(np.float64, shape, elements=spreads)),
        spread_native=draw(arrays_of.arrays(np.float64, shape, elements=spreads)),
    )
    exact = draw(st.booleans())
    return replace(sample, floor=replace(sample.floor, exact=exact), floor_native=replace(sample.floor_native, exact=exact))


def rearranged(sample: OutputEvidence, arrange) -> OutputEvidence:
    return OutputEvidence(
        sample.name,
        arrange(sample.expected),
        arrange(sample.expected_native),
        arrange(sample.actual),
        arrange(sample.actual_native),
        replace(sample.floor, spread=arrange(sample.floor.spread)),
        replace(sample.floor_native, spread=arrange(sample.floor_native.spread)),
    )


def without_worst(judgement: Judgement) -> Judgement:
    return replace(judgement, worst=None)


@given(samples(), st.randoms(use_true_random=False))
def test_the_order_of_elements_does_not_matter(sample: OutputEvidence, random) -> None:
    order = list(range(sample.expected.size))
    random.shuffle(order)
    shuffled = rearranged(sample, lambda a: a.reshape(-1)[order].reshape(a.shape))
    assert without_worst(judge([shuffled])) == without_worst(judge([sample]))


@given(samples(), st.integers(0, 3))
def test_the_position_in_a_batch_does_not_matter(sample: OutputEvidence, by: int) -> None:
    rolled = rearranged(sample, lambda a: np.roll(a, by, axis=0))
    assert without_worst(judge([rolled])) == without_worst(judge([sample]))


@given(samples(), st.integers(-30, 30))
def test_scaling_by_a_power_of_two_does_not_matter(sample: OutputEvidence, power: int) -> None:
    scaled = rearranged(sample, lambda a: np.asarray(a * a.dtype.type(2.0**power)))
    assert without_worst(judge([scaled])) == without_worst(judge([sample]))


@given(samples(), samples())
def test_the_order_of_outputs_does_not_matter(first: OutputEvidence, second: OutputEvidence) -> None:
    assert without_worst(judge([first, second])) == without_worst(judge([second, first]))


@given(samples())
def test_a_clean_output_beside_it_excuses_nothing(sample: OutputEvidence) -> None:
    alone, beside = judge([sample]), judge([evidence(np.ones(3)), sample])
    assert alone.diverges == beside.diverges
    if alone.worst is not None:
        assert beside.worst is not None
        assert (beside.worst.output, beside.worst.index) == (1, alone.worst.index)


@st.composite
def one_element(draw: st.DrawFn) -> tuple[Array, Array, tuple[int, ...]]:
    """Values, spreads, and the index of one element."""
    expected = draw(values)
    spread = draw(arrays_of.arrays(np.float64, expected.shape, elements=st.sampled_from([0.0, 1e-16, 1e-14, 1e-10])))
    return expected, spread, draw(st.sampled_from(list(np.ndindex(expected.shape))))


@given(one_element(), st.sampled_from([-1, 1]), st.floats(1000, 1e12))
def test_a_thousand_floors_at_any_element_are_a_wrong_formula(
    case: tuple[Array, Array, tuple[int, ...]], sign: int, times: float
) -> None:
    expected, spread, index = case
    error = np.zeros(expected.shape)
    error[index] = sign * times * floors(expected, spread, UNIT64)[index]
    # Float32 has the same formula, so its error is the same.
    judgement = judge([evidence(expected, error, spread=spread, spread_native=spread * UNIT32 / UNIT64)])
    assert judgement.verdict is Verdict.FORMULA
    assert judgement.worst is not None
    assert judgement.worst.index == index
    assert judgement.worst.precision == "float64"
    assert judgement.worst.expected == expected[index]
    assert judgement.excess64 == pytest.approx(times, rel=0.01)


@given(st.data(), values)
def test_what_is_below_the_floor_is_never_a_fault(data: st.DataObject, expected: Array) -> None:
    def drawn(elements: st.SearchStrategy[float]) -> Array:
        return data.draw(arrays_of.arrays(np.float64, expected.shape, elements=elements))

    spread = drawn(st.sampled_from([0.0, 1e-16, 1e-12, 1e-6, 1.0]))
    below = drawn(st.floats(-1, 1))
    native = spread * UNIT32 / UNIT64
    judgement = judge(
        [
            evidence(
                expected,
                below * floors(expected, spread, UNIT64),
                error_native=below * floors(expected, native, UNIT32),
                spread=spread,
                spread_native=native,
            )
        ]
    )
    assert judgement.verdict in CLEAN
    assert not judgement.diverges
    assert judgement.excess64 <= 2  # the error itself is rounded when it is added
    assert judgement.excess32 <= 2


# ---------------------------------------------------------------------------------------------------------------- kinds

ONES = np.array([1.0, -2.0, 4.0])


def verdict_of(**fields: object) -> Verdict:
    return judge([evidence(ONES, **fields)]).verdict  # type: ignore[arg-type]


def test_nothing_differs() -> None:
    judgement = judge([evidence(ONES)])
    assert judgement.verdict is Verdict.FAITHFUL
    assert judgement.stated == (Verdict.FAITHFUL,)
    assert (judgement.deviation32, judgement.deviation64, judgement.worst) == (0.0, 0.0, None)


@pytest.mark.parametrize("error", [1e-12, 1e-8, 1e-4, 1.0, 1e6])
def test_the_same_error_in_both_precisions_is_a_wrong_formula(error: float) -> None:
    judgement = judge([evidence(ONES, error)])
    assert judgement.verdict is Verdict.FORMULA
    assert judgement.deviation64 == pytest.approx(error / 4, rel=1e-3)


@pytest.mark.parametrize("floors_off", [200, 1e4, 1e6])
def test_an_error_that_shrinks_with_precision_but_not_to_rounding_is_unstable(floors_off: float) -> None:
    assert verdict_of(error=floors_off * UNIT64, error_native=floors_off * UNIT32) is Verdict.UNSTABLE


def test_an_approximation_below_the_rounding_of_float32_is_a_wrong_formula() -> None:
    """In float32 it drowns: the deviation there is PyTorch's and TVM's rounding, and says nothing about the formula."""
    assert verdict_of(error=1e-12, error_native=2 * UNIT32) is Verdict.FORMULA


@pytest.mark.parametrize(("wide", "native"), [(60, 12), (20, 60), (3000, 100), (40, 1e6)])
def test_about_as_many_roundings_in_both_precisions_are_lost_digits(wide: float, native: float) -> None:
    assert verdict_of(error=wide * UNIT64, error_native=native * UNIT32) is Verdict.UNSTABLE


def test_a_short_format_cannot_lose_more_digits_than_it_has() -> None:
    """All of float16's, where float64 loses a million roundings: the same algorithm."""
    sample = evidence(ONES, 1e6 * UNIT64, error_native=0.1)
    half = replace(sample, floor_native=replace(sample.floor_native, unit=2.0**-10))
    assert judge([half]).verdict is Verdict.UNSTABLE


def test_digits_lost_in_one_precision_only() -> None:
    assert verdict_of(error=8 * UNIT64, error_native=200 * UNIT32) is Verdict.FLOAT32_ONLY
    assert verdict_of(error=5000 * UNIT64, error_native=8 * UNIT32) is Verdict.FORMULA


def test_one_bit_is_a_fault_where_nothing_is_rounded() -> None:
    sample = evidence(ONES, [0, UNIT64 * 2, 0], error_native=0.0)
    exact = replace(sample, floor=replace(sample.floor, exact=True), floor_native=replace(sample.floor_native, exact=True))
    assert judge([sample]).verdict is Verdict.FAITHFUL
    judgement = judge([exact])
    assert judgement.verdict is Verdict.FORMULA
    assert "nothing is rounded" in judgement.reason
    assert judgement.worst is not None
    assert judgement.worst.index == (1,)


def test_an_error_of_half_of_the_digits_is_no_loss_of_digits() -> None:
    assert verdict_of(error=2.0**30 * UNIT64, error_native=2.0**30 * UNIT32) is Verdict.FORMULA


def test_digits_lost_in_elements_that_are_nothing_beside_the_largest_do_not_matter() -> None:
    small = np.array([1.0, 1e-8])
    sample = evidence(small, [0, 1000e-8 * UNIT64], error_native=[0, 1000e-8 * UNIT32])

    def judged(tolerance: float) -> Judgement:
        floor, native = replace(sample.floor, tolerance=tolerance), replace(sample.floor_native, tolerance=tolerance)
        return judge([replace(sample, floor=floor, floor_native=native)])

    judgement, strict = judged(np.inf), judged(1.0)
    assert judgement.verdict in CLEAN
    assert judgement.excess < 32 < judgement.strictest
    assert strict.verdict is Verdict.UNSTABLE
    assert strict.excess == strict.strictest


def test_an_error_in_float32_alone() -> None:
    assert verdict_of(error=0.0, error_native=1000 * UNIT32 * 4) is Verdict.FLOAT32_ONLY
    assert verdict_of(error=2 * UNIT64, error_native=1e-2) is Verdict.FLOAT32_ONLY


def test_a_large_error_that_rounding_explains() -> None:
    judgement = judge([evidence(ONES, 1e-12, spread=1e-12, error_native=1e-2, spread_native=1e-2)])
    assert judgement.verdict is Verdict.ROUNDING
    assert "amplifies it 2e+04 times" in judgement.reason  # 1e-2 / 4 in units of 2**-23
    assert verdict_of(error=1e-12, spread=1e-12, error_native=1e-6, spread_native=1e-2) is Verdict.FAITHFUL


def test_rounding_of_pytorch_itself_is_not_held_against_tvm() -> None:
    assert verdict_of(own_native=1e-3, error_native=-1e-3) in CLEAN
    assert verdict_of(own_native=1e-3, error_native=1.0) is Verdict.FLOAT32_ONLY


def test_an_element_of_either_run_makes_it_nonfinite() -> None:
    for wide, native in [(np.nan, np.nan), (0.0, np.nan), (np.inf, 0.0)]:
        judgement = judge([evidence(ONES, np.array([0, wide, 0]), error_native=np.array([0, native, 0]))])
        assert judgement.verdict is Verdict.NONFINITE
        assert judgement.worst is not None
        assert judgement.worst.index == (1,)


def test_nan_beside_a_wrong_formula_states_both() -> None:
    judgement = judge([evidence(ONES, np.array([0.1, np.nan, 0])), evidence(ONES, 0.1)])
    assert {Verdict.NONFINITE, Verdict.FORMULA} <= set(judgement.stated)
    assert judgement.verdict == judgement.stated[0]


def test_undecided_elements_are_counted_and_excused() -> None:
    judgement = judge(
        [evidence(ONES, np.array([0, 5.0, 0]), spread=np.array([0, np.inf, 0]), spread_native=np.array([0, np.inf, 0]))]
    )
    assert judgement.verdict in CLEAN
    assert judgement.undecided == 1
    assert "1 elements that differ are undecided" in judgement.reason


# ---------------------------------------------------------------------------------------------------------------- types


def test_another_dtype_is_a_fault_of_type_and_no_other() -> None:
    judgement = judge([of_arrays(ONES, ONES, ONES.astype(np.float16), ONES.astype(np.float32))])
    assert judgement.stated == (Verdict.TYPE,)
    assert "float32" in judgement.reason
    assert "float16" in judgement.reason
    assert judgement.deviation64 == 0


def test_whole_numbers_of_another_dtype() -> None:
    wanted = np.array([1, 2, 3])
    judgement = judge([of_arrays(wanted, wanted.astype(np.int32))])
    assert judgement.stated == (Verdict.TYPE,)
    judgement = judge([of_arrays(wanted, np.array([1, 2, 4], dtype=np.int32))])
    assert set(judgement.stated) == {Verdict.TYPE, Verdict.FORMULA}


@pytest.mark.parametrize("shape", [(3, 1), (1,), (), (4,)])
def test_another_shape_is_a_fault_of_type(shape: tuple[int, ...]) -> None:
    judgement = judge([of_arrays(ONES, np.ones(shape), ONES.astype(np.float32), np.ones(shape, dtype=np.float32))])
    assert judgement.verdict is Verdict.TYPE
    assert judgement.deviation64 is None
    assert judgement.deviation32 is None
    assert str(list(shape)) in judgement.reason


def test_the_same_dtype_and_shape_are_no_fault() -> None:
    for array in (ONES, ONES.astype(np.float32), np.array([1, 2]), np.array([True]), np.array(1.5), np.zeros((0, 2))):
        assert judge([of_arrays(array, array)]).verdict is Verdict.FAITHFUL


def test_an_integer_that_differs_is_a_wrong_formula() -> None:
    judgement = judge([of_arrays(np.array([1, 2, 3]), np.array([1, 2, 4]))])
    assert judgement.verdict is Verdict.FORMULA
    assert judgement.worst is not None
    assert (judgement.worst.index, judgement.worst.actual, judgement.worst.expected) == ((2,), 4, 3)
    assert isinstance(judgement.worst.actual, int)
    judgement = judge([of_arrays(np.array([True, False]), np.array([True, True]))])
    assert judgement.worst is not None
    assert judgement.worst.actual is True


# ---------------------------------------------------------------------------------------------------------------- the rest


def test_one_run_alone_is_enough() -> None:
    whole = evidence(ONES, 0.5)
    assert judge([replace(whole, actual=None)]).deviation64 is None
    assert judge([replace(whole, actual=None)]).diverges
    assert judge([replace(whole, actual_native=None)]).deviation32 is None
    assert judge([replace(whole, actual_native=None)]).verdict is Verdict.FORMULA


def test_empty_and_zero_dimensional_outputs() -> None:
    assert judge([evidence(np.zeros((0, 4)))]).verdict is Verdict.FAITHFUL
    judgement = judge([evidence(np.array(2.0), 0.5)])
    assert judgement.verdict is Verdict.FORMULA
    assert judgement.worst is not None
    assert judgement.worst.index == ()


def test_unresolved_gives_its_reason_and_accuses_nobody() -> None:
    judgement = unresolved("TVM cannot compile it")
    assert judgement.unresolved
    assert not judgement.diverges
    assert judgement.reason == "TVM cannot compile it"


@pytest.mark.parametrize("verdict", Verdict)
def test_which_verdicts_accuse(verdict: Verdict) -> None:
    assert verdict.is_divergence == (verdict not in {Verdict.FAITHFUL, Verdict.ROUNDING, Verdict.UNRESOLVED})
    assert Verdict(str(verdict)) is verdict


@given(samples())
def test_every_judgement_carries_its_numbers(sample: OutputEvidence) -> None:
    judgement = judge([sample])
    assert judgement.stated[0] is judgement.verdict
    assert len(set(judgement.stated)) == len(judgement.stated)
    assert judgement.reason
    assert "\n" not in judgement.reason
    assert judgement.deviation32 is not None
    assert judgement.deviation64 is not None
    if judgement.diverges:
        assert judgement.worst is not None
