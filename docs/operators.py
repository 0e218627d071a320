"""Generate `docs/operators.md`: what this project finds about every operator that TVM's importer has a converter for.

Run from the repository root with the extra `docs` installed: ``python -m docs.operators``. It takes about a quarter of an hour
on two cores.
"""

import argparse
import multiprocessing
import os
import pickle
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Generic, TypeVar

import torch

from docs.operator_judging import CRASHED, Result, judge_samples, result_of
from docs.operator_samples import Sample, database_positions, database_samples, samples_of, select
from docs.operator_samples_by_hand import CALLS
from docs.operator_table import document

TABLE = Path(__file__).with_name("operators.md")
BATCH = 24
"""So many samples share one build."""
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
IN_OTHER_PRECISIONS = 3
"""So many samples of each operator are judged in float16 and bfloat16."""
T = TypeVar("T")
R = TypeVar("R")


def converter_keys() -> frozenset[str]:
    """The names of all operators that TVM's importer has a converter for."""
    # Private: the importer's class is not exported (seen in TVM 0.27). The map is made without the rest of its state.
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    return frozenset(ExportedProgramImporter.create_convert_map(ExportedProgramImporter.__new__(ExportedProgramImporter)))


# ----------------------------------------------------------------------------------------------------------- many processes


class _Processes(Generic[T, R]):
    """Works in child processes, one for each core; TVM can end one with a signal.

    What ended a process is split until what did it is alone.
    """

    def __init__(self, work: Callable[[T], R], split: Callable[[T], list[T]], crashed: Callable[[T], R]) -> None:
        self._work, self._split, self._crashed = work, split, crashed
        self._of_thread = threading.local()

    def map(self, items: Sequence[T]) -> Iterator[R]:
        """Yield the results, in order."""
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            for results in threads.map(self._do, items):
                yield from results

    def _do(self, item: T) -> list[R]:
        try:
            return [self._process().submit(self._work, item).result()]
        except BrokenProcessPool:
            del self._of_thread.process
        parts = self._split(item)
        return [self._crashed(item)] if len(parts) < 2 else [result for part in parts for result in self._do(part)]

    def _process(self) -> ProcessPoolExecutor:
        if not hasattr(self._of_thread, "process"):
            self._of_thread.process = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        process: ProcessPoolExecutor = self._of_thread.process
        return process


def _harvest(positions: Sequence[int]) -> list[Sample]:
    return database_samples(positions, converter_keys())


def _crashed(samples: Sequence[Sample]) -> list[Result]:
    return [result_of(sample, reason=CRASHED) for sample in samples]


def all_samples() -> list[Sample]:
    """Samples of every operator that can be reached."""
    found = by_hand(converter_keys())
    for some in _Processes(_harvest, lambda some: _chunks(some, 1), lambda some: []).map(_chunks(database_positions(), 20)):
        found += some
        _say(f"{len(found)} samples")
    return select(found)


def by_hand(keys: frozenset[str]) -> list[Sample]:
    """Samples of what is written by hand."""
    return samples_of(CALLS, keys, "by hand", by_hand=True)


def _halves(items: list[T]) -> list[list[T]]:
    return _chunks(items, (len(items) + 1) // 2)


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
        for results in _Processes(judge_samples, _halves, _crashed).map(batches):
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
    parser.add_argument("--keep", type=Path, help="keep samples and results in this folder, and take from it what is there")
    folder = parser.parse_args().keep
    start = time.perf_counter()
    samples = _kept(folder, "samples", all_samples)
    _say(f"{len(samples)} samples of {len({s.key for s in samples})} operators after {time.perf_counter() - start:.0f} s")
    results, seconds = _kept(folder, "results", lambda: (measure_all(samples), time.perf_counter() - start))
    TABLE.write_text(document(sorted(converter_keys()), results, seconds))


def _kept(folder: Path | None, name: str, make: Callable[[], R]) -> R:
    """What was made before, or what `make` makes."""
    file = folder / f"{name}.pickle" if folder else None
    if file and file.exists():
        kept: R = pickle.loads(file.read_bytes())
        return kept
    made = make()
    if file:
        file.write_bytes(pickle.dumps(made))
    return made


if __name__ == "__main__":
    main()
