"""How the cost of an answer grows with the depth of a model: identical layers, more and more of them.

Run it from the root of a clone, on a machine that does nothing else (Linux, for memory is read from /proc); it writes
docs/growth.md:

    python -m benchmarks.growth [--layers 6,12,24,48] [--width 256]

With `--small` it tries itself on a few small layers, and writes nothing unless `--out` is given.
"""

import argparse
import ctypes
import gc
import operator
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from benchmarks.cost_models import Subject, layered
from benchmarks.measuring import ROOT, about, convert, fresh, say, scopes, table, warm_up, write

PAGE = ROOT / "docs" / "growth.md"
MIB = 2**20
TEXT = """# How the cost grows

Made by `python -m benchmarks.growth`{options}; do not edit.

Identical layers of a transformer (width {width}, {heads} heads, {tokens} tokens), every GELU converted wrongly, each row in a
process of its own after a warm-up.

{tables}

To be reached: as many builds for any number of layers, seconds a layer constant or falling, and a peak of at most three times the
float32 model plus its boundary values. The peak is what the process had in memory at most while `locate`
ran, above what it had just before, which includes the model (m, parameters and buffers). Boundary values (b) are the results of all
operators, in float32. "Plain" is one plain conversion of the same model, for comparison: export, import, default build, one run.

{machine}
"""


@dataclass
class Grown:
    """What so many layers cost."""

    layers: int
    builds: int
    further_builds: int
    seconds: float
    plain_seconds: float
    model: int
    """Bytes."""
    boundary: int
    peak: int
    right: bool
    """The culprits are the planted operators and no others."""

    @property
    def strict(self) -> float:
        """Peak over the limit as it is meant: three models and the boundary values once."""
        return self.peak / (3 * self.model + self.boundary)

    @property
    def lenient(self) -> float:
        """Peak over three times both."""
        return self.peak / (3 * (self.model + self.boundary))


def measure(shape: tuple[int, int, int, int], scope: str) -> Grown:
    """Call `locate` once, then convert plainly; `shape` is layers, width, heads, tokens."""
    from bisect_tvm import locate

    it = layered(*shape)
    warm_up(locating=True)
    before = _reset_peak()
    start = time.perf_counter()
    report = locate(it.model, it.inputs, convert_map=it.convert_map, **scopes()[scope])
    seconds = time.perf_counter() - start
    peak = _status("VmHWM") - before
    start = time.perf_counter()
    convert(it.model, it.inputs, it.convert_map)
    return Grown(
        layers=shape[0],
        builds=report.cost.builds,
        further_builds=report.cost.further_builds,
        seconds=seconds,
        plain_seconds=time.perf_counter() - start,
        model=sum(map(_bytes, (*it.model.parameters(), *it.model.buffers()))),
        boundary=boundary_bytes(it),
        peak=peak,
        right=[entry.operator for entry in report.culprits] == [it.operator] * it.planted,
    )


def boundary_bytes(it: Subject) -> int:
    """Of the results of all operators of the decomposed graph, in float32."""
    graph = torch.export.export(it.model, it.inputs).run_decompositions().graph
    values = [node.meta["val"] for node in graph.nodes if node.op == "call_function" and node.target is not operator.getitem]
    return sum(_bytes(leaf) for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor))


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * (4 if tensor.is_floating_point() else tensor.element_size())


def _reset_peak() -> int:
    """Let go of what is free, and forget the highest memory so far; returns the memory in use."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _status("VmRSS")


def _status(key: str) -> int:
    """A line of /proc/self/status, in bytes."""
    found = re.search(rf"^{key}:\s+(\d+) kB$", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    if found is None:
        raise OSError(f"/proc/self/status has no {key}")
    return int(found[1]) * 1024


def render(grown: dict[str, list[Grown]], arguments: Any, machine: str) -> str:
    """The page, in Markdown."""
    head = (
        "layers", "builds", "further builds", "seconds", "a layer", "plain", "a layer",
        "m, MiB", "b, MiB", "peak, MiB", "peak / (3m + b)", "peak / 3(m + b)", "culprits",
    )  # fmt: skip
    titles = {"search": "## Without explanations", "everything": "## Everything"}
    return TEXT.format(
        options=" --small" if arguments.small else "",
        width=arguments.width,
        heads=arguments.heads,
        tokens=arguments.tokens,
        tables="\n\n".join(f"{titles[scope]}\n\n{table(head, map(_row, rows))}" for scope, rows in grown.items()),
        machine=machine,
    )


def _row(it: Grown) -> tuple[str, ...]:
    return (
        str(it.layers), str(it.builds), str(it.further_builds), f"{it.seconds:.1f}", f"{it.seconds / it.layers:.2f}",
        f"{it.plain_seconds:.1f}", f"{it.plain_seconds / it.layers:.2f}", *_mebibytes((it.model, it.boundary, it.peak)),
        f"{it.strict:.2f}", f"{it.lenient:.2f}", "right" if it.right else "**wrong**",
    )  # fmt: skip


def _mebibytes(sizes: Sequence[int]) -> Iterable[str]:
    return (f"{size / MIB:.1f}" for size in sizes)


def main() -> int:
    """Measure and write the page; 1 if `locate` gave a wrong answer."""
    arguments = _arguments()
    page: Path | None = arguments.out or (None if arguments.small else PAGE)
    machine = about()
    grown: dict[str, list[Grown]] = {scope: [] for scope in scopes()}
    for scope, rows in grown.items():
        for layers in arguments.layers:
            rows.append(fresh(measure, (layers, arguments.width, arguments.heads, arguments.tokens), scope))
            say(f"{scope}: {rows[-1]}")
    text = render(grown, arguments, machine)
    if page is not None:
        write(page, text)
    say(text)
    return 0 if all(it.right for rows in grown.values() for it in rows) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]  # it is there
    parser.add_argument("--small", action="store_true", help="1 and 2 layers of width 32, to try the benchmark itself")
    parser.add_argument("--layers", type=_numbers, help="how many, separated by commas; default 6,12,24,48")
    parser.add_argument("--width", type=int, help="default 256")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--out", type=Path, help="the page")
    arguments = parser.parse_args()
    arguments.layers = arguments.layers or ((1, 2) if arguments.small else (6, 12, 24, 48))
    arguments.width = arguments.width or (32 if arguments.small else 256)
    return arguments


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


if __name__ == "__main__":
    raise SystemExit(main())
