from typing import Any

import numpy as np
import pytest
import torch
import tvm
import tvm_ffi
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from bisect_tvm.lowering import kernels
from bisect_tvm.lowering.approximations import gelu_tanh
from bisect_tvm.lowering.build import Builder, BuildError, Executable, RunError, _arrays, failing_kernels
from bisect_tvm.lowering.kernels import kernels_of
from bisect_tvm.lowering.widen import Widener
from bisect_tvm.lowering.workshop import _halve
from tests.lowering.helpers import TARGET, exported, imported, legalized, workshop

X = torch.linspace(-2, 2, 8).reshape(2, 4)


def cumulated(x: torch.Tensor) -> torch.Tensor:
    """The cumulative sum of booleans, which TVM 0.27 cannot compile; the masks of GPT-2 and Llama hold it."""
    return torch.sin(x) + (x > 0).cumsum(-1)


# ---------------------------------------------------------------------------------------------------------------- kernels


def test_the_kernel_that_cannot_be_compiled_is_found() -> None:
    functions, _ = legalized(cumulated, X)
    failing = failing_kernels(functions, TARGET)
    assert len(failing) == 1
    (name,) = failing
    assert "cumsum" in name
    assert failing[name]
    assert "\n" not in failing[name]
    names = {variable.name_hint for variable, function in functions.items() if not isinstance(function, relax.Function)}
    assert name in names
    assert len(names) > 2  # the others can


def test_kernels_that_can_be_compiled_are_not_accused() -> None:
    functions, _ = legalized(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()), X)
    assert failing_kernels(functions, TARGET) == {}


def test_kernels_that_a_function_calls() -> None:
    functions, _ = legalized(lambda x: torch.sin(x) + torch.cos(x), X)
    names = {variable.name_hint for variable, function in functions.items() if not isinstance(function, relax.Function)}
    (main,) = (function for function in functions.values() if isinstance(function, relax.Function))
    assert kernels_of(main) == names
    assert all(kernels_of(f) == set() for f in functions.values() if not isinstance(f, relax.Function))


# ---------------------------------------------------------------------------------------------------------------- builder


def test_a_build_that_fails_counts_too() -> None:
    builder = Builder(TARGET)
    functions, _ = legalized(cumulated, X)
    with pytest.raises(BuildError, match="TVM cannot compile it: "):
        builder.build(functions)
    assert builder.builds == 1
    executable = builder.build(legalized(torch.sin, X)[0])
    assert builder.builds == 2
    np.testing.assert_allclose(executable.run("main", [X.numpy()])[0], X.sin().numpy(), rtol=1e-6)


def test_inputs_that_do_not_fit_are_a_run_error() -> None:
    executable = Builder(TARGET).build(legalized(torch.sin, X)[0])
    with pytest.raises(RunError, match="TVM cannot run it: "):
        executable.run("main", [np.zeros((3, 3), dtype=np.float32)])
    with pytest.raises(RunError):
        executable.run("no such function", [X.numpy()])


def test_outputs_are_flat_and_sizes_are_arrays() -> None:
    tensor = tvm.runtime.tensor(X.numpy())
    arrays = _arrays([tensor, (tvm_ffi.Shape((2, 3)), None), [tensor]])
    assert [array.tolist() for array in arrays] == [X.tolist(), [2, 3], X.tolist()]


# ---------------------------------------------------------------------------------------------------------------- workshop


def test_parts_are_built_in_one_build() -> None:
    shop = workshop()
    programs = {"fa": torch.sin, "fb": torch.cos, "fc": lambda x: (x.sum(-1), x > 0)}
    made = {key: shop.import_one(key, exported(function, X), ()) for key, function in programs.items()}
    built = shop.build_parts({key: part for key, part in made.items() if part is not None})
    assert shop.builder.builds == 1
    assert shop.failures == {}
    assert set(built) == set(programs)
    np.testing.assert_allclose(built["fa"].run_native([X.numpy()])[0], X.sin().numpy(), rtol=1e-6)
    np.testing.assert_allclose(built["fb"].run_wide([X.double().numpy()])[0], X.double().cos().numpy(), rtol=1e-15)
    total, positive = built["fc"].run_wide([X.double().numpy()])
    assert total.shape == (2,)
    assert positive.tolist() == (X > 0).tolist()


