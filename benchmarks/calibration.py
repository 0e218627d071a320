"""The data behind the threshold: how far above its noise floor everything stands that TVM computes as PyTorch does.

Run it from the root of a clone (with the extras `test` and `models`); it writes docs/calibration.md:

    python -m benchmarks.calibration [--seeds 20] [--processes 2]
"""

import argparse
import math
import multiprocessing
import platform
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
import tvm
from torch import nn

from bisect_tvm import Verdict, __version__, locate
from bisect_tvm.numerics.metrics import THRESHOLD
from tests.quick import UNOPTIMISED
from tests.sweep.sweeping import SCALES, Sweep
from tests.sweep.zoo import KINDS

PAGE = Path(__file__).parent.parent / "docs" / "calibration.md"
FAITHFUL = (Verdict.FAITHFUL, Verdict.ROUNDING)
SHAPES = ((1, 16, 2, 2), (2, 8, 4), (1, 4, 4, 4), (2, 64, 7, 7), (2, 6, 8, 8), (2, 32, 16, 16), (2, 6, 64, 64))
GROUPS = 2
TEXT = """# Calibration of the threshold

Made by `python -m benchmarks.calibration`; do not edit. {versions}.

An excess above **{threshold:g}** accuses. Excess is the largest error of a component's elements over their noise floor; 1 is as
good as it gets. The floor is what rounding alone explains, measured by perturbation (ARCHITECTURE.md).

{kinds} kinds of model with random weights (`tests/sweep/zoo.py`), {seeds} seeds, inputs scaled by {scales} (three of these for
each seed): {judgements} judgements about operators and modules, each in both precisions.

## What is faithful

How many judgements have an excess (the larger of both precisions) up to each bound, and above the one before:

{histogram}

The operators and modules that come nearest to the threshold:

{largest}

## What is accused

Each is a real difference of TVM's; `tests/sweep/test_sweep.py` says which and when it shows.

{accused}

## The nearest real fault: one-pass group_norm

TVM takes E[x^2] - E[x]^2 for the variance, which loses digits when the mean is large. Standard normal data plus a mean: verdict
and excess (float64 / float32) for three seeds.

{norms}

In groups of a few elements the loss at a mean of 30 is near that of PyTorch's own algorithm with its additions in another order.
"""


@dataclass(frozen=True)
class Row:
    """One judgement about one component."""

    kind: str
    seed: int
    scale: float
    what: str
    is_operator: bool
    verdict: Verdict
    culprit: bool
    excess64: float
    excess32: float

    @property
    def excess(self) -> float:
        """The larger one."""
        return max(self.excess64, self.excess32)


def rows_of(job: tuple[str, int]) -> list[Row]:
    """All judgements about one kind of model."""
    kind, seeds = job
    torch.set_num_threads(1)
    sweep, rows = Sweep(kind), []
    for seed in range(seeds):
        for scale in (SCALES[(3 * seed + step) % len(SCALES)] for step in (0, 2, 5)):
            outcome = sweep.search(seed, scale)
            for id, component in outcome.components.items():
                judgement = outcome.found.answers[id]
                if not judgement.unresolved:
                    what = component.operator or component.module_class.rpartition(".")[2]
                    rows.append(
                        Row(
                            kind, seed, scale, what, not component.children, judgement.verdict, id in outcome.found.culprits,
                            judgement.excess64 or 0.0, judgement.excess32 or 0.0,
                        )
                    )  # fmt: skip
    print(f"{kind}: {len(rows)} judgements", flush=True)  # noqa: T201 - a script
    return rows


