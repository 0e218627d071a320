"""A search that ends early gives its best answer so far, says what it did not look at, and can be gone on with."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import tvm
from torch import nn
from tvm import relax
from tvm.relax.dpl import is_op, rewrite_call, wildcard

from bisect_tvm import Report, Verdict
from bisect_tvm.errors import InputError, ReportError
from bisect_tvm.lowering.approximations import gelu_tanh
from tests.locate.planted import relu_plus_one
from tests.quick import locate_quickly
from tests.untouched import unchanged


@tvm.transform.module_pass(opt_level=0, name="AddGelu")
def add_gelu(module: tvm.IRModule, context: Any) -> tvm.IRModule:
    """Takes the tanh approximation where gelu follows an addition."""
    x, y = wildcard(), wildcard()
    pattern = is_op("relax.nn.gelu")(is_op("relax.add")(x, y))
    for name, function in module.functions.items():
        if isinstance(function, relax.Function):
            module[name] = rewrite_call(pattern, lambda _, m: relax.op.nn.gelu_tanh(relax.op.add(m[x], m[y])), function)
    return module


class AddGelu(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.linspace(-1, 1, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(x + self.bias)


def alone() -> tuple[nn.Module, torch.Tensor, dict[str, Any]]:
    """Two operators, each wrong by itself."""
    torch.manual_seed(0)
    wrong = {"gelu.default": gelu_tanh, "relu.default": relu_plus_one}
    return nn.Sequential(nn.GELU(), nn.Sequential(nn.ReLU(), nn.Softmax(-1))).eval(), torch.randn(3, 8), {"convert_map": wrong}


def together() -> tuple[nn.Module, torch.Tensor, dict[str, Any]]:
    """Two operators that are wrong only when they are compiled together."""
    torch.manual_seed(0)
    return nn.Sequential(AddGelu(), nn.Softmax(-1)).eval(), torch.randn(3, 8), {"pipeline": [add_gelu]}


Question = tuple[nn.Module, torch.Tensor, dict[str, Any]]


class Whole:
    """A question and its answer, undisturbed."""

    def __init__(self, question: Callable[[], Question]) -> None:
        self.model, self.inputs, self.options = question()
        self.steps: list[str] = []
        self.report = self.ask(progress=self.steps.append)
        assert self.report.unfinished == ""
        assert self.report.proof is not None
        assert self.report.proof.sufficient

    def ask(self, **more: Any) -> Report:
        return locate_quickly(self.model, self.inputs, **{"explain": False, **self.options, **more})

    def compared(self, steps: list[str]) -> int:
        return sum("comparing" in step for step in steps)

    def require_same(self, report: Report) -> None:
        """All but what was measured inside the whole model, which is not done again."""
        without = [replace(entry, cumulative32=None, cumulative64=None, effect=None) for entry in report.tree]
        assert without == [replace(entry, cumulative32=None, cumulative64=None, effect=None) for entry in self.report.tree]
        assert (report.verdict, report.culprit_ids) == (self.report.verdict, self.report.culprit_ids)
        assert report.proof == self.report.proof
        assert (report.unfinished, report.summary) == ("", self.report.summary)

    def require_true(self, partial: Report) -> None:
        """What an early answer says is what the final one says, or less."""
        final = {entry.id: entry for entry in self.report.tree}
        for entry in partial.tree:
            # A module may be accused until the search finds what is wrong inside it.
            same = entry.verdict in (final[entry.id].verdict, Verdict.UNRESOLVED, Verdict.INTERACTION)
            assert same, (entry.id, entry.verdict)
        for culprit in partial.culprits:
            inside = [other for other in self.report.culprits if other.id == culprit.id or other.parent == culprit.id]
            assert inside, culprit.id
        assert (partial.proof is None) or partial.proof == self.report.proof
        assert len(str(partial).split("\n")) <= 40
        assert f"Incomplete: {partial.unfinished}"[:60] in str(partial)


@pytest.fixture(scope="module", params=[alone, together])
def whole(request: pytest.FixtureRequest) -> Whole:
    return Whole(request.param)


def test_ctrl_c_at_every_step_and_going_on(whole: Whole, tmp_path: Path) -> None:
    begun = whole.steps.index("running PyTorch in float64") + 1
    compared = []
    for number in range(begun, len(whole.steps)):
        partial = whole.ask(progress=interrupting(number))
        assert partial.interrupted
        whole.require_true(partial)
        steps: list[str] = []
        before = partial if number % 2 else partial.save(tmp_path / f"{number}.json")
        resumed = whole.ask(resume=before, progress=steps.append)
        whole.require_same(resumed)
        assert resumed.cost.builds <= whole.report.cost.builds
        compared.append(whole.compared(steps))
    assert compared == sorted(compared, reverse=True)
    assert compared[-1] < compared[0]


def interrupting(at: int) -> Callable[[str], None]:
    """Ctrl-C as the step of this number begins."""
    steps: list[str] = []

    def progress(step: str) -> None:
        steps.append(step)
        if len(steps) == at + 1:
            raise KeyboardInterrupt

    return progress


def test_ctrl_c_before_the_search_is_passed_on(whole: Whole) -> None:
    begun = whole.steps.index("running PyTorch in float64") + 1
    for number in range(begun):
        with unchanged(whole.model), pytest.raises(KeyboardInterrupt):
            whole.ask(progress=interrupting(number))


def test_no_more_builds_than_allowed(whole: Whole) -> None:
    needed = whole.report.cost.builds + whole.report.cost.further_builds
    partial = None
    for most in range(1, needed + 1):
        partial = whole.ask(max_builds=most)
        assert partial.cost.builds + partial.cost.further_builds <= most
        if not partial.unfinished:
            break
        assert partial.unfinished.startswith(f"max_builds={most} was spent while looking at ")
        whole.require_true(partial)
        whole.require_same(whole.ask(resume=partial))
        if most == 1:
            assert partial.root.verdict is Verdict.UNRESOLVED
            assert partial.root.deviation32 == whole.report.root.deviation32
            assert "operators were not looked at" in partial.unfinished
        else:  # both precisions in one build, where one is left
            assert partial.culprits
    assert partial is not None
    whole.require_same(partial)


def test_no_time(whole: Whole) -> None:
    partial = whole.ask(max_seconds=1e-6)
    assert partial.unfinished.startswith("max_seconds=1e-06 was spent while looking at ")
    assert (partial.verdict, partial.culprits) == (Verdict.UNRESOLVED, ())
    whole.require_true(partial)
    whole.require_same(whole.ask(resume=partial, max_seconds=1e6))


def test_going_on_from_the_end_builds_nothing_that_is_known(whole: Whole) -> None:
    steps: list[str] = []
    resumed = whole.ask(resume=whole.report, progress=steps.append)
    whole.require_same(resumed)
    assert resumed.cost.further_builds == 0
    assert resumed.cost.builds <= 1  # runs of operators that agree are not in a report


def test_what_ends_while_the_culprits_are_explained_is_proved_and_gone_on_with(whole: Whole) -> None:
    steps: list[str] = []
    explained = whole.ask(explain=True, progress=steps.append)
    assert explained.unfinished == ""
    assert [explanation.culprit_ids for explanation in explained.explanations] != []
    spent = whole.report.cost.builds + whole.report.cost.further_builds
    stopped = [whole.ask(explain=True, max_builds=spent)]
    stopped += [whole.ask(explain=True, progress=interrupting(number)) for number in range(len(whole.steps), len(steps))]
    for partial in stopped:
        assert partial.unfinished.endswith(" was spent while looking at stages and workarounds") or partial.interrupted
        assert (partial.culprit_ids, partial.proof) == (explained.culprit_ids, explained.proof)
        assert "stage: unknown" not in str(partial)
    resumed = whole.ask(explain=True, resume=stopped[-1])
    assert (resumed.unfinished, resumed.proof) == ("", explained.proof)
    assert resumed.explanations == explained.explanations
    assert resumed.cost.builds + resumed.cost.further_builds < explained.cost.builds + explained.cost.further_builds


def test_report_of_another_question_is_refused(whole: Whole, tmp_path: Path) -> None:
    other = nn.Sequential(*whole.model.children(), nn.Identity(), nn.Tanh()).eval()
    refused = "The report to resume is one of another model, other inputs or other options; leave"
    with pytest.raises(InputError, match=refused):
        locate_quickly(other, whole.inputs, resume=whole.report, **whole.options)
    with pytest.raises(InputError, match=refused):
        locate_quickly(whole.model, whole.inputs + 1, resume=whole.report, **whole.options)
    with pytest.raises(InputError, match=refused):
        locate_quickly(whole.model, whole.inputs, resume=whole.report)
    with pytest.raises(InputError, match="does not say what it is of"):
        whole.ask(resume=replace(whole.report, fingerprint=""))
    with pytest.raises(InputError, match="must be a Report or the path of a saved one, but it is of type int"):
        whole.ask(resume=3)
    with pytest.raises(ReportError, match="There is no report at"):
        whole.ask(resume=tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("name", "limit"), [("max_builds", 0), ("max_builds", -1), ("max_builds", True), ("max_seconds", 0), ("max_seconds", "1")]
)
def test_limits_that_are_none(name: str, limit: Any) -> None:
    with pytest.raises(InputError, match=f"`{name}` must be a"):
        locate_quickly(nn.ReLU(), torch.ones(2), **{name: limit})
