"""Locates the part of a PyTorch model that Apache TVM computes differently.

`locate` answers with a `Report`. torch and TVM take seconds to import, so they are imported when a name below is
first used, not with this package: ``bisect-tvm --help`` and tab completion stay instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bisect_tvm.locating import locate
    from bisect_tvm.numerics.verdict import Verdict
    from bisect_tvm.report.report import Report

__all__ = ["Report", "Verdict", "__version__", "locate"]

__version__ = "0.1.0"

# No module below may bear one of these names: importing it would put the module where the name is looked up.
_HOMES = {
    "Report": "bisect_tvm.report.report",
    "Verdict": "bisect_tvm.numerics.verdict",
    "locate": "bisect_tvm.locating",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
