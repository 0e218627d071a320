import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import bisect_tvm
from bisect_tvm.cli import cli
from bisect_tvm.errors import CaptureError, InputError
from bisect_tvm.numerics.verdict import Verdict
from bisect_tvm.report.report import Report
from tests.report.synthetic import Node, bert, culprit, report

NOTHING = (None, None, None)


@pytest.fixture
def spec(tmp_path: Path) -> str:
    (tmp_path / "my_model.py").write_text(
        "def build():\n    return 'model', 'inputs'\n\n"
        "def optional():\n    return 'model', 'inputs', {'exhaustive': True, 'target': 'c'}\n\n"
        "def unknown():\n    return 'model', 'inputs', {'fast': True}\n\n"
        "def broken():\n    raise ValueError('no weights')\n"
    )
    return f"{tmp_path}/my_model.py"


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[dict[str, Any]]]:
    """Replaces locate by a fake that returns a report or raises; returns the calls it got."""

    def install(result: Any) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []

        def fake(model: Any, inputs: Any, *, target: str = "llvm", **options: Any) -> Report:
            calls.append({"model": model, "inputs": inputs, "target": target, **options})
            if isinstance(result, BaseException):
                raise result
            if callable(result):
                result()
            return result if isinstance(result, Report) else bert([None])

        # The real keyword arguments, for the real check of option names; only what differs from the default is noted.
        def locate(
            model: Any,
            inputs: Any,
            *,
            kwargs: Any = None,
            convert_map: Any = None,
            decompose: bool = True,
            pipeline: Any = None,
            target: str = "llvm",
            depth: str = "diverging",
            exhaustive: bool = False,
            explain: bool = True,
            max_builds: int | None = None,
            max_seconds: float | None = None,
            resume: Any = None,
            progress: Any = None,
        ) -> Report:
            new = {"pipeline": pipeline, "max_builds": max_builds, "max_seconds": max_seconds, "resume": resume}
            options = {name: value for name, value in new.items() if value is not None}
            options |= {"depth": depth} if depth != "diverging" else {}
            options |= {} if explain else {"explain": False}
            return fake(model, inputs, target=target, decompose=decompose, exhaustive=exhaustive, progress=progress, **options)

        # Straight into the package's dict: looking the real one up would import TVM.
        monkeypatch.setitem(vars(bisect_tvm), "locate", locate)
        return calls

    return install


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, env={"COLUMNS": "100"})


@pytest.mark.parametrize(
    ("result", "status"),
    [
        (bert([None]), 0),
        (report(Node("", Verdict.ROUNDING)), 0),
        (bert([1e-4]), 1),
        (report(Node("", Verdict.TYPE)), 1),
        (report(Node("", Verdict.UNRESOLVED, NOTHING)), 2),
        (report(Node("", Verdict.UNRESOLVED, NOTHING, [culprit("aten.gelu.default")])), 1),
    ],
)
def test_exit_status_is_the_verdict(result: Report, status: int, spec: str, answer: Any) -> None:
    answer(result)
    finished = run("locate", f"{spec}:build")
    assert finished.exit_code == status
    assert finished.stdout == f"{result}\n"
    assert finished.stderr == ""


def test_options_reach_locate_and_the_command_line_wins(spec: str, answer: Any) -> None:
    calls = answer(bert([None]))
    assert run("locate", f"{spec}:optional").exit_code == 0
    assert run("locate", f"{spec}:optional", "--target", "llvm -mcpu=x", "--no-decompose").exit_code == 0
    assert run("locate", f"{spec}:build", "--exhaustive").exit_code == 0
    common = {"model": "model", "inputs": "inputs", "progress": None}
    assert calls == [
        {**common, "target": "c", "exhaustive": True, "decompose": True},
        {**common, "target": "llvm -mcpu=x", "exhaustive": True, "decompose": False},
        {**common, "target": "llvm", "exhaustive": True, "decompose": True},
    ]


def test_options_of_the_search_reach_locate(spec: str, answer: Any, tmp_path: Path) -> None:
    calls = answer(bert([None]))
    before = replace(bert([1e-4]), unfinished="interrupted")
    path = str(before.save(tmp_path / "before.json"))
    limits = ("--depth", "all", "--max-builds", "3", "--max-seconds", "1.5", "--resume", path, "--pipeline", "zero", "--no-explain")
    assert run("locate", f"{spec}:build", *limits).exit_code == 0
    given = {name: calls[0][name] for name in ("depth", "max_builds", "max_seconds", "resume", "pipeline", "explain")}
    assert given == {
        "depth": "all",
        "max_builds": 3,
        "max_seconds": 1.5,
        "resume": before,
        "pipeline": "zero",
        "explain": False,
    }


