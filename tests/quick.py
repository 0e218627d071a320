"""Locating in a third of the time, for tests that are not about the target, or about explanations."""

from typing import Any

from bisect_tvm import Report, locate

UNOPTIMISED = {"kind": "llvm", "opt-level": 0}


def locate_quickly(model: Any, inputs: Any, **options: Any) -> Report:
    """`locate` without explanations, and without LLVM's optimisations, which take most of a build and change no formula."""
    return locate(model, inputs, **{"target": UNOPTIMISED, "explain": False, **options})
