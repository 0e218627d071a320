"""What an answer costs: `locate` against one plain conversion, and against what people do today.

Run it from the root of a clone (with the extras `test` and `models`), on a machine that does nothing else. It writes docs/cost.md
from docs/cost.json, which keeps what other runs measured about other models:

    python -m benchmarks.cost [--models minilm,gpt2] [--only-rivals]

With `--small` it tries itself on small models, and writes nothing unless `--out` is given.
"""

import argparse
import gc
import time
from pathlib import Path

from benchmarks.by_hand import RIVALS, run_rival
from benchmarks.cost_models import MAKERS, subject
from benchmarks.cost_page import Measured, Ours, Results, load, render, save
from benchmarks.measuring import ROOT, about, convert, fresh, say, scopes, warm_up

PAGE = ROOT / "docs" / "cost.md"
MODELS = ("minilm", "resnet18", "gpt2")


def describe(model: str, small: bool) -> Measured:
    """What the model is, nothing measured yet."""
    it = subject(model, small=small)
    return Measured(it.title, it.planted)


def measure(model: str, small: bool, scope: str, repeats: int) -> Ours:
    """A plain conversion and `locate` by turns."""
    from bisect_tvm import locate

    it = subject(model, small=small)
    warm_up(locating=True)
    plain, located, right = [], [], True
    for _ in range(repeats):
        plain_steps: dict[str, float] = {}
        gc.collect()
        start = time.perf_counter()
        convert(it.model, it.inputs, it.convert_map, plain_steps)
        plain.append(time.perf_counter() - start)
        gc.collect()
        start = time.perf_counter()
        report = locate(it.model, it.inputs, convert_map=it.convert_map, **scopes()[scope])
        located.append(time.perf_counter() - start)
        proven = report.proof is not None and report.proof.sufficient is True
        right = right and proven and [entry.operator for entry in report.culprits] == [it.operator] * it.planted
    cost = report.cost
    culprits = len(report.culprits)
    return Ours(plain, located, plain_steps, cost.seconds, cost.builds, cost.further_builds, culprits, right)


def keep(results: Results, page: Path | None) -> None:
    """Write the page, if there is one."""
    if page is not None:
        save(page, results)


def main() -> int:
    """Measure and write the page; 1 if `locate` gave a wrong answer."""
    arguments = _arguments()
    page: Path | None = arguments.out or (None if arguments.small else PAGE)
    results = load(page, small=arguments.small) if page else Results(arguments.small)
    for model in arguments.models:
        described = fresh(describe, model, arguments.small)
        measured = results.models.setdefault(model, described)
        measured.title, measured.planted = described.title, described.planted
        if not arguments.only_rivals:
            measured.ours, measured.ours_on = {}, about()
            for scope in scopes():
                ours = measured.ours[scope] = fresh(measure, model, arguments.small, scope, arguments.repeats)
                say(f"{model}, {scope}: {ours.ratio:.2f} times a plain conversion")
                keep(results, page)
        if not arguments.skip_rivals:
            measured.rivals, measured.rivals_on = {}, about()
            for method in RIVALS:
                outcome = measured.rivals[method] = fresh(run_rival, method, model, arguments.small, arguments.cap_seconds)
                say(f"{model}, {method}: {outcome}")
                keep(results, page)
    say(render(results))
    return 0 if results.right else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]  # it is there
    parser.add_argument("--models", type=_models, default=MODELS, help=f"some of {', '.join(MAKERS)}, separated by commas")
    parser.add_argument("--small", action="store_true", help="small models, to try the benchmark itself")
    parser.add_argument("--repeats", type=_positive, default=3, help="plain conversions and calls of locate")
    parser.add_argument("--cap-seconds", type=float, default=1800.0, help="stop each rival after so many seconds")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--skip-rivals", action="store_true")
    which.add_argument("--only-rivals", action="store_true")
    parser.add_argument("--out", type=Path, help="the page; what was measured is kept beside it as JSON")
    return parser.parse_args()


def _models(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := set(names) - MAKERS.keys():
        raise argparse.ArgumentTypeError(f"no such model: {', '.join(sorted(unknown))}; there are {', '.join(MAKERS)}")
    return names


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


if __name__ == "__main__":
    raise SystemExit(main())
