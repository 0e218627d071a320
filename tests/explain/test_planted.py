"""Faults planted in each stage of the compilation, and in how the user converts: the stage and the cure are known."""

from typing import Any

import pytest
import torch
import tvm
from torch import nn
from torch.nn import functional
from tvm import relax
from tvm.relax.dpl import is_op, rewrite_call, wildcard

from bisect_tvm import Report, Verdict, locate
from bisect_tvm.lowering.approximations import gelu_tanh
from tests.explain.paste import agrees, pasted
from tests.locate import planted
from tests.quick import UNOPTIMISED, locate_quickly

BY_CONVERTER = "leave your own converter of gelu.default out of convert_map"


def _rewritten(module: tvm.IRModule, pattern: Any, change: Any) -> tvm.IRModule:
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            module[variable] = rewrite_call(pattern, change, function)
    return module


@tvm.transform.module_pass(opt_level=0, name="ApproximateGelu")
def approximate_gelu(module: tvm.IRModule, context: Any) -> tvm.IRModule:
    """Every gelu becomes its tanh approximation. Works in place, as a pass may."""
    x = wildcard()
    pattern = is_op("relax.nn.gelu")(x)
    return _rewritten(module, pattern, lambda call, found: relax.op.nn.gelu_tanh(found[x]))


@tvm.transform.module_pass(opt_level=0, name="DoNothing")
def do_nothing(module: tvm.IRModule, context: Any) -> tvm.IRModule:
    """A pass that is innocent."""
    return module


