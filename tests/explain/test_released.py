"""Faults of the released TVM: the stage, the converter that made them, and a workaround that works when it is pasted."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from bisect_tvm import Report
from bisect_tvm.report.report import Explanation
from tests.explain.paste import agrees, pasted
from tests.quick import locate_quickly

NAN = torch.tensor([[1.0, float("nan"), -2.0, 3.0]])
TINY = torch.logspace(-10, -1, 16)
IMAGE = torch.linspace(-2, 2, 96).reshape(1, 6, 4, 4)


class Calls(nn.Module):
    """Calls a function."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.function(*tensors)


def explained(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> tuple[Report, Explanation, nn.Module]:
    model = Calls(function).eval()
    report = locate_quickly(model, inputs, explain=True)
    (explanation,) = report.explanations
    assert explanation.culprit_ids == report.culprit_ids
    return report, explanation, model


def group_norm(x: torch.Tensor) -> torch.Tensor:
    return functional.group_norm(x + 300, 3, torch.ones(6), torch.ones(6))


CURED = {
    "selu": (functional.selu, (IMAGE,), "_elu", "have PyTorch decompose aten.elu.default"),
    "elu near 0": (
        lambda x: functional.elu(x * 1e-6),
        (IMAGE,),
        "_elu",
        "compute aten.elu.default by another formula",
    ),
    "nearest": (
        lambda x: functional.interpolate(x, scale_factor=1.7),
        (IMAGE,),
        "_upsample_nearest2d",
        "have PyTorch decompose aten.upsample_nearest2d.vec",
    ),
    "bilinear": (
        lambda x: functional.interpolate(x, scale_factor=1.7, mode="bilinear"),
        (IMAGE,),
        "_upsample_bilinear2d",
        "have PyTorch decompose aten.upsample_bilinear2d.vec and aten.clamp.default",  # TVM cannot clip at infinity
    ),
    "grid_sample": (
        lambda x, grid: functional.grid_sample(x, grid, align_corners=False),
        (IMAGE, torch.linspace(-1, 1, 18).reshape(1, 3, 3, 2)),
        "_grid_sampler_2d",
        "have PyTorch decompose aten.grid_sampler_2d.default",
    ),
    "log1p": (torch.log1p, (TINY,), "_log1p", "compute aten.log1p.default by another formula"),
    "expm1": (torch.expm1, (TINY,), "<lambda>", "compute aten.expm1.default by another formula"),
    "any": (lambda x: torch.any(x, 1), (IMAGE,), "_any", "have PyTorch decompose aten.any.dim"),
    "negative select": (lambda x: x.select(1, -1), (IMAGE,), "_select", "compute aten.select.int by another formula"),
    "maximum of NaN": (
        lambda x: torch.maximum(x, torch.zeros(4)),
        (NAN,),
        "_binary_op",
        "compute aten.maximum.default by another formula",
    ),
    "relu of NaN": (torch.relu, (NAN,), "_unary_op", "have PyTorch decompose aten.relu.default"),
    "clamp of NaN": (lambda x: x.clamp(-1, 1), (NAN,), "_clamp", "have PyTorch decompose aten.clamp.default"),
}


@pytest.mark.parametrize("name", CURED)
def test_a_workaround_is_found_and_works_when_pasted(name: str) -> None:
    function, inputs, converter, what = CURED[name]
    report, explanation, model = explained(function, *inputs)
    assert explanation.stage == "importer or lowering"
    (place,) = explanation.converters
    assert converter in place
    assert "translator.py:" in place
    first = explanation.workarounds[0]
    assert first.what == what
    assert first.whole
    assert first.deviation64 is not None
    assert first.deviation64 < 1e-15
    assert report.root.verdict.is_divergence
    small = 0.0 if name in ("elu near 0", "log1p", "expm1") else 3e-7  # there each element counts for itself
    assert not agrees(pasted(_as_given(model), model=model, inputs=inputs), inputs, model(*inputs), small=small)
    assert agrees(pasted(first.code, model=model, inputs=inputs), inputs, model(*inputs), small=small)


def _as_given(model: nn.Module) -> str:
    return (
        "import torch, tvm\nfrom tvm.relax.frontend.torch import from_exported_program\n"
        "executable = tvm.compile(from_exported_program(torch.export.export(model, inputs)), target='llvm')"
    )


def test_group_norm_in_two_passes() -> None:
    _, explanation, _ = explained(group_norm, IMAGE)
    assert explanation.workarounds[0].what == "compute aten.native_group_norm.default by another formula"
    assert "def native_group_norm(" in explanation.workarounds[0].code
    assert any(line.startswith("have PyTorch decompose aten.native_group_norm.default: ") for line in explanation.tried)


def test_what_does_not_help_is_told_and_not_advised() -> None:
    _, explanation, _ = explained(lambda x: functional.avg_pool2d(x, 2, divisor_override=3), IMAGE)
    assert explanation.workarounds == ()
    assert any("decompose=False" in line and "still off by" in line for line in explanation.tried)


def test_the_evidence() -> None:
    _, explanation, _ = explained(lambda x: torch.add(x, x * x, alpha=2), IMAGE)
    assert "torch.ops.aten.add.Tensor(" in explanation.aten
    assert "alpha=2" in explanation.aten
    assert "torch.float32 (1, 6, 4, 4)" in explanation.aten
    assert "R.add(" in explanation.relax
    assert "T.prim_func" in explanation.tir
    assert "relax.add" in explanation.where
