"""Where the command line's output goes: progress to the terminal, reports to files."""

import itertools
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from bisect_tvm.errors import InputError
from bisect_tvm.report.report import Report
from bisect_tvm.report.text import render_text


class Progress:
    """A line on standard error that says what is being done, while it is done."""

    def __init__(self) -> None:
        # rich would send what is printed meanwhile to standard error, into which a report must not go.
        self._live = Live(console=Console(file=sys.stderr), transient=True, redirect_stdout=False, redirect_stderr=False)

    def __call__(self, line: str) -> None:
        """Show `line` in place of the one before."""
        self._live.update(Spinner("dots", Text(line)))
        self._live.start()

    def clear(self) -> None:
        """Take the line away, before something is printed or because all is done."""
        self._live.stop()


@contextmanager
def progress_line(quiet: bool) -> Iterator[Progress | None]:
    """None unless standard error is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    line = Progress()
    try:
        yield line
    finally:
        line.clear()


def check_writable(folder: Path) -> None:
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


def save(report: Report, folder: Path) -> list[Path]:
    """Write report.json and report.txt into `folder`, under names that are not taken yet; returns their paths."""
    paths = _new_files(folder)
    try:
        report.save(paths[0])
        paths[1].write_text(render_text(report) + "\n", encoding="utf-8")
    except BaseException:  # Ctrl-C as well: a file that holds nothing would pass for a report
        for path in paths:
            if not path.stat().st_size:
                path.unlink()
        raise
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