def group_norms() -> list[tuple[int, float, list[tuple[str, float, float]]]]:
    """TVM's one-pass group_norm: size of a group, mean of the data, and (verdict, excess64, excess32) for three seeds."""
    found = []
    for shape in SHAPES:
        for mean in (0.0, 3.0, 30.0, 300.0):
            results = []
            for seed in range(3):
                torch.manual_seed(seed)
                report = locate(
                    nn.GroupNorm(GROUPS, shape[1]).eval(), torch.randn(shape) + mean, exhaustive=True, target=UNOPTIMISED
                )
                (entry,) = (entry for entry in report.tree if entry.kind == "operator")
                results.append((str(entry.verdict), entry.excess64 or 0.0, entry.excess32 or 0.0))
            found.append((math.prod(shape[1:]) // GROUPS, mean, results))
    return found


def page(rows: list[Row], norms: list[tuple[int, float, list[tuple[str, float, float]]]], seeds: int) -> str:
    """The page, in Markdown."""
    clean = [row for row in rows if row.verdict in FAITHFUL]
    accused = [row for row in rows if row.culprit]
    return TEXT.format(
        versions=f"bisect_tvm {__version__}, torch {torch.__version__}, tvm {tvm.__version__}, {platform.machine()}",
        threshold=THRESHOLD,
        kinds=len(KINDS),
        seeds=seeds,
        scales=", ".join(f"{scale:g}" for scale in SCALES),
        judgements=len(rows),
        histogram=_table(("excess up to", "operators", "modules"), _histogram(clean)),
        largest=_table(("component", "judged", "largest excess64", "largest excess32", "where"), _largest(clean)),
        accused=_table(
            ("operator", "models", "times", "verdicts", "smallest excess", "largest excess", "scales"), _accused(accused)
        ),
        norms=_table(("elements in a group", "mean", "seed 0", "seed 1", "seed 2"), _norms(norms)),
    )


def _histogram(rows: list[Row]) -> Iterable[tuple[str, ...]]:
    bounds = (0, 1, 2, 4, 8, 16, THRESHOLD)
    for low, high in zip((-1, *bounds), bounds, strict=False):
        counts = [sum(low < row.excess <= high and row.is_operator == kind for row in rows) for kind in (True, False)]
        yield f"{high:g}", *map(str, counts)


def _by_name(rows: list[Row]) -> dict[str, list[Row]]:
    by_name: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_name[row.what].append(row)
    return by_name


def _largest(rows: list[Row]) -> Iterable[tuple[str, ...]]:
    ranked = sorted(_by_name(rows).items(), key=lambda item: -max(row.excess for row in item[1]))
    for name, some in ranked[:25]:
        worst = max(some, key=lambda row: row.excess)
        where = f"{worst.kind}, seed {worst.seed}, scale {worst.scale:g}"
        yield f"`{name}`", str(len(some)), f"{max(r.excess64 for r in some):.1f}", f"{max(r.excess32 for r in some):.1f}", where


def _accused(rows: list[Row]) -> Iterable[tuple[str, ...]]:
    for name, some in sorted(_by_name(rows).items()):
        yield (
            f"`{name}`", ", ".join(sorted({row.kind for row in some})), str(len(some)),
            ", ".join(sorted({str(row.verdict) for row in some})), f"{min(row.excess for row in some):.1f}",
            f"{max(row.excess for row in some):.1e}", ", ".join(f"{scale:g}" for scale in sorted({row.scale for row in some})),
        )  # fmt: skip


def _norms(norms: list[tuple[int, float, list[tuple[str, float, float]]]]) -> Iterable[tuple[str, ...]]:
    for size, mean, results in norms:
        yield str(size), f"{mean:g}", *(f"{verdict} {wide:.1f} / {native:.1f}" for verdict, wide, native in results)


def _table(head: tuple[str, ...], body: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *body))


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]  # it is there
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool(arguments.processes, maxtasksperchild=1) as pool:
        found = pool.map(rows_of, [(kind, arguments.seeds) for kind in KINDS], chunksize=1)
    rows = [row for some in found for row in some]
    PAGE.write_text(page(rows, group_norms(), arguments.seeds))


if __name__ == "__main__":
    main()
