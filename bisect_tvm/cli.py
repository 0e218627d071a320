"""The command line: ``bisect-tvm locate SPEC`` and ``bisect-tvm demo``.

Exit status: 0 faithful, 1 a divergence was found, 2 the question could not be answered, 130 interrupted. The report
goes to standard output; progress goes to standard error, and only to a terminal.

torch and TVM take seconds to import, so everything that imports them is imported inside the commands: ``--help`` and
a mistyped option answer at once.
"""

import inspect
import itertools
import logging
import os
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from bisect_tvm import __version__
from bisect_tvm.errors import BisectError, InputError
from bisect_tvm.numerics.verdict import Verdict
from bisect_tvm.report.text import render_text

if TYPE_CHECKING:
    from bisect_tvm.report.report import Report

FAITHFUL, DIVERGENCE, NO_ANSWER, INTERRUPTED = 0, 1, 2, 130


class _UnansweredError(Exception):
    """The command has said why it cannot answer; carries the exit status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="bisect-tvm")
def cli() -> None:
    """Locate the part of a PyTorch model that Apache TVM computes differently."""


_quiet = click.option("--quiet", is_flag=True, help="Show no progress.")
_debug = click.option("--debug", is_flag=True, help="Show the traceback of an error.")


@cli.command()
@click.argument("spec")
@click.option("--inputs", "inputs_file", type=click.Path(path_type=Path), help="Inputs of a .pt2 file: .npz or .pt.")
@click.option("--out", "folder", type=click.Path(path_type=Path), help="Write report.json and report.txt here.")
@click.option("--target", help="TVM target that the model is built for [default: llvm].")
@click.option("--no-decompose", is_flag=True, help="Import the program without running its decompositions first.")
@click.option("--exhaustive", is_flag=True, help="Judge every operator, even if the model as a whole agrees.")
@_quiet
@_debug
def locate(spec: str, inputs_file: Path | None, folder: Path | None, quiet: bool, debug: bool, **flags: Any) -> None:
    """Say which part of a model TVM computes differently.

    SPEC is file.py:function or package.module:function, a function without arguments that returns (model, inputs) or
    (model, inputs, options), options being keyword arguments of bisect_tvm.locate; or a .pt2 file that
    torch.export.save wrote, with --inputs. A .npz file gives its arrays arr_0, arr_1, ... by position, others by
    name; a .pt file holds a tensor, or a tuple, list or dict of tensors.

    Exit status: 0 faithful (or rounding alone), 1 divergence found, 2 no answer.
    """
    try:
        with _explained(debug):
            if folder is not None:
                _check_writable(folder)
            report = _answer(spec, inputs_file, {**flags, "debug": debug}, quiet)
            # Saved before it is shown, so that nothing is lost if the reader of standard output is gone.
            saved = _save(report, folder) if folder is not None else []
            _show(report)
            if saved:
                _echo(f"Saved as {' and '.join(map(str, saved))}.")
    except _UnansweredError as unanswered:
        sys.exit(unanswered.status)
    sys.exit(_status(report))


@cli.command()
@_quiet
@_debug
def demo(quiet: bool, debug: bool) -> None:
    """Find two faults in small example models, computed now.

    The first is put there: gelu replaced by its tanh approximation. The second is TVM's own: SELU, converted as
    released.

    Exit status: 0 if both examples ran, whatever they found; 2 otherwise.
    """
    try:
        with _explained(debug):
            from bisect_tvm.demo import run_demo  # Imports torch and TVM.

            with _progress(quiet) as progress:

                def tell(text: str) -> None:
                    if progress is not None:
                        progress.clear()
                    _echo(text)

                run_demo(tell, progress)
    except _UnansweredError as unanswered:
        sys.exit(unanswered.status)


def main() -> None:
    """Entry point of ``bisect-tvm``."""
    for stream in (sys.stdout, sys.stderr):
        # Names in a model need not be in the terminal's encoding; better an escape than no report.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    cli(prog_name="bisect-tvm")


def _answer(spec: str, inputs_file: Path | None, flags: dict[str, Any], quiet: bool) -> "Report":
    with _progress(quiet) as progress:
        if progress is not None:
            progress("importing torch and TVM")
        from bisect_tvm import locate as locate_in_model  # Imports torch and TVM.
        from bisect_tvm.spec import opened  # Imports torch.

        if not flags["debug"]:
            _silence_torch()

        with opened(spec, inputs_file) as question:
            options = {**question.options, **_options(flags)}
            valid = [name for name in _keywords(locate_in_model) if name != "progress"]
            for name in options:
                if name not in valid:
                    raise InputError(f"{spec} returned an unknown option {name!r}; there are {', '.join(valid)}.")
            return locate_in_model(question.model, question.inputs, progress=progress, **options)


def _options(flags: dict[str, Any]) -> dict[str, Any]:
    """What was given on the command line; it overrides what the SPEC's function returned."""
    options: dict[str, Any] = {}
    if flags["target"] is not None:
        options["target"] = flags["target"]
    if flags["no_decompose"]:
        options["decompose"] = False
    if flags["exhaustive"]:
        options["exhaustive"] = True
    return options


