"""The formulas that are offered in place of TVM's must keep their digits, and be right everywhere else."""

import inspect

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bisect_tvm.explain.formulas import FORMULAS

SMALL = st.floats(-1e-3, 1e-3, width=64)
UNARY = {
    "log1p": (torch.log1p, st.one_of(SMALL, st.floats(-0.999, 1e30))),
    "expm1": (torch.expm1, st.one_of(SMALL, st.floats(-800, 700))),
    "elu": (torch.nn.functional.elu, st.one_of(SMALL, st.floats(-800, 1e30))),
    "tanh": (torch.tanh, st.one_of(SMALL, st.floats(-800, 800))),
    "atanh": (torch.atanh, st.one_of(SMALL, st.floats(-0.999, 0.999))),
}
BY_NAME = {function.__name__: function for function in FORMULAS.values()}


@pytest.mark.parametrize("name", UNARY)
@given(data=st.data())
def test_keeps_its_digits(name: str, data: st.DataObject) -> None:
    theirs, numbers = UNARY[name]
    x = torch.tensor(data.draw(st.lists(numbers, min_size=1, max_size=20)), dtype=torch.float64)
    torch.testing.assert_close(BY_NAME[name](x), theirs(x), rtol=2e-15, atol=5e-324)


@pytest.mark.parametrize("name", UNARY)
def test_at_the_ends(name: str) -> None:
    x = torch.tensor([0.0, float("inf"), -1.0, 1.0, float("nan")], dtype=torch.float64)
    if name == "atanh":
        x = torch.tensor([0.0, 1.0, -1.0, 0.5, float("nan")], dtype=torch.float64)
    torch.testing.assert_close(BY_NAME[name](x), UNARY[name][0](x), rtol=2e-15, atol=0, equal_nan=True)


def test_elu_takes_all_its_arguments() -> None:
    x = torch.linspace(-3, 3, 13, dtype=torch.float64)
    expected = torch.ops.aten.elu.default(x, 1.67, 1.05, 0.5)
    torch.testing.assert_close(BY_NAME["elu"](x, 1.67, 1.05, 0.5), expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("affine", [True, False])
def test_group_norm_gives_what_torch_gives(affine: bool) -> None:
    x = torch.randn(2, 6, 5, dtype=torch.float64) + 300
    weight = torch.rand(6, dtype=torch.float64) if affine else None
    arguments = (x, weight, weight, 2, 6, 5, 3, 1e-5)
    found, expected = BY_NAME["native_group_norm"](*arguments), torch.ops.aten.native_group_norm.default(*arguments)
    for actual, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("operator", FORMULAS, ids=str)
def test_stands_alone_when_pasted(operator: torch._ops.OpOverload) -> None:
    source = inspect.getsource(FORMULAS[operator]).replace(": Any", "").replace(" -> Any", "")
    names: dict[str, object] = {"torch": torch}
    exec(source, names)
    assert callable(names[FORMULAS[operator].__name__])
    assert "Any" not in source