def test_pipeline_out_of_a_file(spec: str, answer: Any, tmp_path: Path) -> None:
    calls = answer(bert([None]))
    (tmp_path / "my_passes.py").write_text("PASSES = ['a', 'b']\n")
    assert run("locate", f"{spec}:optional", "--pipeline", f"{tmp_path}/my_passes.py:PASSES").exit_code == 0
    assert calls[0]["pipeline"] == ["a", "b"]


@pytest.mark.parametrize(
    ("pipeline", "complaint"),
    [
        ("{folder}/my_model.py:missing", "my_model.py has no 'missing', so it cannot be the pipeline."),
        ("{folder}/nowhere.py:PASSES", "There is no file {folder}/nowhere.py."),
        ("{folder}/my_model.py:", "is not a pipeline: give the name of one of TVM's, file.py:name or package.module:name."),
        ("my-module:name", "is not a pipeline: give the name of one of TVM's, file.py:name or package.module:name."),
        ("nowhere:name", "There is no module nowhere on Python's path"),
    ],
)
def test_pipeline_that_is_not_there(pipeline: str, complaint: str, spec: str, answer: Any, tmp_path: Path) -> None:
    calls = answer(bert([None]))
    finished = run("locate", f"{spec}:build", "--pipeline", pipeline.format(folder=tmp_path))
    assert finished.exit_code == 2
    assert finished.stderr.count("\n") == 1
    assert complaint.format(folder=tmp_path) in finished.stderr
    assert calls == []


def test_report_to_resume_that_cannot_be_read(spec: str, answer: Any, tmp_path: Path) -> None:
    calls = answer(bert([None]))
    (tmp_path / "damaged.json").write_text('{"format": "bisect_tvm.report", "version": 2, ')
    complaints = {"missing.json": "There is no report at", "damaged.json": "is truncated"}
    for name, complaint in complaints.items():
        finished = run("locate", f"{spec}:build", "--resume", str(tmp_path / name))
        assert (finished.exit_code, finished.stderr.count("\n")) == (2, 1)
        assert complaint in finished.stderr
    assert calls == []


def test_a_resumed_report_is_not_overwritten(spec: str, answer: Any, tmp_path: Path) -> None:
    before = replace(bert([1e-4]), unfinished="interrupted while looking at the proof")
    path = before.save(tmp_path / "report.json")
    answer(bert([1e-4]))
    finished = run("locate", f"{spec}:build", "--resume", str(path), "--out", str(tmp_path))
    assert finished.exit_code == 1
    assert finished.stdout.endswith(f"Saved as {tmp_path}/report-1.json and {tmp_path}/report-1.txt.\n")
    assert Report.load(path) == before
    assert Report.load(tmp_path / "report-1.json") == bert([1e-4])


@pytest.mark.parametrize("limit", [("--max-builds", "x"), ("--max-seconds", "soon"), ("--depth", "deep")])
def test_malformed_limits(limit: tuple[str, str]) -> None:
    finished = run("locate", "a:b", *limit)
    assert finished.exit_code == 2
    assert limit[0] in finished.stderr


def test_unknown_option_names_the_valid_ones(spec: str, answer: Any) -> None:
    answer(bert([None]))
    finished = run("locate", f"{spec}:unknown")
    assert finished.exit_code == 2
    assert "unknown option 'fast'; there are kwargs, convert_map, decompose, pipeline, target, depth, exhaustive, explain, " in (
        finished.stderr
    )


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InputError("The model is in training mode."), "Error: The model is in training mode.\n"),
        (CaptureError("torch.export says no."), "Error: torch.export says no.\n"),
        (RuntimeError("boom\nmore"), "Error: this is a bug in bisect_tvm, which stopped at RuntimeError: boom."),
        (SystemExit(0), "Error: this is a bug in bisect_tvm, which stopped at SystemExit: 0."),
    ],
)
def test_errors_are_one_sentence_and_status_2(error: BaseException, message: str, spec: str, answer: Any) -> None:
    answer(error)
    finished = run("locate", f"{spec}:build")
    assert finished.exit_code == 2
    assert finished.stderr.startswith(message)
    assert finished.stderr.count("\n") == 1
    assert finished.stdout == ""
    debugged = run("locate", f"{spec}:build", "--debug")
    assert debugged.exit_code == 2
    assert "Traceback (most recent call last)" in debugged.stderr