class Block(nn.Module):
    """Two operators."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(x * 2) + 1


X = torch.linspace(-3, 3, 32).reshape(4, 8)


def explained(model: Any, inputs: Any, **options: Any) -> Report:
    return locate_quickly(model, inputs, explain=True, **options)


def the_explanation(report: Report) -> Any:
    (explanation,) = report.explanations
    return explanation


def test_the_users_own_converter_is_shown_and_left_out() -> None:
    model, x = planted.stack(2)
    report = explained(model, x, convert_map={"gelu.default": gelu_tanh})
    explanation = the_explanation(report)
    assert explanation.stage == "importer or lowering"
    assert "relax.nn.gelu_tanh" in explanation.where
    assert explanation.converters[0].startswith("gelu.default: ")
    assert "approximations.py:" in explanation.converters[0]
    assert explanation.workarounds[0].what == BY_CONVERTER
    assert explanation.workarounds[0].whole
    executable = pasted(explanation.workarounds[0].code, model=model, inputs=x, convert_map={"gelu.default": gelu_tanh})
    assert agrees(executable, x, model(x))
    assert len(explanation.culprit_ids) == 2
    # One build for the remedies on the culprits, one or two (a precision each) on the model; the stage is known from the search.
    assert report.cost.further_builds <= 5


def test_of_the_users_converters_only_the_faulty_one_is_left_out() -> None:
    model, x = planted.stack(1)
    convert_map = {"gelu.default": gelu_tanh, "add.Tensor": lambda node, importer: importer.env[node.args[0]]}
    del convert_map["add.Tensor"]
    convert_map["native_layer_norm.default"] = _keeps(model, x)
    report = explained(model, x, convert_map=convert_map)
    explanation = the_explanation(report)
    assert "custom_convert_map=convert_map" in explanation.workarounds[0].code
    executable = pasted(explanation.workarounds[0].code, model=model, inputs=x, convert_map=convert_map)
    assert agrees(executable, x, model(x))


def _keeps(model: nn.Module, x: torch.Tensor) -> Any:
    """TVM's own converter of layer normalisation, as if it were the user's."""

    def convert(node: Any, importer: Any) -> Any:
        return importer.create_convert_map()["native_layer_norm.default"](node)

    return convert


@pytest.mark.parametrize("form", ["list", "sequential", "pass", "function"])
def test_the_pass_that_did_it_is_named(form: str) -> None:
    passes = [do_nothing, approximate_gelu, do_nothing]
    pipeline = {
        "list": passes,
        "sequential": tvm.transform.Sequential(passes),
        "pass": approximate_gelu,
        "function": lambda module: approximate_gelu(do_nothing(module)),
    }[form]
    model = Block().eval()
    report = explained(model, X, pipeline=pipeline)
    explanation = the_explanation(report)
    assert explanation.stage == "pass"
    assert "ApproximateGelu" in explanation.where
    first = explanation.workarounds[0]
    shortens = "leave the pass ApproximateGelu out of the pipeline"
    assert first.what == (shortens if form in ("list", "sequential") else "use TVM's default pipeline")
    assert first.whole
    assert agrees(pasted(first.code, model=model, inputs=X, pipeline=pipeline), X, model(X))
    # What the importer made is shown as it was, although the pass works in place.
    assert "gelu_tanh" not in explanation.relax
    assert "gelu_tanh" in explanation.tir


def test_code_generation() -> None:
    class MasksNan(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.where(torch.isnan(x * 2), torch.zeros_like(x), x) + 1

    model, x = MasksNan().eval(), torch.tensor([[1.0, float("nan"), -2.0, 3.0]])
    # LLVM may then assume that there is no NaN, and does so where it optimises.
    report = locate(model, x, target={"kind": "llvm", "fast-math": True})
    explanation = the_explanation(report)
    assert [entry.operator for entry in report.culprits] == ["aten.isnan.default"]
    assert explanation.stage == "code generation"
    assert explanation.workarounds[0].what == "compile at opt-level 0"
    assert agrees(pasted(explanation.workarounds[0].code, model=model, inputs=x), x, model(x))


def test_a_converter_shows_as_the_importers_fault_at_the_users_opt_level_too() -> None:
    report = locate(Block().eval(), X, convert_map={"gelu.default": gelu_tanh})
    explanation = the_explanation(report)
    assert explanation.stage == "importer or lowering"
    assert "also with TVM's shortest pipeline at opt-level 0" in explanation.where


def test_several_kinds_are_cured_at_once() -> None:
    class Two(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.selu(functional.gelu(x)) + 1

    model = Two().eval()
    report = explained(model, X, convert_map={"gelu.default": gelu_tanh})
    assert len(report.explanations) == 2
    for explanation in report.explanations:
        first = explanation.workarounds[0]
        assert first.whole
        assert BY_CONVERTER in first.what
        assert "have PyTorch decompose aten.elu.default" in first.what
    code = report.explanations[0].workarounds[0].code
    assert code == report.explanations[1].workarounds[0].code
    assert agrees(pasted(code, model=model, inputs=X, convert_map={"gelu.default": gelu_tanh}), X, model(X))


def test_where_one_kind_has_no_cure_the_other_is_told_for_itself() -> None:
    class Two(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.selu(functional.avg_pool1d(x[None], 2)) + torch.add(x, x, alpha=3)[:, :4]

    report = explained(Two().eval(), X)
    by_operator = {report.explanations[i].aten.rpartition("torch.ops.")[2].split("(")[0]: i for i in range(2)}
    add, elu = (report.explanations[by_operator[name]] for name in ("aten.add.Tensor", "aten.elu.default"))
    assert add.workarounds == ()
    assert elu.workarounds
    assert not any(workaround.whole for workaround in elu.workarounds)


class Named(nn.Module):
    """Takes its arguments by name."""

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return functional.selu(x) * scale


@pytest.mark.parametrize("form", ["dict", "kwargs", "samples", "program"])
def test_the_code_fits_how_locate_was_called(form: str) -> None:
    model: Any = Named().eval()
    scale = torch.rand(8) + 1
    expected = model(X, scale)
    names: dict[str, Any] = {"inputs": (X, scale)}
    if form == "dict":
        names = {"inputs": {"x": X, "scale": scale}}
    elif form == "kwargs":
        names = {"inputs": X, "kwargs": {"scale": scale}}
    elif form == "samples":
        names = {"inputs": [(X, scale), (X + 1, scale)]}
    elif form == "program":
        model = torch.export.export(model, (X, scale))
    report = explained(model, **names)
    first = the_explanation(report).workarounds[0]
    assert first.whole
    assert agrees(pasted(first.code, model=model, **names), (X, scale), expected)


def test_a_program_that_the_user_does_not_decompose() -> None:
    model, x = nn.Sequential(nn.ReLU(), nn.Flatten()).eval(), torch.tensor([[1.0, float("nan"), -2.0, 3.0]])
    report = explained(model, x, decompose=False)
    first = the_explanation(report).workarounds[0]
    assert first.what == "have PyTorch decompose aten.relu.default"
    assert first.whole
    assert agrees(pasted(first.code, model=model, inputs=x), x, model(x))


def test_nothing_is_explained_where_that_is_not_wanted() -> None:
    report = locate_quickly(Block().eval(), X, convert_map={"gelu.default": gelu_tanh})
    assert report.explanations == ()
    assert report.culprits
    assert report.cost.further_builds <= 2


def test_a_faithful_model_has_nothing_to_explain() -> None:
    report = explained(Block().eval(), X)
    assert report.explanations == ()
    assert report.cost.further_builds == 0
    assert report.verdict in (Verdict.FAITHFUL, Verdict.ROUNDING)


def test_the_culprits_of_a_model_that_agrees_are_cured_by_themselves() -> None:
    """With `exhaustive`, culprits are found whose deviation never reaches the output."""

    class Hidden(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (functional.gelu(x) > 100).float() + x

    report = explained(Hidden().eval(), X, convert_map={"gelu.default": gelu_tanh}, exhaustive=True)
    explanation = the_explanation(report)
    assert not report.root.verdict.is_divergence
    assert [workaround.whole for workaround in explanation.workarounds] == [False] * len(explanation.workarounds)
    assert explanation.workarounds


def test_a_budget_that_ends_in_the_explanation_keeps_what_is_known() -> None:
    model = Block().eval()
    options = {"convert_map": {"gelu.default": gelu_tanh}, "target": UNOPTIMISED}
    spent = locate(model, X, explain=False, **options).cost
    report = locate(model, X, max_builds=spent.builds + spent.further_builds, **options)
    assert "stages and workarounds" in report.unfinished
    assert report.proof is not None
    assert report.proof.sufficient
    explanation = the_explanation(report)
    assert explanation.stage == "importer or lowering"
    assert explanation.workarounds == ()
