"""The command line: ``bisect-tvm locate SPEC`` and ``bisect-tvm demo``.

Exit status: 0 faithful, 1 a divergence was found, 2 the question could not be answered, 130 interrupted. The report
goes to standard output, also where it is incomplete; progress goes to standard error, and only to a terminal.

torch and TVM take seconds to import, so everything that imports them is imported inside the commands: ``--help`` and
a mistyped option answer at once.
"""

import inspect
import logging
import os
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from bisect_tvm import __version__
from bisect_tvm.errors import BisectError, InputError
from bisect_tvm.numerics.verdict import Verdict
from bisect_tvm.output import check_writable, progress_line, save
from bisect_tvm.report.report import Report
from bisect_tvm.report.text import render_text

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
@click.option(
    "--pipeline", help="Name of a TVM pipeline; or file.py:name or package.module:name of a pass, a list of passes or a function."
)
@click.option("--depth", type=click.Choice(["diverging", "all"]), help="Submodules to measure [default: diverging].")
@click.option("--exhaustive", is_flag=True, help="Judge every operator, even if the model as a whole agrees.")
@click.option("--no-explain", is_flag=True, help="Do not look for TVM's stage to blame, nor for workarounds.")
@click.option("--max-builds", type=int, help="TVM builds at most; then the report holds what is known.")
@click.option("--max-seconds", type=float, help="Seconds at most; what has begun is finished first.")
@click.option("--resume", type=click.Path(path_type=Path), help="Go on from this report.json, which ended early.")
@_quiet
@_debug
def locate(spec: str, inputs_file: Path | None, folder: Path | None, quiet: bool, debug: bool, **flags: Any) -> None:
    """Say which part of a model TVM computes differently.

    SPEC is file.py:function or package.module:function, a function without arguments that returns (model, inputs) or
    (model, inputs, options), options being keyword arguments of bisect_tvm.locate; or a .pt2 file that
    torch.export.save wrote, with --inputs. A .npz file gives its arrays arr_0, arr_1, ... by position, others by
    name; a .pt file holds a tensor, or a tuple, list or dict of tensors.

    What is given here goes before the options that the SPEC's function returns. Ctrl-C ends the search: what was
    found by then is shown and saved, and --resume goes on from there.

    Exit status: 0 faithful (or rounding alone), 1 divergence found, 2 no answer, 130 interrupted.
    """
    try:
        with _explained(debug):
            if folder is not None:
                check_writable(folder)
            report = _answer(spec, inputs_file, {**flags, "debug": debug}, quiet)
            # Saved before it is shown, so that nothing is lost if the reader of standard output is gone.
            saved = save(report, folder) if folder is not None else []
            _show(report)
            if saved:
                _echo(f"Saved as {' and '.join(map(str, saved))}.")
                if report.unfinished:
                    _echo(f"Go on with --resume {saved[0]}")
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

            with progress_line(quiet) as progress:

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


def _answer(spec: str, inputs_file: Path | None, flags: dict[str, Any], quiet: bool) -> Report:
    given = _options(flags)
    with progress_line(quiet) as progress:
        if progress is not None:
            progress("importing torch and TVM")
        from bisect_tvm import locate as locate_in_model  # Imports torch and TVM.
        from bisect_tvm.spec import opened  # Imports torch.

        if not flags["debug"]:
            _silence_torch()

        with opened(spec, inputs_file, flags["pipeline"]) as question:
            options = {**question.options, **given}
            valid = [name for name in _keywords(locate_in_model) if name != "progress"]
            for name in options:
                if name not in valid:
                    raise InputError(f"{spec} returned an unknown option {name!r}; there are {', '.join(valid)}.")
            return locate_in_model(question.model, question.inputs, progress=progress, **options)


def _options(flags: dict[str, Any]) -> dict[str, Any]:
    """What was given on the command line; it overrides what the SPEC's function returned."""
    options = {name: flags[name] for name in ("target", "depth", "max_builds", "max_seconds") if flags[name] is not None}
    if flags["no_decompose"]:
        options["decompose"] = False
    if flags["no_explain"]:
        options["explain"] = False
    if flags["exhaustive"]:
        options["exhaustive"] = True
    if flags["resume"] is not None:
        options["resume"] = Report.load(flags["resume"])  # before the work, and before torch is imported
    return options


def _silence_torch() -> None:
    """Drop what torch logs before it raises: the user gets one sentence. Each of its loggers has a level of its own."""
    for name in logging.root.manager.loggerDict:
        if name.partition(".")[0] == "torch":
            logging.getLogger(name).disabled = True


def _keywords(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY]


def _status(report: Report) -> int:
    if report.interrupted:
        return INTERRUPTED
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


def _show(report: Report) -> None:
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    _echo(render_text(report, min(100, shutil.get_terminal_size((100, 40)).columns), colour))


def _echo(text: str) -> None:
    try:
        click.echo(text)
    except BrokenPipeError:
        # `| head` has seen enough. The exit status still tells the verdict; Python's flush at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
