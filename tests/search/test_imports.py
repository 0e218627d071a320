"""The search is pure, and the package is light to import: seen in a fresh process."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "tvm", "tvm_ffi", "numpy", "networkx", "scipy", "transformers")


def heavy_imports_of(statement: str) -> list[str]:
    """Heavy packages that are loaded once `statement` has run."""
    code = f"{statement}\nimport sys\nprint(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_search_imports_nothing() -> None:
    assert heavy_imports_of("import bisect_tvm.search.walk") == []


def test_the_package_imports_nothing() -> None:
    assert heavy_imports_of("import bisect_tvm; dir(bisect_tvm); bisect_tvm.__version__") == []


def test_the_words_of_the_verdict_import_nothing() -> None:
    assert heavy_imports_of("from bisect_tvm import Verdict; Verdict.FORMULA.is_divergence") == []


@pytest.mark.parametrize(("statement", "package"), [("import numpy", "numpy"), ("import bisect_tvm.numerics.judge", "numpy")])
def test_the_check_can_fail(statement: str, package: str) -> None:
    assert package in heavy_imports_of(statement)


def test_locate_is_there_when_asked_for() -> None:
    assert {"torch", "tvm"} <= set(heavy_imports_of("from bisect_tvm import locate"))
