"""What the benchmarks of cost share: a plain conversion, fresh processes, facts about the machine, tables."""

import inspect
import os
import platform
import secrets
import subprocess
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

ROOT = Path(__file__).parent.parent
PACKAGES = ("bisect_tvm", "torch", "apache-tvm", "transformers", "numpy")

P = ParamSpec("P")
T = TypeVar("T")


def fresh(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `function` in a process of its own, which has imported nothing before and dies with it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *args, **kwargs).result()


def convert(module: Any, inputs: tuple[Any, ...], convert_map: Any, seconds: dict[str, float] | None = None) -> list[Any]:
    """Export, import, compile, load and run once, as everybody does; returns the outputs as arrays, flat."""
    import torch
    import tvm
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    marks = [time.perf_counter()]
    exported = torch.export.export(module, inputs)
    marks.append(time.perf_counter())
    imported = from_exported_program(exported, custom_convert_map=dict(convert_map))
    marks.append(time.perf_counter())
    compiled = tvm.compile(imported, target="llvm")
    marks.append(time.perf_counter())
    machine = relax.VirtualMachine(compiled, tvm.cpu())
    marks.append(time.perf_counter())
    outputs = _arrays(machine["main"](*[tvm.runtime.tensor(tensor.detach().numpy()) for tensor in inputs]))
    marks.append(time.perf_counter())
    if seconds is not None:
        seconds.update(zip(("export", "import", "compile", "load", "run"), map(_between, marks, marks[1:]), strict=False))
    return outputs


def _between(start: float, end: float) -> float:
    return end - start


def _arrays(result: Any) -> list[Any]:
    return [result.numpy()] if hasattr(result, "numpy") else [array for item in result for array in _arrays(item)]


def warm_up(*, locating: bool) -> None:
    """Convert something tiny, and locate in it, so that what torch and TVM load when first used is charged to nobody."""
    import torch

    warnings.simplefilter("ignore")
    model, inputs = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()).eval(), (torch.randn(2, 4),)
    convert(model, inputs, {})
    if locating:
        from bisect_tvm import locate

        locate(model, inputs, exhaustive=True)


def scopes() -> dict[str, dict[str, Any]]:
    """What `locate` can be asked for, by name: the first is the search alone, where this version can be asked for that."""
    from bisect_tvm import locate

    if "explain" in inspect.signature(locate).parameters:
        return {"search": {"explain": False}, "everything": {}}
    return {"everything": {}}


def about() -> str:
    """The machine, the versions and the date, as a list in Markdown."""
    load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    lines = (
        f"{_processor()}, {len(os.sched_getaffinity(0))} cores, {_memory() / 2**30:.0f} GiB of memory, {platform.platform()}",
        f"Python {platform.python_version()}, " + ", ".join(f"{name} {version(name)}" for name in PACKAGES),
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {_commit()}; load average at the start {load}",
    )
    return "\n".join(f"- {line}" for line in lines)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + (" and changes" if git("status", "--porcelain", "bisect_tvm") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def say(text: str) -> None:
    """Tell whoever waits at the terminal."""
    print(text, flush=True)  # noqa: T201 - for scripts


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *body))


def write(path: Path, text: str) -> None:
    """Replace the page atomically: a reader sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}-{secrets.token_hex(8)}.tmp"
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