def test_failure_in_the_users_function_names_its_line(spec: str, answer: Any) -> None:
    answer(bert([None]))
    finished = run("locate", f"{spec}:broken")
    assert finished.exit_code == 2
    assert finished.stderr == f"Error: {spec}:broken failed with ValueError: no weights (at {spec}:11).\n"


def test_interrupt(spec: str, answer: Any) -> None:
    answer(KeyboardInterrupt())
    finished = run("locate", f"{spec}:build")
    assert finished.exit_code == 130
    assert finished.stderr == "Interrupted.\n"


def test_interrupted_search_is_shown_and_saved(spec: str, answer: Any, tmp_path: Path) -> None:
    partial = replace(bert([1e-4]), unfinished="interrupted while looking at the proof")
    answer(partial)
    finished = run("locate", f"{spec}:build", "--out", str(tmp_path / "out"))
    assert finished.exit_code == 130
    assert "Incomplete: interrupted while looking at the proof.\n" in finished.stdout
    assert finished.stdout.endswith(f"Go on with --resume {tmp_path}/out/report.json\n")
    assert Report.load(tmp_path / "out" / "report.json") == partial


def test_interrupt_while_saving_leaves_no_empty_file(spec: str, answer: Any, tmp_path: Path, monkeypatch: Any) -> None:
    def interrupted(report: Report, path: Path) -> None:
        raise KeyboardInterrupt

    answer(bert([1e-4]))
    monkeypatch.setattr(Report, "save", interrupted)
    finished = run("locate", f"{spec}:build", "--out", str(tmp_path / "out"))
    assert (finished.exit_code, finished.stderr) == (130, "Interrupted.\n")
    assert list((tmp_path / "out").iterdir()) == []


def spent(root: Node) -> Report:
    return replace(report(root), unfinished="max_builds=1 was spent while looking at the model and its operators")


@pytest.mark.parametrize(
    ("result", "status"),
    [
        (spent(Node("", Verdict.UNRESOLVED, NOTHING)), 2),
        (spent(Node("", Verdict.UNRESOLVED, NOTHING, [culprit("aten.gelu.default")])), 1),
        (spent(Node("", Verdict.FORMULA)), 1),
        (spent(Node("")), 0),
    ],
)
def test_a_spent_budget_leaves_the_status_to_the_verdict(result: Report, status: int, spec: str, answer: Any) -> None:
    answer(result)
    finished = run("locate", f"{spec}:build")
    assert finished.exit_code == status
    assert "Incomplete: max_builds=1 was spent" in finished.stdout