def test_a_part_that_cannot_be_built_is_set_aside() -> None:
    shop = workshop({"gelu.default": gelu_tanh})
    programs = {"fgood": torch.sin, "fbad": cumulated, "funknown": lambda x: torch.var_mean(x, 1)[0], "falso": torch.cos}
    made = {key: shop.import_one(key, exported(function, X), ()) for key, function in programs.items()}
    assert made["funknown"] is None
    built = shop.build_parts({key: part for key, part in made.items() if part is not None})
    assert set(built) == {"fgood", "falso"}
    assert set(shop.failures) == {"fbad", "funknown"}
    assert "cumsum" in shop.failures["fbad"]
    assert "var_mean" in shop.failures["funknown"]
    assert shop.builder.builds <= 2
    np.testing.assert_allclose(built["fgood"].run_wide([X.double().numpy()])[0], X.double().sin().numpy(), rtol=1e-15)


@pytest.mark.parametrize(("bad", "builds"), [(False, 1), (True, 2)], ids=["all can be built", "a kernel cannot be compiled"])
def test_parts_are_lowered_and_widened_once(monkeypatch: pytest.MonkeyPatch, bad: bool, builds: int) -> None:
    lowerings: list[Any] = []
    widened: list[str] = []
    add, lower = Widener.add, Builder.lower
    monkeypatch.setattr(Builder, "lower", lambda self, functions: lowerings.append(functions) or lower(self, functions))
    monkeypatch.setattr(Widener, "add", lambda self, name, constants: widened.append(name) or add(self, name, constants))
    shop = workshop()
    parts = {"fa": imported(torch.sin, X), "fb": imported(cumulated if bad else torch.cos, X), "fc": imported(torch.exp, X)}
    assert set(shop.build_parts(parts)) == set(parts) - set(shop.failures)
    assert set(shop.failures) == ({"fb"} if bad else set())
    assert shop.builder.builds == builds
    assert len(lowerings) == 1
    assert widened == ["fa", "fb", "fc"]


def test_what_cannot_be_lowered_is_set_aside() -> None:
    """The halves that can be are built together all the same, with kernels of the same name in them."""
    shop = workshop()
    parts = {f"f{n}": imported(lambda x, n=n: torch.add(x, x, alpha=1) * float(n), X) for n in range(1, 5)}
    sound = Builder.lower

    def choosy(self: Builder, functions: Any) -> Any:
        if any(variable.name_hint == "f2" for variable in functions):
            raise BuildError("no")
        return sound(self, functions)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Builder, "lower", choosy)
        built = shop.build_parts(parts)
    assert shop.failures == {"f2": "no"}
    assert shop.builder.builds == 1
    for n in (1, 3, 4):
        assert built[f"f{n}"].run_native([X.numpy()])[0].tolist() == (X * 2 * n).tolist()


def test_the_whole_that_cannot_be_built_gives_the_reason() -> None:
    assert "TVM cannot" in str(workshop().build_as_given(imported(cumulated, X)))
    executable = workshop().build_as_given(imported(torch.sin, X))
    assert isinstance(executable, Executable)
    np.testing.assert_allclose(executable.run("main", [X.numpy()])[0], X.sin().numpy(), rtol=1e-6)


def test_a_later_build_takes_its_kernels_from_an_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    library = kernels._library

    def noted(some: Any, target: Any) -> Any:
        compiled.extend(some)
        return library(some, target)

    monkeypatch.setattr(kernels, "_library", noted)
    shop = workshop()
    first = shop.build_parts({"fa": imported(torch.sin, X), "fb": imported(torch.cos, X)})
    before = len(compiled)
    # The same kernels under other names: numbers are given in the order in which kernels are met.
    second = shop.build_parts({"fc": imported(lambda x: torch.cos(torch.sin(x)), X)})
    assert len(compiled) == before == 4
    assert shop.builder.builds == 2
    wide = X.double().numpy()
    inner = first["fa"].run_wide([wide])
    assert second["fc"].run_wide([wide])[0].tobytes() == first["fb"].run_wide(inner)[0].tobytes()


