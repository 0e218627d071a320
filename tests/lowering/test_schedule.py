import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from torch import nn
from torch.nn import functional
from tvm import relax, s_tir, tirx
from tvm.script import tirx as T  # noqa: N812 - as TVM's own scripts name it

from bisect_tvm.lowering import schedule
from bisect_tvm.lowering.build import Builder
from bisect_tvm.lowering.kernels import Functions
from bisect_tvm.lowering.schedule import scheduled
from bisect_tvm.lowering.widen import Widener
from tests.lowering.helpers import TARGET, legalized

Model = nn.Module | Callable[..., Any]
WIDE = "_wide"

torch.manual_seed(0)
FASTER: dict[str, tuple[Model, tuple[torch.Tensor, ...]]] = {
    "matmul": (torch.matmul, (torch.randn(33, 65), torch.randn(65, 67))),
    "large operand": (torch.matmul, (torch.randn(6, 520), torch.randn(520, 530))),
    "batched matmul": (torch.matmul, (torch.randn(2, 3, 20, 40), torch.randn(2, 3, 40, 28))),
    "linear": (nn.Linear(96, 100), (torch.randn(2, 9, 96),)),
    "conv2d": (nn.Conv2d(8, 12, 3, bias=False), (torch.randn(1, 8, 17, 15),)),
    "padded, strided conv2d": (nn.Conv2d(3, 16, 7, stride=2, padding=3), (torch.randn(2, 3, 21, 23),)),
    "grouped conv2d": (nn.Conv2d(12, 24, 3, padding=1, groups=3), (torch.randn(1, 12, 14, 14),)),
    "depthwise conv2d": (nn.Conv2d(12, 12, 7, padding=3, groups=12), (torch.randn(1, 12, 14, 14),)),
    "conv1d": (nn.Conv1d(16, 24, 3, padding=1), (torch.randn(1, 16, 101),)),
    "transposed conv2d": (nn.ConvTranspose2d(8, 12, 4, stride=2, padding=1), (torch.randn(1, 8, 9, 9),)),
    "int matmul": (torch.matmul, (torch.randint(-9, 9, (33, 65)), torch.randint(-9, 9, (65, 67)))),
    "sum of columns": (lambda x: x.sum(0), (torch.randn(300, 400),)),
    "transposed": (lambda x: x.T.contiguous() + 1, (torch.randn(320, 336),)),
}
"""Models with a kernel that must be reordered."""
AS_BEFORE: dict[str, tuple[Model, tuple[torch.Tensor, ...]]] = {
    "small matmul": (torch.matmul, (torch.randn(4, 8), torch.randn(8, 4))),
    "matrix by vector": (torch.matmul, (torch.randn(400, 400), torch.randn(400, 1))),
    "small depthwise conv2d": (nn.Conv2d(96, 96, 3, padding=1, groups=96), (torch.randn(1, 96, 16, 16),)),
    "softmax": (lambda x: x.softmax(-1), (torch.randn(400, 400),)),
    "layer_norm": (nn.LayerNorm(400), (torch.randn(400, 400),)),
    "cumsum": (lambda x: x.cumsum(0), (torch.randn(400, 400),)),
    "argmax": (lambda x: x.argmax(0), (torch.randn(400, 400),)),
    "max_pool2d": (lambda x: functional.max_pool2d(x, 3, 2, 1), (torch.randn(1, 16, 60, 60),)),
    "avg_pool2d": (lambda x: functional.avg_pool2d(x, 2), (torch.randn(1, 64, 60, 60),)),
    "topk": (lambda x: x.topk(3).values, (torch.randn(400, 400),)),
    "elementwise": (torch.exp, (torch.randn(400, 400),)),
}


def lowered_of(case: tuple[Model, tuple[torch.Tensor, ...]]) -> Functions:
    model, inputs = case
    return legalized(model, *inputs)[0]


def changed(before: Functions, after: Functions) -> list[str]:
    assert list(before) == list(after)
    return [variable.name_hint for variable in before if before[variable] is not after[variable]]