@pytest.mark.parametrize("arguments", [["locate"], ["locate", "a", "b"], ["locate", "a:b", "--bogus"], ["bogus"]])
def test_bad_arguments(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


def test_out_folder_is_made_and_nothing_is_overwritten(spec: str, answer: Any, tmp_path: Path) -> None:
    answer(bert([1e-4]))
    out = tmp_path / "deep" / "out"
    for _ in range(2):
        finished = run("locate", f"{spec}:build", "--out", str(out))
        assert finished.exit_code == 1
    assert finished.stdout.endswith(f"Saved as {out}/report-1.json and {out}/report-1.txt.\n")
    (out / "report-2.txt").write_text("mine")
    run("locate", f"{spec}:build", "--out", str(out))
    names = ["report", "report-1", "report-2", "report-3"]
    expected = {f"{name}.{suffix}" for name in names for suffix in ("json", "txt")} - {"report-2.json"}
    assert {file.name for file in out.iterdir()} == expected
    assert (out / "report-2.txt").read_text() == "mine"
    assert Report.load(out / "report-3.json") == bert([1e-4])
    assert (out / "report.txt").read_text() == f"{bert([1e-4])}\n"
    assert json.loads((out / "report.json").read_text())["version"] == 2


def test_bad_out_folder_is_found_before_the_work(spec: str, answer: Any, tmp_path: Path) -> None:
    calls = answer(bert([None]))
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nothing")):
        finished = run("locate", f"{spec}:build", "--out", str(folder))
        assert finished.exit_code == 2
        assert finished.stderr.startswith(f"Error: The output folder {folder} cannot be written: ")
    assert calls == []


def test_no_answer_leaves_no_folder(spec: str, answer: Any, tmp_path: Path) -> None:
    answer(CaptureError("torch.export says no."))
    kept = tmp_path / "kept"
    kept.mkdir()
    for folder in (tmp_path / "new", kept / "deep" / "new", kept):
        assert run("locate", f"{spec}:build", "--out", str(folder)).exit_code == 2
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == [kept]
    assert list(kept.iterdir()) == []
    (kept / "deep").mkdir()
    (kept / "deep" / "mine.txt").write_text("mine")
    for folder in (kept / "deep" / "new", kept / "deep", kept / ("long" * 100), kept / "new" / ("long" * 100)):
        assert run("locate", f"{spec}:build", "--out", str(folder)).exit_code == 2
    assert [path.name for path in kept.rglob("*")] == ["deep", "mine.txt"]


def test_warnings_of_the_user_are_kept_and_those_of_torch_are_not(spec: str, answer: Any) -> None:
    def warn() -> None:
        warnings.warn_explicit("internal", UserWarning, "torch/x.py", 1, module="torch.export.x")
        warnings.warn_explicit("about your code", UserWarning, "mine.py", 1, module="mine")

    answer(warn)
    with pytest.warns(UserWarning, match="about your code") as caught:
        run("locate", f"{spec}:build")
    assert [str(warning.message) for warning in caught] == ["about your code"]


def test_help_says_what_the_status_means() -> None:
    assert "1 divergence found" in run("locate", "--help").stdout
    assert "whatever they found" in " ".join(run("demo", "--help").stdout.split())
    assert run("--version").stdout == f"bisect-tvm, version {bisect_tvm.__version__}\n"


IMPORTED = """
import sys
try:
    {code}
except SystemExit:
    pass
print(sorted({{"torch", "tvm", "tvm_ffi", "numpy"}} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    "code",
    [
        "import bisect_tvm, bisect_tvm.cli; bisect_tvm.Report; bisect_tvm.Verdict; dir(bisect_tvm)",
        "sys.argv = ['bisect-tvm', '--help']; import bisect_tvm.cli; bisect_tvm.cli.main()",
        "sys.argv = ['bisect-tvm', '--version']; import runpy; runpy.run_module('bisect_tvm', run_name='__main__')",
        "sys.argv = ['bisect-tvm', 'locate', '--bogus']; import bisect_tvm.cli; bisect_tvm.cli.main()",
    ],
)
def test_what_needs_no_torch_does_not_import_it(code: str) -> None:
    assert imported(code) == "[]"


def test_the_test_above_can_fail() -> None:
    assert "torch" in imported("import torch")


def imported(code: str) -> str:
    finished = subprocess.run([sys.executable, "-c", IMPORTED.format(code=code)], capture_output=True, text=True, check=True)
    return finished.stdout.splitlines()[-1]


def test_reader_that_has_seen_enough_leaves_the_status_alone() -> None:
    code = (
        "import sys, os, bisect_tvm.cli as cli\n"
        "from tests.report.synthetic import bert\n"
        "cli._answer = lambda *arguments: bert([1e-4])\n"
        "sys.argv = ['bisect-tvm', 'locate', 'x:y']\n"
        "cli.main()\n"
    )
    reader, writer = os.pipe()
    os.close(reader)
    finished = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (finished.returncode, finished.stderr) == (1, "")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("quiet", [False, True])
def test_progress_goes_to_the_terminal_and_the_text_to_the_pipe(quiet: bool) -> None:
    code = (
        "import sys, types\n"
        "def run_demo(write, progress):\n"
        "    for scene in '12':\n"
        "        (progress or str)(f'working on {scene}')\n"
        "        write(f'scene {scene}')\n"
        "    print('printed')\n"
        "sys.modules['bisect_tvm.demo'] = types.SimpleNamespace(run_demo=run_demo)\n"
        f"sys.argv = ['bisect-tvm', 'demo'] + ['--quiet'] * {quiet}\n"
        "import bisect_tvm.cli as cli\n"
        "cli.main()\n"
    )
    reader, terminal = os.openpty()
    finished = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=terminal, text=True)
    os.write(terminal, b"end")
    shown = os.read(reader, 10_000).decode()
    os.close(terminal)
    os.close(reader)
    assert finished.returncode == 0
    assert finished.stdout == "scene 1\nscene 2\nprinted\n"
    if quiet:
        assert shown == "end"
    else:
        assert "working on 1" in shown
        assert "working on 2" in shown


def test_lazy_names() -> None:
    assert set(bisect_tvm.__all__) <= set(dir(bisect_tvm))
    with pytest.raises(AttributeError, match="no attribute 'bisect'"):
        _ = bisect_tvm.bisect
