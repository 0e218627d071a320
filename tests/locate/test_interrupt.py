"""Ctrl-C is heard wherever it is pressed: also where TVM makes an error of its own out of it."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import tvm
from click.testing import CliRunner
from torch import nn

from bisect_tvm.cli import cli
from bisect_tvm.interrupts import noticed, raise_lost, seen
from bisect_tvm.report.report import Report
from tests.quick import locate_quickly
from tests.untouched import unchanged


@pytest.fixture(autouse=True)
def handler_is_put_back() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before


class Pressed:
    """A pass during whose n-th run Ctrl-C is pressed."""

    def __init__(self, at: int) -> None:
        self.runs = 0

        def run(module: tvm.IRModule, context: Any) -> tvm.IRModule:
            self.runs += 1
            if self.runs == at:
                signal.raise_signal(signal.SIGINT)
            return module

        self.as_pass = tvm.transform.module_pass(run, opt_level=0, name="Pressed")


@pytest.mark.parametrize("at", range(2, 8))  # the first is in a thread, perhaps before the search
def test_inside_a_pass(at: int) -> None:
    """TVM reports it as a RuntimeError without a message: taken for a refusal, it would make a part UNRESOLVED."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU()).eval()
    inputs, pressed = torch.randn(2, 4), Pressed(at)
    with unchanged(model):
        report = locate_quickly(model, inputs, pipeline=[pressed.as_pass], exhaustive=True)
    assert pressed.runs >= at, "the pass did not run so often"
    assert report.interrupted
    assert not any(entry.verdict.is_divergence for entry in report.tree)
    assert all("Runtime" not in entry.reason for entry in report.tree)


def test_what_was_lost_is_raised_once() -> None:
    with noticed():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            raise_lost()
        raise_lost()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        seen()
        raise_lost()


def test_a_handler_of_the_users_own_stays() -> None:
    heard = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        with noticed():
            signal.raise_signal(signal.SIGINT)
            raise_lost()
        assert heard == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


SPEC = """
import signal, torch
from bisect_tvm.lowering.approximations import gelu_tanh

calls = []

def gelu(node, importer):
    calls.append(node)
    if len(calls) == {at}:
        signal.raise_signal(signal.SIGINT)
    return gelu_tanh(node, importer)

def build():
    torch.manual_seed(0)
    options = {{"convert_map": {{"gelu.default": gelu}}, "target": {{"kind": "llvm", "opt-level": 0}}}}
    return torch.nn.Sequential(torch.nn.GELU(), torch.nn.Softmax(-1)).eval(), torch.randn(2, 4), options
"""


def test_on_the_command_line(tmp_path: Path) -> None:
    out, spec = tmp_path / "out", tmp_path / "spec.py"

    def run(at: int, *more: str) -> Any:
        spec.write_text(SPEC.format(at=at))
        return CliRunner().invoke(cli, ["locate", f"{spec}:build", "--out", str(out), *more], env={"COLUMNS": "100"})

    early = run(1)  # while the whole model is imported
    assert (early.exit_code, early.stdout, early.stderr) == (130, "", "Interrupted.\n")
    assert not out.exists()
    partial = run(2)  # while the parts are
    assert partial.exit_code == 130
    assert "Incomplete: interrupted while looking at the model and its operators; " in partial.stdout
    assert Report.load(out / "report.json").interrupted
    resumed = run(0, "--resume", str(out / "report.json"))
    assert resumed.exit_code == 1
    assert "1 component deviates by itself: aten.gelu.default" in " ".join(resumed.stdout.split())
    assert Report.load(out / "report.json").interrupted
    assert [entry.operator for entry in Report.load(out / "report-1.json").culprits] == ["aten.gelu.default"]