def both_precisions(lowered: Functions, constants: Any) -> Functions:
    widener = Widener(lowered, WIDE)
    widener.add("main", constants)
    return {**lowered, **widener.functions}


def assert_bit_equal(model: Model, inputs: tuple[torch.Tensor, ...]) -> list[str]:
    """The same bits in both precisions; returns the names of the kernels that were changed."""
    lowered, constants = legalized(model, *inputs)
    faster = scheduled(lowered)
    plain, quick = (Builder(TARGET).build(both_precisions(each, constants)) for each in (lowered, faster))
    for name, dtype in (("main", np.float32), ("main" + WIDE, np.float64)):
        arrays = [x.numpy().astype(dtype) if x.is_floating_point() else x.numpy() for x in inputs]
        for expected, actual in zip(plain.run(name, arrays), quick.run(name, arrays), strict=True):
            assert expected.dtype == actual.dtype
            assert expected.tobytes() == actual.tobytes()
    return changed(lowered, faster)


@pytest.mark.parametrize("name", FASTER)
def test_reordered_kernels_give_the_same_bits(name: str) -> None:
    assert assert_bit_equal(*FASTER[name])


@pytest.mark.parametrize("name", AS_BEFORE)
def test_other_kernels_stay_the_same_object(name: str) -> None:
    # So what they compute stays the same, too.
    lowered = lowered_of(AS_BEFORE[name])
    assert changed(lowered, scheduled(lowered)) == []


def test_special_values_give_the_same_bits() -> None:
    x, y = torch.randn(33, 65), torch.randn(65, 67)
    x[0], x[1, 3], y[:, 5], y[2, 7] = -0.0, torch.inf, -0.0, -torch.inf
    y[9] *= 1e-42
    assert assert_bit_equal(torch.matmul, (x, y))


def loops_of(function: Any, block: str) -> list[tuple[str, int]]:
    """Names, without numbers, and extents of the loops around a block, from the outside."""
    schedule = s_tir.Schedule(tvm.IRModule({"main": function}))
    loops = [schedule.get(loop) for loop in schedule.get_loops(schedule.get_sblock(block))]
    return [(re.sub(r"\d.*", "", loop.loop_var.name), int(loop.extent)) for loop in loops]


def kernel(functions: Functions, name: str) -> Any:
    return next(function for variable, function in functions.items() if variable.name_hint == name)


def test_the_last_axis_of_a_matrix_product_becomes_the_innermost_loop() -> None:
    lowered = lowered_of(FASTER["matmul"])
    assert loops_of(kernel(lowered, "matmul"), "matmul") == [("i", 33), ("i", 67), ("k", 65)]
    assert loops_of(kernel(scheduled(lowered), "matmul"), "matmul_update") == [("i", 33), ("k", 65), ("i", 67)]
    assert loops_of(kernel(scheduled(lowered), "matmul"), "matmul_init") == [("i", 33), ("i", 67)]


def test_rows_share_what_is_read_of_a_large_operand() -> None:
    lowered = lowered_of(FASTER["large operand"])
    loops = loops_of(kernel(scheduled(lowered), "matmul"), "matmul_update")
    assert loops == [("i", 1), ("k", 520), ("i", 6), ("i", 530)]


def test_the_width_of_a_convolution_becomes_the_innermost_loop() -> None:
    lowered = lowered_of(FASTER["conv2d"])
    before = [("nn", 1), ("ff", 12), ("yy", 15), ("xx", 13), ("rc", 8), ("ry", 3), ("rx", 3)]
    assert loops_of(kernel(lowered, "conv2d"), "conv2d_nchw") == before
    after = [*before[:3], *before[4:], before[3]]
    assert loops_of(kernel(scheduled(lowered), "conv2d"), "conv2d_nchw_update") == after


def test_attributes_and_the_functions_given_are_kept() -> None:
    lowered = lowered_of(FASTER["matmul"])
    variable = next(each for each in lowered if each.name_hint == "matmul")
    lowered[variable] = lowered[variable].with_attr("global_symbol", "mine").with_attr("note", 7)
    before = lowered[variable].script()
    after = scheduled(lowered)
    assert changed(lowered, after) == ["matmul"]
    assert lowered[variable].script() == before
    assert dict(after[variable].attrs.items()) == dict(lowered[variable].attrs.items())