def test_kernels_of_one_name_in_two_builds_stay_apart() -> None:
    shop = workshop()
    for key, shape in (("fa", (2, 3)), ("fb", (5,)), ("fc", (2, 3))):
        x = torch.randn(shape)
        built = shop.build_parts({key: imported(lambda x: x.reshape(-1).sum() + x, x)})
        np.testing.assert_allclose(built[key].run_native([x.numpy()])[0], (x.sum() + x).numpy(), rtol=1e-5)
    x, y = torch.randn(5), torch.randn(2, 3)
    swapped = shop.build_parts({"fd": imported(lambda x, y: ((x + 1.0) * 2.0, (y + 1.0) * 2.0), x, y)})
    other = shop.build_parts({"fe": imported(lambda y, x: ((y + 1.0) * 2.0, (x + 1.0) * 2.0), y, x)})
    one, two = swapped["fd"].run_native([x.numpy(), y.numpy()]), other["fe"].run_native([y.numpy(), x.numpy()])
    assert [array.tobytes() for array in one] == [array.tobytes() for array in reversed(two)]


def test_parts_can_be_prepared_and_then_built_in_part() -> None:
    shop = workshop()
    parts = {"fa": imported(torch.sin, X), "fb": imported(torch.cos, X)}
    shop.prepare(parts)
    assert shop.builder.builds == 0
    built = shop.build_parts({"fb": parts["fb"]})
    assert set(built) == {"fb"}
    np.testing.assert_allclose(built["fb"].run_native([X.numpy()])[0], X.cos().numpy(), rtol=1e-6)


def test_nothing_to_build() -> None:
    shop = workshop()
    assert shop.build_parts({}) == {}
    assert shop.builder.builds == 0


def test_functions_of_two_imports_do_not_collide() -> None:
    """Kernels of both have the same names before they are renamed or shared."""
    shop = workshop()
    parts = {f"f{n}": imported(lambda x, n=n: torch.add(x, x, alpha=1) * float(n), X) for n in range(1, 5)}
    built = shop.build_parts(parts)
    for n in range(1, 5):
        assert built[f"f{n}"].run_native([X.numpy()])[0].tolist() == (X * 2 * n).tolist()


# ---------------------------------------------------------------------------------------------------------------- halving


@given(st.lists(st.booleans(), max_size=40))
def test_halving_finds_exactly_the_keys_to_blame(bad: list[bool]) -> None:
    keys = [str(number) for number in range(len(bad))]
    to_blame = {key for key, is_bad in zip(keys, bad, strict=True) if is_bad}
    attempts: list[list[str]] = []
    refused: dict[str, str] = {}

    def attempt(some: list[str]) -> str:
        attempts.append(list(some))
        if wrong := to_blame & set(some):
            raise BuildError(f"because of {min(wrong)}")
        return "+".join(some)

    done = _halve(keys, attempt, refused.__setitem__)
    assert set(refused) == to_blame
    assert all(reason == f"because of {key}" for key, reason in refused.items())
    assert [key for some, _ in done for key in some] == [key for key in keys if key not in to_blame]
    assert all(made == "+".join(some) for some, made in done)
    assert [] not in attempts
    # One attempt where all is well, and no more than a path of the binary tree for each key to blame.
    depth = max(1, (len(keys) - 1).bit_length())
    assert len(attempts) <= 1 + 2 * depth * len(to_blame)
    assert (len(attempts) == 1) == (bool(keys) and (not to_blame or len(keys) == 1))


def test_halving_lets_other_errors_through() -> None:
    def attempt(some: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        _halve(["a", "b"], attempt, lambda key, reason: None)