def _silence_torch() -> None:
    """Drop what torch logs before it raises: the user gets one sentence. Each of its loggers has a level of its own."""
    for name in logging.root.manager.loggerDict:
        if name.partition(".")[0] == "torch":
            logging.getLogger(name).disabled = True


def _keywords(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY]


def _status(report: "Report") -> int:
    if report.culprits or report.verdict.is_divergence:
        return DIVERGENCE
    return NO_ANSWER if report.verdict is Verdict.UNRESOLVED else FAITHFUL


@contextmanager
def _explained(debug: bool) -> Iterator[None]:
    """Turn whatever stops the work into one sentence on standard error, and a traceback only if asked."""
    try:
        # torch and TVM warn about their own internals, which the reader can do nothing about; the user's warnings stay.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"(torch|tvm|tvm_ffi)(\.|$)")
            yield
    except click.ClickException:
        raise
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        raise _UnansweredError(INTERRUPTED) from None
    except BisectError as error:
        if debug:
            traceback.print_exc()
        click.echo(f"Error: {error}", err=True)
        raise _UnansweredError(NO_ANSWER) from error
    except (Exception, SystemExit) as error:  # SystemExit: a model that ends the process must not pass for an answer.
        if debug:
            traceback.print_exc()
        reason = f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(".: ")
        hint = "" if debug else " Run again with --debug for the traceback."
        click.echo(f"Error: this is a bug in bisect_tvm, which stopped at {reason}.{hint}", err=True)
        raise _UnansweredError(NO_ANSWER) from error


class _Progress:
    """A line on standard error that says what is being done, while it is done."""

    def __init__(self) -> None:
        # rich would send what is printed meanwhile to standard error, into which a report must not go.
        self._live = Live(console=Console(file=sys.stderr), transient=True, redirect_stdout=False, redirect_stderr=False)

    def __call__(self, line: str) -> None:
        self._live.update(Spinner("dots", Text(line)))
        self._live.start()

    def clear(self) -> None:
        """Take the line away, before something is printed or because all is done."""
        self._live.stop()


@contextmanager
def _progress(quiet: bool) -> Iterator[_Progress | None]:
    """None unless standard error is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    progress = _Progress()
    try:
        yield progress
    finally:
        progress.clear()


def _check_writable(folder: Path) -> None:
    """Find out before the work, which takes minutes, that its result could not be written.

    A folder made for this is taken away again: if the work fails there is nothing to put into it.
    """
    made: list[Path] = []
    try:
        made += [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"The output folder {folder} cannot be written: {error.strerror}.") from error
    finally:
        for path in made:  # the innermost first
            with suppress(OSError):  # it was not made after all, or somebody has put something into it
                path.rmdir()


def _save(report: "Report", folder: Path) -> list[Path]:
    paths = _new_files(folder)
    report.save(paths[0])
    paths[1].write_text(render_text(report) + "\n", encoding="utf-8")
    return paths


def _new_files(folder: Path) -> list[Path]:
    """Create report.json and report.txt, or report-1.json and so on: nothing that is there is overwritten."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"The output folder {folder} cannot be written: {error.strerror}.") from error
    for number in itertools.count():
        stem = "report" if number == 0 else f"report-{number}"
        paths = [folder / f"{stem}.json", folder / f"{stem}.txt"]
        created: list[Path] = []
        try:
            for path in paths:
                path.touch(exist_ok=False)
                created.append(path)
        except FileExistsError:
            for path in created:
                path.unlink()
        except OSError as error:
            raise InputError(f"The output folder {folder} cannot be written: {error.strerror}.") from error
        else:
            return paths
    raise AssertionError("count() ended")


def _show(report: "Report") -> None:
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    _echo(render_text(report, min(100, shutil.get_terminal_size((100, 40)).columns), colour))


def _echo(text: str) -> None:
    try:
        click.echo(text)
    except BrokenPipeError:
        # `| head` has seen enough. The exit status still tells the verdict; Python's flush at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