def test_a_kernel_of_unknown_shape_is_left_alone() -> None:
    rows = tirx.Var("n", "int64")
    x, y = relax.Var("x", relax.TensorType((rows, 512), "float32")), relax.Var("y", relax.TensorType((512, 512), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        builder.emit_func_output(builder.emit(relax.op.matmul(x, y)))
    lowered = Builder(TARGET).lower(dict(builder.get().functions_items()))
    assert any(isinstance(function, tirx.PrimFunc) for function in lowered.values())
    assert changed(lowered, scheduled(lowered)) == []


@T.prim_func(s_tir=True)
def known(x: T.Buffer((400, 400), "float32"), out: T.Buffer((400,), "float32")):  # type: ignore[no-untyped-def,valid-type]
    for j, k in T.grid(400, 400):
        with T.sblock("sum"):
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                out[vj] = T.float32(0)
            out[vj] = out[vj] + x[vk, vj]


def test_a_kernel_of_the_known_form_is_reordered() -> None:
    functions = {tvm.ir.GlobalVar("f"): known}
    assert changed(functions, scheduled(functions)) == ["f"]


@T.prim_func(s_tir=True)
def in_place(x: T.Buffer((400, 400), "float32"), out: T.Buffer((400,), "float32")):  # type: ignore[no-untyped-def,valid-type]
    """Each addition depends on another element of the output."""
    for j, k in T.grid(400, 400):
        with T.sblock("sum"):
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                out[vj] = T.float32(0)
            out[vj] = out[vj] + out[(vj + 1) % 400] * x[vk, vj]


@T.prim_func(s_tir=True)
def without_blocks(x: T.Buffer((400, 400), "float32"), out: T.Buffer((400,), "float32")):  # type: ignore[no-untyped-def,valid-type]
    for j, k in T.grid(400, 400):
        out[j] = out[j] + x[k, j]


@T.prim_func(s_tir=True)
def skewed(x: T.Buffer((400, 400), "float32"), out: T.Buffer((400,), "float32")):  # type: ignore[no-untyped-def,valid-type]
    """Blocks do not run for all values of the loops."""
    for j, k in T.grid(410, 400):
        with T.sblock("sum"):
            vj = T.axis.spatial(400, j)
            vk = T.axis.reduce(400, k)
            T.where(j < 400)
            with T.init():
                out[vj] = T.float32(0)
            out[vj] = out[vj] + x[vk, vj]


@T.prim_func(s_tir=True)
def on_threads(x: T.Buffer((400, 400), "float32"), out: T.Buffer((400,), "float32")):  # type: ignore[no-untyped-def,valid-type]
    for j in T.thread_binding(400, thread="threadIdx.x"):
        for k in range(400):
            with T.sblock("sum"):
                vj, vk = T.axis.remap("SR", [j, k])
                with T.init():
                    out[vj] = T.float32(0)
                out[vj] = out[vj] + x[vk, vj]


@T.prim_func(s_tir=True)
def empty(x: T.Buffer((), "float32")):  # type: ignore[no-untyped-def,valid-type]
    T.evaluate(0)


@pytest.mark.parametrize("function", [in_place, without_blocks, skewed, on_threads, empty], ids=lambda f: f.attrs["global_symbol"])
def test_a_kernel_of_another_form_is_left_alone(function: Any) -> None:
    functions = {tvm.ir.GlobalVar("f"): function}
    assert changed(functions, scheduled(functions)) == []


def test_a_kernel_that_a_scheduler_of_tvm_has_marked_is_left_alone() -> None:
    lowered = lowered_of(FASTER["matmul"])
    marked = {v: f.with_attr(schedule.ALREADY, True) if isinstance(f, tirx.PrimFunc) else f for v, f in lowered.items()}
    assert changed(marked, scheduled(marked)) == []


def test_what_fails_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(s_tir.Schedule, "decompose_reduction", fail)
    lowered = lowered_of(FASTER["matmul"])
    assert changed(lowered, scheduled(lowered)) == []
