"""Generate `docs/operators.md`: what this project finds about every operator that TVM's importer has a converter for.

Run from the repository root with the extra `docs` installed: ``python -m docs.operators``. It takes about a quarter of an hour
on two cores.
"""

import argparse
import multiprocessing
import os
import pickle
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TypeVar

import torch

from docs.operator_judging import Result, judge_samples, result_of
from docs.operator_samples import Sample, database_positions, database_samples, samples_of, select
from docs.operator_samples_by_hand import CALLS
from docs.operator_table import document

TABLE = Path(__file__).with_name("operators.md")
BATCH = 24
"""So many samples share one build."""
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
IN_OTHER_PRECISIONS = 3
"""So many samples of each operator are judged in float16 and bfloat16."""
T, R = TypeVar("T"), TypeVar("R")


def converter_keys() -> frozenset[str]:
    """The names of all operators that TVM's importer has a converter for."""
    # Private: the importer's class is not exported (seen in TVM 0.27). The map is made without the rest of its state.
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    return frozenset(ExportedProgramImporter.create_convert_map(ExportedProgramImporter.__new__(ExportedProgramImporter)))


# ----------------------------------------------------------------------------------------------------------- many processes


def _in_processes(
    work: Callable[[T], R], items: Sequence[T], crashed: Callable[[T], R], split: Callable[[T], list[T]]
) -> Iterator[R]:
    """Do the work in child processes; what ends one (TVM can die with a signal) is split until what did it is alone."""
    context = multiprocessing.get_context("spawn")
    waiting = list(items)
    while waiting:
        again: list[T] = []
        with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
            futures = [(item, pool.submit(work, item)) for item in waiting]
            for item, future in futures:
                try:
                    yield future.result()
                except BrokenProcessPool:
                    again.append(item)
        waiting = []
        for item in again:  # one of them did it: each in a process of its own
            try:
                with ProcessPoolExecutor(1, mp_context=context) as pool:
                    yield pool.submit(work, item).result()
            except BrokenProcessPool:
                parts = split(item)
                if len(parts) > 1:
                    waiting += parts
                else:
                    yield crashed(item)


def _harvest(positions: Sequence[int]) -> list[Sample]:
    return database_samples(positions, converter_keys())


def _crashed(samples: Sequence[Sample]) -> list[Result]:
    return [result_of(sample, reason="the process died: TVM crashed") for sample in samples]


def all_samples() -> list[Sample]:
    """Samples of every operator that can be reached."""
    found = by_hand(converter_keys())
    for some in _in_processes(_harvest, _chunks(database_positions(), 20), lambda item: [], lambda item: _chunks(item, 1)):
        found += some
        _say(f"{len(found)} samples")
    return select(found)


def by_hand(keys: frozenset[str]) -> list[Sample]:
    """Samples of what is written by hand."""
    return samples_of(CALLS, keys, "by hand", by_hand=True)


def _chunks(items: Sequence[T], size: int) -> list[list[T]]:
    return [list(items[i : i + size]) for i in range(0, len(items), size)]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def measure_all(samples: Sequence[Sample]) -> dict[str, list[Result]]:
    """Judge all samples in each precision."""
    found: dict[str, list[Result]] = {}
    for name, dtype in DTYPES.items():
        cast = list(samples) if dtype is torch.float32 else [s.cast(dtype) for s in _fewer(samples) if s.has_floats()]
        batches = _chunks(sorted(cast, key=lambda s: s.key), BATCH)
        found[name] = []
        for results in _in_processes(judge_samples, batches, _crashed, lambda batch: _chunks(batch, (len(batch) + 1) // 2)):
            found[name] += results
            _say(f"{name}: {len(found[name])} of {len(cast)}")
    return found


def _fewer(samples: Sequence[Sample]) -> list[Sample]:
    """The first few of each operator."""
    seen: Counter[str] = Counter()
    few = []
    for sample in samples:
        if seen[sample.key] < IN_OTHER_PRECISIONS:
            few.append(sample)
        seen[sample.key] += 1
    return few


def main() -> None:
    """Make the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="keep samples and results in this folder, and take the samples from it")
    options = parser.parse_args()
    start = time.perf_counter()
    kept = options.keep / "samples.pickle" if options.keep else None
    if kept and kept.exists():
        samples = pickle.loads(kept.read_bytes())
    else:
        samples = all_samples()
        if kept:
            kept.write_bytes(pickle.dumps(samples))
    _say(f"{len(samples)} samples of {len({s.key for s in samples})} operators after {time.perf_counter() - start:.0f} s")
    results = measure_all(samples)
    if options.keep:
        (options.keep / "results.pickle").write_bytes(pickle.dumps(results))
    TABLE.write_text(document(sorted(converter_keys()), results, time.perf_counter() - start))


if __name__ == "__main__":
    main()
